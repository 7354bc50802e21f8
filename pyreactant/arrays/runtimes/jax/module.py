"""Parse a StableHLO module, and describe it as plain JSON.

A program of a StableHLO file reads it here (`stablehlo`), and so does the child process of a
preflight (`fit/compiler/compile_child`). libtpu 0.0.50 aborts on dynamic shapes, so the module is
checked before libtpu is loaded.

Shardings are those of Shardy's ``sdy`` dialect or of XLA's ``mhlo.sharding``, which are turned
into Shardy's: JAX lowers with Shardy, which does not read XLA's in the same module. The
module may have attributes of other dialects, such as Reactant's ``enzymexla``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ....base.counted import counted
from ....base.errors import InvalidArgumentError
from ....base.words import unknown_operation
from ...stablehlo import mlir_dtype

_DIALECTS = ("stablehlo", "sdy", "func", "chlo", "mhlo", "arith", "shape", "tensor", "builtin")


def parse(text: str) -> Any:
    """The module, verified by MLIR.

    Raises:
        InvalidArgumentError: The text is not a module with a function @main, or it uses operations
            of another dialect.
        MLIRError: The text does not parse.
    """
    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True  # Reactant leaves attributes of its own
    try:
        with context:
            module = ir.Module.parse(text)
    except ir.MLIRError as error:
        if "@main" not in text:
            raise _not_a_module(text) from None
        if operation := unknown_operation(error):
            raise _foreign([operation]) from None
        raise
    if find_main(module) is None:
        raise _not_a_module(text)
    return module


def describe(module: Any) -> dict[str, Any]:
    """Describe a parsed module, for `Module.from_description`.

    Raises:
        InvalidArgumentError: The module has dynamic shapes, arguments that are not tensors, or
            operations that are not StableHLO.
    """
    operations = list(operations_of(module.operation))
    _check_dialects(operations)
    _check_shapes(operations)
    main, attributes = find_main(module), module.operation.attributes
    arguments = list(_tensors(main, main.type.inputs, "arg_attrs"))
    results = list(_tensors(main, main.type.results, "res_attrs"))
    shardings = [*_shardings(main, "arg_attrs"), *_shardings(main, "res_attrs")]
    return {
        "name": _value(attributes, "sym_name") or "module",
        "num_partitions": _value(attributes, "mhlo.num_partitions"),
        "num_replicas": _value(attributes, "mhlo.num_replicas"),
        "mesh": _mesh(module, shardings),
        "shardy": bool(shardings) or any(op.name.startswith("sdy.") for op in operations),
        "arguments": arguments,
        "results": results,
        "custom_calls": sorted(
            {
                op.attributes["call_target_name"].value
                for op in operations
                if op.name.endswith(".custom_call") and "call_target_name" in op.attributes
            }
        ),
    }


def find_main(module: Any) -> Any:
    """The module's function @main; None without one."""
    for op in module.body.operations:
        if op.operation.name == "func.func" and op.attributes["sym_name"].value == "main":
            return op
    return None


def operations_of(root: Any) -> Iterator[Any]:
    """The operation and all operations within it."""
    yield root
    for region in root.regions:
        for block in region:
            for op in block.operations:
                yield from operations_of(op.operation)


def attribute(attributes: Any, name: str) -> Any:
    """The attribute of a name; None without one."""
    if name in attributes:
        return attributes[name]
    return None


def _value(attributes: Any, name: str) -> Any:
    return attributes[name].value if name in attributes else None


def _check_dialects(operations: Sequence[Any]) -> None:
    foreign = {op.name for op in operations if op.name.partition(".")[0] not in _DIALECTS}
    if foreign:
        raise _foreign(foreign)


def _check_shapes(operations: Sequence[Any]) -> None:
    for op in operations:
        for value, place in _values(op):
            if _is_dynamic(value.type):
                raise InvalidArgumentError(
                    f"{_line(place)}the module has the dynamic shape {value.type}; a "
                    "program must have fixed shapes: export it for the shapes that it will run with"
                )


def _line(place: Any) -> str:
    """The line in the text, which MLIR calls "-"; "" for a location in the original program."""
    match = re.match(r'loc\("-":(\d+):', str(place))
    return f"line {match[1]} of " if match else ""


