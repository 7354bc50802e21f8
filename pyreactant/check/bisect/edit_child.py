"""The process that changes StableHLO modules with jaxlib's MLIR, which may abort its process."""

from collections.abc import Iterator, Sequence
from typing import Any

from jax._src.interpreters.mlir import make_ir_context
from jaxlib import _hlo, _jax  # type: ignore[attr-defined] # private
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from ...arrays.runtimes.jax.module import attribute, find_main, operations_of
from ...arrays.stablehlo import mlir_dtype
from .worker import serve

_FLAT = "builtin.module(symbol-dce,canonicalize,cse)"
_CURRENT = "builtin.module(func.func(stablehlo-legalize-deprecated-ops))"
"""On `stablehlo.dot`, which XLA's conversion makes, the interpreter aborts."""
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")


def _flat(request: dict[str, Any]) -> dict[str, Any]:
    """The module as one function, and its operations; without shardings if that is asked."""
    module = ir.Module.parse(request["text"])
    while _inlined(module):
        pass
    passmanager.PassManager.parse(_FLAT).run(module.operation)
    if request["unsharded"]:
        _drop_shardings(module)
    return _described(module)


def _inlined(module: Any) -> bool:
    """Inline a call within the main function, if there is one; jaxlib's own pass inlines none."""
    functions = {
        op.attributes["sym_name"].value: op
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    inside = operations_of(functions["main"].operation)
    call = next((op for op in inside if op.name == "func.call"), None)
    if call is None:
        return False
    block = functions[call.attributes["callee"].value].regions[0].blocks[0]
    at = dict(zip(block.arguments, call.operands, strict=True))
    for op in block.operations:
        if op.operation.name == "func.return":
            for old, value in zip(call.results, op.operands, strict=True):
                old.replace_all_uses_with(at[value])
        else:
            _copy(op.operation, at, ir.InsertionPoint(call))
    call.erase()
    return True


def _copy(op: Any, at: dict[Any, Any], place: Any) -> None:
    """Copy an operation; its operands, also within its regions, are those of `at`."""
    copy = op.clone(place)
    for before, after in zip(operations_of(op), operations_of(copy), strict=True):
        for number, value in enumerate(before.operands):
            if value in at:
                after.operands[number] = at[value]
    at |= dict(zip(op.results, copy.results, strict=True))


def _described(module: Any) -> dict[str, Any]:
    main = find_main(module)
    block = main.regions[0].blocks[0]
    values = [*block.arguments]
    numbers = {value: n for n, value in enumerate(values)}
    operations = []
    for op in block.operations:
        used = [numbers[value] for value in _used(op.operation) if value in numbers]
        made = list(range(len(values), len(values) + len(op.results)))
        for value in op.results:
            numbers[value] = len(values)
            values.append(value)
        operations.append({"name": op.operation.name, "uses": used, "makes": made})
    returned = operations.pop()["uses"]
    types = [_aval(value.type) for value in values]
    return {"text": str(module), "operations": operations, "returns": returned, "types": types}


def _aval(kind: Any) -> dict[str, Any] | None:
    """Shape and dtype; None for what is no array."""
    if not isinstance(kind, ir.RankedTensorType):
        return None
    return {"shape": list(kind.shape), "dtype": mlir_dtype(str(kind.element_type))}


def _used(op: Any) -> Iterator[Any]:
    """The operands of an operation, and those within its regions."""
    for inner in operations_of(op):
        yield from inner.operands


def _drop_shardings(module: Any) -> None:
    for op in list(operations_of(module.operation)):
        if op.name in ("sdy.sharding_constraint", "stablehlo.custom_call"):
            target = attribute(op.attributes, "call_target_name")
            if op.name == "sdy.sharding_constraint" or target == "Sharding":
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
                continue
        for name in ("arg_attrs", "res_attrs") if op.name == "func.func" else ():
            if name in op.attributes:
                del op.attributes[name]
        for name in _SHARDINGS:
            if name in op.attributes:
                del op.attributes[name]
    for op in list(module.body.operations):
        if op.operation.name == "sdy.mesh":
            op.operation.erase()
    for name in [n for n in module.operation.attributes if n.startswith("mhlo.num_")]:
        del module.operation.attributes[name]


def _slice(request: dict[str, Any]) -> dict[str, Any]:
    """A module with some operations and outputs; values that no kept one makes are parameters."""
    old = ir.Module.parse(request["text"])
    main = find_main(old)
    block = main.regions[0].blocks[0]
    values: list[Any] = [*block.arguments]
    ops = [op.operation for op in block.operations]
    for op in ops[:-1]:
        values += list(op.results)
    numbers = {value: n for n, value in enumerate(values)}
    kept = [ops[n] for n in request["keep"]]
    made = {numbers[value] for op in kept for value in op.results}
    needed = [numbers[value] for op in kept for value in _used(op) if value in numbers]
    parameters = sorted({n for n in [*needed, *request["outputs"]] if n not in made})
    new = ir.Module.create()
    for name in old.operation.attributes:
        new.operation.attributes[name] = old.operation.attributes[name]
    for op in old.body.operations:
        if op.operation.name != "func.func":
            op.operation.clone(ir.InsertionPoint(new.body))
    function = _function(new, main, values, parameters, request["outputs"])
    entry = function.regions[0].blocks.append(*(values[n].type for n in parameters))
    at = {values[n]: entry.arguments[place] for place, n in enumerate(parameters)}
    for op in kept:
        _copy(op, at, ir.InsertionPoint(entry))
    results = [at[values[n]] for n in request["outputs"]]
    ir.Operation.create("func.return", operands=results, ip=ir.InsertionPoint(entry))
    new.operation.verify()
    return {"text": str(new), "parameters": parameters}


def _function(
    module: Any, main: Any, values: Sequence[Any], parameters: Sequence[int], outputs: Sequence[int]
) -> Any:
    """The new @main; arguments of the old one keep their shardings."""
    kind = ir.FunctionType.get(
        [values[n].type for n in parameters], [values[n].type for n in outputs]
    )
    attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(kind)}
    if "arg_attrs" in main.attributes:
        own = list(main.attributes["arg_attrs"])
        none = ir.DictAttr.get({})
        given = [_sharding(own[n]) if n < len(own) else none for n in parameters]
        attributes["arg_attrs"] = ir.ArrayAttr.get(given)
    return ir.Operation.create(
        "func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body)
    )


