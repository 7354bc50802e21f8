"""What a StableHLO module says of itself: arguments, results, shardings, mesh, custom calls.

Read from its text, before any compiler sees it: libtpu 0.0.50 ends its process on dynamic shapes.

The text forms are those of the StableHLO specification, of Shardy's ``sdy`` dialect and of XLA's
``mhlo.sharding``; attributes of other dialects, such as Reactant's ``enzymexla``, may stand beside.
"""

import itertools
import re
from dataclasses import dataclass

from .._errors import InvalidArgumentError
from .._mesh import Mesh
from ._stablehlo_text import SDY, Tensor, closing, mesh, parts, results, tensor

KNOWN_CUSTOM_CALLS = frozenset(
    (
        "AllocateBuffer",
        "ApproxTopK",
        "Eigh",
        "LuDecomposition",
        "Qr",
        "ProductOfElementaryHouseholderReflectors",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "tpu_custom_call",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "mhlo.topk",
        "mhlo.erf",
        "LayoutConstraint",
        "MoveToHost",
        "MoveToDevice",
        "TopK",
    )
)
"""Those that XLA for TPU handles: what JAX emits for it (``jax/_src/export/_export.py``, jax
0.12.0.1), and what XLA's Shardy and StableHLO conversions make and read again."""

_DIALECTS = ("stablehlo", "sdy", "func", "chlo", "mhlo", "arith", "shape", "tensor", "builtin")


@dataclass(frozen=True, slots=True)
class Module:
    """What is known of a module.

    Attributes:
        name: Of the module.
        num_partitions: As it says; None where it says nothing.
        mesh: The mesh of its shardings, over partition ids; None without Shardy's shardings.
        arguments: Of main.
        results: Of main.
        from_reactant: Whether Reactant wrote it, by its name.
    """

    name: str
    num_partitions: int | None
    mesh: Mesh | None
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    from_reactant: bool


def read_module(text: str) -> Module:
    """What a module says of itself.

    Raises:
        InvalidArgumentError: It is no StableHLO text, has dynamic shapes, or uses operations
            that are not StableHLO.
    """
    main = re.search(r"\bfunc\.func (?:public )?@\"?main\"?\(", text)
    if main is None:
        start = "MLIR bytecode" if text.startswith("ML\ufffd") else repr(text[:40])
        raise InvalidArgumentError(
            "a StableHLO module as text is needed, with a function @main; this one begins with "
            f"{start}. In JAX: jax.jit(f).lower(...).as_text(); in Reactant: @code_hlo"
        )
    _check_shapes(text)
    _check_operations(text)
    name = re.search(r"\bmodule @\"?([^\"\s{]+)", text)
    partitions = re.search(r"mhlo\.num_partitions = (\d+)", text)
    end = closing(text, main.end())
    arguments = tuple(tensor(part) for part in parts(text[main.end() : end]))
    used = [found[1] for found in SDY.finditer(text[main.end() : end])]
    return Module(
        name=name[1] if name else "module",
        num_partitions=int(partitions[1]) if partitions else None,
        mesh=mesh(text, used[0] if used else None),
        arguments=arguments,
        results=tuple(results(text, end + 1)),
        from_reactant=bool(name and name[1].startswith("reactant_")),
    )


def _check_shapes(text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.search(r"tensor<[^>\"]*\?[^>\"]*>", line):
            raise InvalidArgumentError(
                f"line {number} of the module has the dynamic shape {found[0]}; a TPU program's "
                "shapes are fixed: export it for the shapes that it will run with"
            )


def _check_operations(text: str) -> None:
    """Names the operations that no compiler knows without its own dialect."""
    foreign = {
        f"{dialect}.{name}"
        for dialect, name in re.findall(
            r"^\s*(?:%[\w:, #%]+ = )?\"?([a-z_]\w*)\.([a-z]\w*)", text, re.M
        )
        if dialect not in _DIALECTS
    }
    if foreign:
        raise InvalidArgumentError(
            f"the module uses operations that are not StableHLO: {', '.join(sorted(foreign))}; "
            "take its text after they are lowered (Reactant: the default of @code_hlo)"
        )


def unknown_custom_calls(text: str) -> tuple[str, ...]:
    """The custom calls of a module that are none of `KNOWN_CUSTOM_CALLS`."""
    named = re.findall(r"custom_call @\"?([\w.$\-]+)\"?", text)
    called = {*named, *re.findall(r'call_target_name = "([^"]+)"', text)}
    return tuple(sorted(called - KNOWN_CUSTOM_CALLS))


def reverse(tensor: Tensor) -> Tensor:
    """The Julia array of a tensor of Reactant's: the same with its dimensions reversed."""
    axes = None if tensor.axes is None else tensor.axes[::-1]
    return Tensor(tensor.shape[::-1], tensor.dtype, axes, tensor.mhlo)


def mhlo_cuts(text: str, ndim: int) -> tuple[int, ...] | None:
    """Into how many blocks an ``mhlo.sharding`` cuts each dimension; None for other forms."""
    if text in ("{replicated}", "{maximal device=0}"):
        return (1,) * ndim
    found = re.match(r"\{devices=\[([\d,]+)\]", text)
    if found is None:
        return None
    sizes = tuple(int(n) for n in found[1].split(","))
    return tuple(itertools.islice(sizes, ndim)) if len(sizes) >= ndim else None
