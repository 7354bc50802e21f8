"""A StableHLO module as a function of JAX: the JAX body of a program of a file.

The module becomes a function of the module that JAX lowers, by a primitive of its own. Constraints
at the call keep the shardings of its arguments and results.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax.extend.core import Primitive
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import func, sdy

from ....base.counted import counted
from ....base.errors import InvalidArgumentError, PyReactantError, ShardingError
from ...backend import Call
from ...dtypes import as_dtype
from ...program import Program
from ...stablehlo import label, mlir_dtype, read, state
from . import x64
from .convert import JaxTrees
from .module import attribute, describe, find_main, operations_of, parse, rows_of, to_shardy

_SHARDING_CALLS = ("Sharding",)
_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
_PRECISIONS = {"HIGH": "HIGH", "HIGHEST": "HIGHEST", "FLOAT32": "HIGHEST"}


_config: Any = jax.config  # its attributes are made at run time


class Module:
    """A StableHLO module that was read and checked; it is called with JAX's arrays.

    Args:
        name: Name of its function in the module that JAX lowers.
        what: The module in the words of a message.
        text: The module.

    Attributes:
        text: The module.
        arguments: Shape and dtype of each argument.
        results: Shape and dtype of each result.
        sharded: Whether it has shardings.
        partitions: Number of devices that the module is written for; 1 for any number.
        wide: Whether an argument or a result has a 64-bit type.

    Raises:
        InvalidArgumentError: It is not one function in StableHLO with fixed shapes, or has custom
            calls.
    """

    def __init__(self, name: str, what: str, text: str) -> None:
        self.__name__ = name
        self._what = what
        self.text = text
        facts = self._read_facts()
        self.arguments = [self._aval(aval) for aval in facts["arguments"]]
        self.results = [self._aval(aval) for aval in facts["results"]]
        self.partitions = self._partitions(facts["num_partitions"], facts["mesh"])
        self.sharded = bool(facts["shardy"] or facts["mesh"] or facts["custom_calls"])
        self.wide = any(x64.is_wide(aval.dtype) for aval in (*self.arguments, *self.results))

    def __call__(self, *args: Any) -> Any:
        """The results for JAX's arrays: one, or a tuple of several.

        Raises:
            InvalidArgumentError: Number, shapes or dtypes of the arrays are not the module's.
        """
        leaves, _ = JaxTrees().flatten(args)
        got = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        if [words(aval) for aval in got] != [words(aval) for aval in self.arguments]:
            raise InvalidArgumentError(
                f"{self._what} takes the arguments ({listing(self.arguments)}), got "
                f"({listing(got)}); give arrays with the sizes of the file, where Reactant writes "
                "those of a Julia array in reverse order"
            )
        results = self.bind(leaves)
        return results[0] if len(results) == 1 else tuple(results)

    def bind(self, leaves: Sequence[Any]) -> list[Any]:
        """The results for arrays that fit; products get JAX's precision if they have none."""
        precision = str(_config.jax_default_matmul_precision).upper()
        results: list[Any] = _call.bind(*leaves, module=self, precision=_PRECISIONS.get(precision))
        return results

    @property
    def outputs(self) -> list[Any]:
        """Shape and dtype of each result, as JAX's."""
        return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in self.results]

    def with_precision(self, precision: str | None) -> Any:
        """The module, parsed in the current context; products without a precision get this one."""
        module = ir.Module.parse(self.text)
        for op in operations_of(module.operation):
            if precision and op.name in _PRODUCTS and not _is_precise(op):
                setting = ir.Attribute.parse(f"#stablehlo<precision {precision}>")
                op.attributes["precision_config"] = ir.ArrayAttr.get([setting, setting])
        return module

    def plain_text(self) -> str:
        """The module without attributes of dialects, such as those that Reactant leaves."""
        module = parse(self.text)
        for op in operations_of(module.operation):
            kinds = ("arg_attrs", "res_attrs") if op.name == "func.func" else ()
            for name in [key for key in op.attributes if "." in key or key in kinds]:
                del op.attributes[name]
        return str(module)

    def dtypes(self) -> set[str]:
        """Names of the element types of all arrays in it."""
        dtypes = set()
        for op in operations_of(parse(self.text).operation):
            blocks = (block for region in op.regions for block in region)
            values = [*op.results, *(value for block in blocks for value in block.arguments)]
            types = (value.type for value in values if isinstance(value.type, ir.RankedTensorType))
            dtypes |= {mlir_dtype(str(value.element_type)) for value in types}
        return dtypes

    def _read_facts(self) -> dict[str, Any]:
        with _of_module(self._what):
            module = parse(self.text)
        _check_functions(self._what, module)
        with _of_module(self._what):
            facts = describe(module)
        if facts["num_replicas"] not in (None, 1):
            raise InvalidArgumentError(
                f"{self._what} is written for {facts['num_replicas']} replicas; a program has "
                "partitions only: export it with shardings over a mesh (jax.jit, not jax.pmap)"
            )
        foreign = [name for name in facts["custom_calls"] if name not in _SHARDING_CALLS]
        if foreign:
            raise InvalidArgumentError(
                f"{self._what} has custom calls, which need code that is not in the file: "
                f"{', '.join(foreign)}; write that part with other operations before exporting it"
            )
        try:
            with module.context:
                sizes = to_shardy(module)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{self._what}: {error}") from None
        if facts["mesh"] is None and sizes:
            facts["mesh"] = {"axes": [["", max(sizes)]], "text": f"of sizes {sorted(sizes)}"}
        return facts

    def _partitions(self, given: int | None, mesh: Any) -> int:
        cut = int(np.prod([size for _, size in mesh["axes"]])) if mesh else given or 1
        if given not in (None, cut):
            raise ShardingError(
                f"{self._what} has num_partitions = {given}, but its mesh {mesh['text']} has {cut} "
                "devices; they must be equal"
            )
        return cut

    def _aval(self, plain: dict[str, Any]) -> jax.ShapeDtypeStruct:
        try:
            dtype = as_dtype(plain["dtype"])
        except PyReactantError as error:
            raise InvalidArgumentError(f"{self._what}: {error}") from None
        return jax.ShapeDtypeStruct(tuple(plain["shape"]), dtype)