def _trip(request: dict[str, Any]) -> dict[str, Any]:
    """One trip of a loop, the first operation of a module: further parameters are its state."""
    module = ir.Module.parse(request["text"])
    main = find_main(module)
    block = main.regions[0].blocks[0]
    loop = block.operations[0].operation
    numbers = {value: n for n, value in enumerate(block.arguments)}
    state = [numbers[value] for value in loop.operands]
    body = loop.regions[1].blocks[0]
    at = {x: block.add_argument(x.type, ir.Location.unknown()) for x in body.arguments}
    for op in body.operations:
        if op.operation.name == "stablehlo.return":
            for old, value in zip(loop.results, op.operands, strict=True):
                old.replace_all_uses_with(at.get(value, value))
        else:
            _copy(op.operation, at, ir.InsertionPoint(loop))
    loop.erase()
    results = main.attributes["function_type"].value.results
    kind = ir.FunctionType.get([value.type for value in block.arguments], results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "arg_attrs" in main.attributes:
        own = [*main.attributes["arg_attrs"], *[ir.DictAttr.get({})] * len(state)]
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(own)
    module.operation.verify()
    return {"text": str(module), "state": state}


def _from_hlo(request: dict[str, Any]) -> dict[str, Any]:
    """A compiler's dump as StableHLO."""
    module = _hlo.hlo_module_from_text(request["text"])
    back = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()))
    passmanager.PassManager.parse(_CURRENT).run(back.operation)
    return {"text": str(back)}


def _parse(request: dict[str, Any]) -> dict[str, Any]:
    """The module, if MLIR verifies it."""
    return {"text": str(ir.Module.parse(request["text"]))}


def _sharding(attributes: Any) -> Any:
    kept = {name: attributes[name] for name in _SHARDINGS if name in attributes}
    return ir.DictAttr.get(kept)


_EDITS = {"flat": _flat, "slice": _slice, "trip": _trip, "from_hlo": _from_hlo, "parse": _parse}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    with make_ir_context(), ir.Location.unknown():
        answer = _EDITS[request["do"]](request)
    return {"outcome": "ran", **answer}


if __name__ == "__main__":
    stablehlo.register_stablehlo_passes()
    serve(_answer)
