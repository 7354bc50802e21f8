"""Parse a StableHLO module, and describe it as plain JSON.

A program of a StableHLO file reads it here (`stablehlo`), and so does the child process of a
preflight (`tpu/_compiler/compile_child`). libtpu 0.0.50 aborts on dynamic shapes, so the module is
checked before libtpu is loaded.

Shardings are those of Shardy's ``sdy`` dialect or of XLA's ``mhlo.sharding``. The module may have
attributes of other dialects, such as Reactant's ``enzymexla``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ..._core.stablehlo import mlir_dtype
from ..._errors import InvalidArgumentError

_DIALECTS = ("stablehlo", "sdy", "func", "chlo", "mhlo", "arith", "shape", "tensor", "builtin")
_UNKNOWN = re.compile(r"Dialect `\w+' not found for custom op '([^']+)'")


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
        if "main" not in text or _is_bytecode(text):
            raise _not_a_module(text) from None
        if found := _UNKNOWN.search(str(error)):
            raise _foreign([found[1]]) from None
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
    found = re.match(r'loc\("-":(\d+):', str(place))
    return f"line {found[1]} of " if found else ""


def _is_dynamic(found: Any) -> bool:
    if isinstance(found, ir.RankedTensorType):
        return not found.has_static_shape
    return isinstance(found, ir.UnrankedTensorType)


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
    for found, attributes in zip(types, rows_of(main, kind, len(types)), strict=True):
        if not isinstance(found, ir.RankedTensorType):
            raise InvalidArgumentError(
                f"arguments and results of main must be tensors, got {str(found)[:60]}; export a "
                "program whose arguments and results are arrays"
            )
        yield {
            "shape": list(found.shape),
            "dtype": mlir_dtype(str(found.element_type)),
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
    used = [_resolved(sharding.mesh_or_ref, named) for sharding in shardings]
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


def _resolved(mesh: Any, named: Mapping[str, Any]) -> Any:
    """The mesh of a sharding, which refers to it by name or contains it."""
    return named[mesh.value] if isinstance(mesh, ir.FlatSymbolRefAttr) else mesh


def _is_bytecode(text: str) -> bool:
    return text.startswith("ML\ufffd")  # "ML" and a byte that is not UTF-8


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