def _is_dynamic(type_: Any) -> bool:
    if isinstance(type_, ir.RankedTensorType):
        return not type_.has_static_shape
    return isinstance(type_, ir.UnrankedTensorType)


def _values(op: Any) -> Iterator[tuple[Any, Any]]:
    """Results of an operation and arguments of its blocks, each with its location."""
    for result in op.results:
        yield result, op.location
    for region in op.regions:
        for block in region:
            for argument in block.arguments:
                yield argument, argument.location


def rows_of(main: Any, kind: str, count: int) -> list[Any]:
    """The attributes of each argument ("arg_attrs") or result ("res_attrs") of a function."""
    return list(main.attributes[kind]) if kind in main.attributes else [{}] * count


def _tensors(main: Any, types: Sequence[Any], kind: str) -> Iterator[dict[str, Any]]:
    for type_, attributes in zip(types, rows_of(main, kind, len(types)), strict=True):
        if not isinstance(type_, ir.RankedTensorType):
            raise InvalidArgumentError(
                f"arguments and results of main must be tensors, got {str(type_)[:60]}; export a "
                "program whose arguments and results are arrays"
            )
        yield {
            "shape": list(type_.shape),
            "dtype": mlir_dtype(str(type_.element_type)),
            "axes": _axes(attributes),
            "mhlo": _value(attributes, "mhlo.sharding") or "",
        }


def _axes(attributes: Mapping[str, Any]) -> list[list[str]] | None:
    """The axes that shard each dimension, whether or not the dimension is open to more axes."""
    if "sdy.sharding" not in attributes:
        return None
    dimensions = sdy.TensorShardingAttr(attributes["sdy.sharding"]).dimension_shardings
    return [
        [_axis(sdy.AxisRefAttr(axis)) for axis in sdy.DimensionShardingAttr(dimension).axes]
        for dimension in dimensions
    ]


def _axis(axis: Any) -> str:
    if axis.sub_axis_info is None:
        return str(axis.name)
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return f"{axis.name}:({part.pre_size}){part.size}"


def _shardings(main: Any, kind: str) -> Iterator[Any]:
    for attributes in rows_of(main, kind, 0):
        if "sdy.sharding" in attributes:
            yield sdy.TensorShardingAttr(attributes["sdy.sharding"])


def _mesh(module: Any, shardings: Sequence[Any]) -> dict[str, Any] | None:
    """The mesh of the first sharding, otherwise the module's first mesh."""
    named = {
        op.attributes["sym_name"].value: op.attributes["mesh"]
        for op in module.body.operations
        if op.operation.name == "sdy.mesh"
    }
    used = [_mesh_of(sharding.mesh_or_ref, named) for sharding in shardings]
    for attribute in [*used, *named.values()]:
        mesh = sdy.MeshAttr(attribute)
        axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
        if axes:  # a mesh without axes is for a value on one device
            return {
                "axes": [[axis.name, axis.size] for axis in axes],
                "device_ids": list(mesh.device_ids),
                "text": str(attribute).removeprefix("#sdy.mesh"),
            }
    return None


def _mesh_of(mesh: Any, named: Mapping[str, Any]) -> Any:
    """The mesh of a sharding, which refers to it by name or contains it."""
    return named[mesh.value] if isinstance(mesh, ir.FlatSymbolRefAttr) else mesh


def _is_bytecode(text: str) -> bool:
    return text.startswith("ML") and text[2:3] > "\x7f"  # a byte that is not UTF-8


def _not_a_module(text: str) -> InvalidArgumentError:
    start = "MLIR bytecode" if _is_bytecode(text) else repr(text[:40])
    return InvalidArgumentError(
        "the module must be StableHLO as text, with a function @main; this one begins with "
        f"{start}. Export it with jax.jit(f).lower(...).as_text() or Reactant's @code_hlo"
    )


