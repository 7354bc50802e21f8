"""Shardings of XLA (``mhlo.sharding``) in a module, turned into Shardy's.

JAX lowers with Shardy, which does not read XLA's shardings in the same module.
"""

import re
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ..._errors import InvalidArgumentError
from .module import find_main, operations_of

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
            main.attributes[kind] = ir.ArrayAttr.get([_row(row, one) for row, one in rows])
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
    found = (one for text in texts for one in _TILED.finditer(text))
    return {int(np.prod(_numbers(one["tiles"]))) for one in found}


def _constrain(op: Any, text: str) -> None:
    result = op.results[0]
    with ir.InsertionPoint(op), op.location:
        wanted = sharding_of(text, len(result.type.shape))
        placed = sdy.ShardingConstraintOp(op.operands[0], wanted)
    result.replace_all_uses_with(placed.result)
    op.erase()


def _row(row: Any, type_: Any) -> Any:
    named = {one.name: one.attr for one in row}
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
    found = _TILED.fullmatch(text)
    cuts = _numbers(found["tiles"]) if found else []
    if found is None or len(cuts) != ndim + bool(found["last"]):
        raise InvalidArgumentError(
            f"the StableHLO file has the sharding {text} for a tensor of {ndim} dimensions; a "
            "program takes replicated and tiled ones: export it with Shardy's shardings"
        )
    if found["listed"]:
        return cuts, _numbers(found["listed"])
    source = _numbers(found["source"])
    ids = np.arange(int(np.prod(source))).reshape(source)
    if found["order"]:
        ids = ids.transpose(_numbers(found["order"]))
    return cuts, [int(i) for i in ids.reshape(-1)]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