def _is_precise(op: Any) -> bool:
    """Whether the file itself gives a product's precision or algorithm."""
    given = attribute(op.attributes, "precision_config") or ()
    return "algorithm" in op.attributes or any("DEFAULT" not in str(text) for text in given)


def words(aval: Any) -> str:
    """Shape and dtype of an array in a message."""
    return f"{aval.dtype}{list(aval.shape)}"


def listing(avals: Sequence[Any]) -> str:
    """Shapes and dtypes of arrays in a message."""
    return ", ".join(map(words, avals))


@contextlib.contextmanager
def _of_module(what: str) -> Iterator[None]:
    """Name the module in an error about it."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{what}: {error}") from None
    except ir.MLIRError as error:
        raise InvalidArgumentError(f"{what} does not parse: {error}") from None


def _check_functions(what: str, module: Any) -> None:
    """Check that the module is one program: @main, and the functions that it calls."""
    operations = list(module.body.operations)
    other = sorted({op.operation.name for op in operations} - {"func.func", "sdy.mesh"})
    if other:
        raise InvalidArgumentError(
            f"{what} has {', '.join(other)} beside its functions; a program has functions only"
        )
    functions = [op for op in operations if op.operation.name == "func.func"]
    calls = {op.attributes["sym_name"].value: _callees(op) for op in functions}
    empty = [op.attributes["sym_name"].value for op in functions if not len(op.regions[0].blocks)]
    if empty:
        raise InvalidArgumentError(
            f"{what} declares {', '.join(empty)} without a body; export the whole program"
        )
    public = {
        op.attributes["sym_name"].value for op in functions if "sym_visibility" not in op.attributes
    }
    spare = sorted(public - set().union(*calls.values()) - {"main"})
    if spare:
        raise InvalidArgumentError(
            f"{what} has several functions: main and {', '.join(spare)}; a program is one "
            "function: remove the others, or export each into a file of its own"
        )
    _check_recursion(what, calls)


def _callees(function: Any) -> set[str]:
    operations = operations_of(function.operation)
    return {op.attributes["callee"].value for op in operations if op.name == "func.call"}


def _check_recursion(what: str, calls: Mapping[str, set[str]]) -> None:
    """Check that no function calls itself: XLA writes calls out, and crashes the process here."""
    left = dict(calls)
    while ended := [name for name, called in left.items() if not called & left.keys()]:
        for name in ended:
            del left[name]
    if left:
        raise InvalidArgumentError(
            f"{what} has functions that call themselves: {', '.join(sorted(left))}; write it as a "
            "loop (stablehlo.while)"
        )


def module_of(program: Program) -> Module:
    """The module of a program's file as it is now; read again only if the file changed.

    Raises:
        FileError: The file cannot be read.
        InvalidArgumentError: It is not one function in StableHLO with fixed shapes, or has custom
            calls.
    """
    return _module(program, state(program))


@functools.lru_cache(maxsize=64)  # their texts may be large
def _module(program: Program, digest: str) -> Module:
    text = read(program).decode("utf-8", "replace")
    return Module(program.name, label(program), text)


def check_call(call: Call, module: Module) -> None:
    """Check what a program of a file cannot have, and its number of devices."""
    what = f"Program {call.program.name!r}"
    if call.static:
        raise InvalidArgumentError(
            f"{what}: a StableHLO file takes no static values, because it is lowered already; got "
            f"{', '.join(call.static)}; export it with them"
        )
    devices = call.meshes[0].size if call.meshes else 1
    if module.partitions not in (1, devices):
        raise ShardingError(
            f"{what}: the StableHLO file is partitioned for "
            f"{counted(module.partitions, 'device')}, but the arguments lie on {devices}; place "
            f"them on a mesh of {module.partitions}, or export the file for the mesh"
        )


_call = Primitive("stablehlo_file")
_call.multiple_results = True


def _outputs(*_: Any, module: Module, precision: str | None) -> list[Any]:
    return module.outputs


_call.def_abstract_eval(_outputs)


def _lower(ctx: Any, *args: Any, module: Module, precision: str | None) -> Any:
    """Add the module's functions and meshes to JAX's module, and call its main."""
    into = ctx.module_context
    with into.module.context:
        parsed = module.with_precision(precision)
        to_shardy(parsed)
        passmanager.PassManager.parse("builtin.module(sdy-lift-inlined-meshes)").run(
            parsed.operation
        )
    main = find_main(parsed)
    types = list(main.type.results)
    name = mlir.merge_mlir_modules(
        into.module, module.__name__, parsed, dst_symtab=into.symbol_table
    )
    main = into.symbol_table[name]
    # The names of meshes may have changed, so the shardings are read from the merged function.
    args = tuple(map(_constrain, args, _shardings(main, "arg_attrs", len(args))))
    wanted = _shardings(main, "res_attrs", len(types))
    for kind in ("arg_attrs", "res_attrs"):
        if kind in main.attributes:
            del main.attributes[kind]
    results = func.CallOp(types, ir.FlatSymbolRefAttr.get(name), args).results
    return list(map(_constrain, results, wanted))


def _shardings(main: Any, kind: str, count: int) -> list[Any]:
    return [attribute(row, "sdy.sharding") for row in rows_of(main, kind, count)]


def _constrain(value: Any, sharding: Any) -> Any:
    return value if sharding is None else sdy.ShardingConstraintOp(value, sharding).result


mlir.register_lowering(_call, _lower)