def _foreign(names: Sequence[str] | set[str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the module uses operations that are not StableHLO: {', '.join(sorted(names))}; export "
        "it after they are lowered (Reactant's @code_hlo does so by default)"
    )


_TILED = re.compile(
    r"\{devices=\[(?P<tiles>[\d,]+)\]"
    r"(<=\[(?P<source>[\d,]+)\](T\((?P<order>[\d,]+)\))?|(?P<listed>\d+(,\d+)*))"
    r"(?P<last> last_tile_dim_replicate)?\}"
)


def to_shardy(module: Any) -> set[int]:
    """Replace every ``mhlo.sharding`` by an ``sdy.sharding``, in the module's context.

    Returns:
        The numbers of devices over which they cut.

    Raises:
        InvalidArgumentError: A sharding is neither replicated nor tiled.
    """
    sizes = _sizes(module)
    main = find_main(module)
    for kind in ("arg_attrs", "res_attrs"):
        if kind in main.attributes:
            types = main.type.inputs if kind == "arg_attrs" else main.type.results
            rows = zip(main.attributes[kind], types, strict=True)
            main.attributes[kind] = ir.ArrayAttr.get([_row(row, type_) for row, type_ in rows])
    for op in list(operations_of(module.operation)):
        if "mhlo.sharding" not in op.attributes:
            continue
        text = op.attributes["mhlo.sharding"].value
        del op.attributes["mhlo.sharding"]
        if op.name.endswith(".custom_call") and op.attributes["call_target_name"].value == (
            "Sharding"
        ):
            _constrain(op, text)
    return sizes


def _sizes(module: Any) -> set[int]:
    texts = (
        str(op.attributes[name])
        for op in operations_of(module.operation)
        for name in ("mhlo.sharding", "arg_attrs", "res_attrs")
        if name in op.attributes
    )
    matches = (match for text in texts for match in _TILED.finditer(text))
    return {int(np.prod(_numbers(match["tiles"]))) for match in matches}


def _constrain(op: Any, text: str) -> None:
    result = op.results[0]
    with ir.InsertionPoint(op), op.location:
        wanted = sharding_of(text, len(result.type.shape))
        placed = sdy.ShardingConstraintOp(op.operands[0], wanted)
    result.replace_all_uses_with(placed.result)
    op.erase()


def _row(row: Any, type_: Any) -> Any:
    named = {attribute.name: attribute.attr for attribute in row}
    text = named.pop("mhlo.sharding", None)
    if text is not None and "sdy.sharding" not in named:
        named["sdy.sharding"] = sharding_of(text.value, len(type_.shape))
    return ir.DictAttr.get(named)


def sharding_of(text: str, ndim: int) -> Any:
    """Shardy's form of a sharding of XLA, with a mesh of its own: an axis for each dimension.

    Args:
        text: Such as ``{devices=[4,2]<=[2,4]T(1,0)}`` or ``{replicated}``.
        ndim: Number of dimensions of the tensor.

    Raises:
        InvalidArgumentError: It is neither replicated nor tiled.
    """
    if text in ("{replicated}", "{maximal device=0}"):
        cuts, ids = [1] * ndim, [0]
    else:
        cuts, ids = _tiles(text, ndim)
    axes = [(f"d{i}", size) for i, size in enumerate(cuts) if size > 1]
    grid = ", ".join(f'"{name}"={size}' for name, size in axes)
    order = "" if ids == list(range(len(ids))) else f", device_ids=[{', '.join(map(str, ids))}]"
    split = dict(axes)
    entries = ", ".join(f'{{"d{i}"}}' if f"d{i}" in split else "{}" for i in range(ndim))
    return ir.Attribute.parse(f"#sdy.sharding<mesh<[{grid}]{order}>, [{entries}]>")


def _tiles(text: str, ndim: int) -> tuple[list[int], list[int]]:
    """Number of blocks along each dimension and along copies, and the devices row-major."""
    match = _TILED.fullmatch(text)
    cuts = _numbers(match["tiles"]) if match else []
    if match is None or len(cuts) != ndim + bool(match["last"]):
        raise InvalidArgumentError(
            f"the StableHLO file has the sharding {text} for a tensor of "
            f"{counted(ndim, 'dimension')}; a program takes replicated and tiled ones: export it "
            "with Shardy's shardings"
        )
    if match["listed"]:
        return cuts, _numbers(match["listed"])
    source = _numbers(match["source"])
    ids = np.arange(int(np.prod(source))).reshape(source)
    if match["order"]:
        ids = ids.transpose(_numbers(match["order"]))
    return cuts, [int(i) for i in ids.reshape(-1)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
