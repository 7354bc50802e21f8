"""What a StableHLO module says of itself: arguments, results, shardings, mesh, custom calls.

Read from its text, before any compiler sees it: libtpu 0.0.50 ends its process on dynamic shapes.

The text forms are those of the StableHLO specification, of Shardy's ``sdy`` dialect and of XLA's
``mhlo.sharding``; attributes of other dialects, such as Reactant's ``enzymexla``, may stand beside.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..._core.mesh import Mesh
from ..._errors import InvalidArgumentError, ShardingError

_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(complex<\w+>|[\w.]+)")
_DTYPES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_MESH = re.compile(r'sdy\.mesh @"?([\w.\-]+)"? = <\[([^\]]*)\](?:, device_ids=\[([^\]]*)\])?>')
SDY = re.compile(r'sdy\.sharding = #sdy\.sharding<@"?([\w.\-]+)"?, \[')
_MHLO = re.compile(r'mhlo\.sharding = "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Tensor:
    """An argument or result of the module's main function.

    Attributes:
        shape: As the module has it.
        dtype: Element type, by this package's name where it has one.
        axes: For each dimension the axes that cut it, a part of an axis as Shardy writes it,
            ``x:(1)2``; None where nothing is said.
        mhlo: The text of an ``mhlo.sharding``, else "".
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[tuple[str, ...], ...] | None
    mhlo: str = ""


def closing(text: str, start: int) -> int:
    """Where the bracket closes that stands open at `start`; strings do not count."""
    depth, quoted = 1, False
    for position in range(start, len(text)):
        character = text[position]
        if character == '"' and text[position - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (character in "([{") - (character in ")]}")
            if depth == 0:
                return position
    raise InvalidArgumentError("the StableHLO module does not parse: it ends within @main's head")


def parts(text: str) -> Iterator[str]:
    """The parts between commas, where no bracket and no string is open."""
    depth, quoted, start = 0, False, 0
    for position, character in enumerate(text):
        if character == '"' and text[position - 1] != "\\":
            quoted = not quoted
        elif not quoted and character in "([{<":
            depth += 1
        elif not quoted and character in ")]}>" and text[position - 1] != "-":
            depth -= 1
        elif not quoted and character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if text[start:].strip():
        yield text[start:]


def results(text: str, start: int) -> Iterator[Tensor]:
    """The results of a function whose arguments end before `start`."""
    arrow = re.compile(r"\s*->\s*(\()?").match(text, start)
    if arrow is None:
        return
    if arrow[1]:
        yield from map(tensor, parts(text[arrow.end() : closing(text, arrow.end())]))
    else:
        yield tensor(text[arrow.end() : text.index("{", arrow.end())])


def tensor(text: str) -> Tensor:
    """An argument or result from its type and attributes."""
    found = _TENSOR.search(text)
    if found is None:
        raise InvalidArgumentError(
            f"main has an argument or result that is no tensor: {text.strip()[:60]}; a program "
            "takes and gives arrays alone"
        )
    shape = tuple(int(n) for n in found[1].split("x") if n)
    mhlo, sdy = _MHLO.search(text), SDY.search(text)
    axes = None if sdy is None else _axes(text[sdy.end() : closing(text, sdy.end())])
    return Tensor(shape, _dtype(found[2]), axes, mhlo[1] if mhlo else "")


def _axes(text: str) -> tuple[tuple[str, ...], ...]:
    """Per dimension: `{"x", "y"}`; "?" (it may be cut further) and priorities are left out."""
    entries = re.findall(r"\{([^}]*)\}", text)
    return tuple(
        tuple(name + part for name, part in re.findall(r'"([^"]+)"(:\(\d+\)\d+)?', entry))
        for entry in entries
    )


def axis_size(mesh: Mesh, axis: str) -> int:
    """Devices along an axis, or along the part of it that ``x:(1)2`` says."""
    part = re.search(r":\(\d+\)(\d+)$", axis)
    return int(part[1]) if part else mesh.axis_size(axis)


def _dtype(text: str) -> str:
    if text in _DTYPES:
        return _DTYPES[text]
    if number := re.fullmatch(r"(u|s)?i(\d+)", text):
        return f"{'u' if number[1] == 'u' else ''}int{number[2]}"
    if number := re.fullmatch(r"(b?)f(\d+)", text):
        return f"{'b' if number[1] else ''}float{number[2]}"
    eight = re.fullmatch(r"f8(E\w+)", text)
    return f"float8_{eight[1].lower()}" if eight else text


def mesh(text: str, wanted: str | None) -> Mesh | None:
    """The mesh of that name, or the only one."""
    found = {name: (axes, ids) for name, axes, ids in _MESH.findall(text)}
    if not found:
        return None
    axes, ids = found[wanted] if wanted in found else next(iter(found.values()))
    pairs = re.findall(r'"([^"]+)"=(\d+)', axes)
    if not pairs:
        return None
    names, sizes = zip(*pairs, strict=True)
    places = [int(i) for i in ids.split(",")] if ids.strip() else None
    try:
        return Mesh([int(size) for size in sizes], names, places)
    except ShardingError as error:
        raise ShardingError(f"the module's sdy.mesh <[{axes}]>: {error}") from None


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
