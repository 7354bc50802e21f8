"""Mutants: each is one fault of a broken runtime.

If possible, a mutant changes the computation itself (the mesh that the runtime gets, the arguments
of the call); otherwise it changes the blocks that the runtime returns.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.arrays.program import load
from pyreactant.arrays.runtimes.runtime import current
from pyreactant.check.records.verdict import Kind

from .broken import Blocks, Call, Mutant, NotApplicableError
from .changes import (
    all_blocks,
    axes_swapped,
    column_major,
    column_major_bytes,
    half_of_devices,
    half_written,
    neighbour,
    not_a_number,
    one_block,
    poison,
    random_bits,
    rotated,
    shifted,
    short_values,
    transposed,
)


class Altered(Mutant):
    """Change the blocks that the runtime returns.

    Args:
        name: Name in reports.
        kind: Expected diagnosis; None if the check must pass.
        change: Maps the right blocks of one output to the returned blocks.
    """

    def __init__(self, name: str, kind: Kind | None, change: Callable[[Blocks], Blocks]) -> None:
        super().__init__(name)
        self.kind = kind  # type: ignore[misc]
        self._change = change

    def blocks(self, call: Call) -> list[Blocks]:
        return [self._change(blocks) for blocks in call.right()]


class OtherMesh(Mutant):
    """Put the outputs on a mesh with another order of devices, or with fewer devices.

    Args:
        name: Name in reports.
        kind: Expected diagnosis.
        change: Returns the mesh that the real runtime gets.
        honest: Whether the arrays report that mesh.
    """

    def __init__(
        self, name: str, kind: Kind, change: Callable[[pr.Mesh], pr.Mesh], *, honest: bool
    ) -> None:
        super().__init__(name)
        self.kind = kind  # type: ignore[misc]
        self.honest = honest
        self._change = change

    def mesh(self, mesh: pr.Mesh) -> pr.Mesh:
        return self._change(mesh)


class Partial(Mutant):
    """Each device sums over its own part of the operands only."""

    kind = Kind.MISSING_REDUCTION

    def blocks(self, call: Call) -> list[Blocks]:
        found: list[Blocks] = []
        for output, sharding in enumerate(call.shardings):
            contracted = call.case.contracted(output)
            cut = [
                (number, dimension)
                for number, dimension in contracted
                if call.args[number].sharding.cuts(call.args[number].ndim)[dimension] > 1
            ]
            if not cut:
                raise NotApplicableError
            blocks: Blocks = {}
            for position in sharding.mesh.device_ids:
                alone = self._alone(call, cut[:1], position)[output]
                blocks |= {position: alone[position]} if position in alone else {}
            found.append(blocks)
        return found

    def _alone(self, call: Call, cut: Sequence[tuple[int, int]], position: int) -> list[Blocks]:
        args = call.whole()
        for number, dimension in cut:
            arg = call.args[number]
            own = arg.sharding.devices_indices_map(arg.shape)[position]
            kept = np.zeros_like(args[number])
            part = tuple(s if d == dimension else slice(None) for d, s in enumerate(own))
            kept[part] = args[number][part]
            args[number] = kept
        return call.again(args)


class Factor(Mutant):
    """A sum over devices is omitted or repeated, with equal parts on all devices."""

    kind = Kind.MISSING_REDUCTION

    def __init__(self, name: str, *, twice: bool) -> None:
        super().__init__(name)
        self._twice = twice

    def blocks(self, call: Call) -> list[Blocks]:
        found = []
        for output, blocks in enumerate(call.right()):
            axes = {
                axis
                for number, dimension in call.case.contracted(output)
                for axis in call.args[number].sharding.axes(call.args[number].ndim)[dimension]
            }
            mesh = call.shardings[output].mesh
            factor = math.prod(mesh.axis_size(axis) for axis in axes)
            if factor == 1:
                raise NotApplicableError
            found.append({p: self._scaled(block, factor) for p, block in blocks.items()})
        return found

    def _scaled(self, block: np.ndarray, factor: int) -> np.ndarray:
        if self._twice:
            return (block * factor).astype(block.dtype)
        if block.dtype.kind in "iu":
            raise NotApplicableError  # sums of equal parts are divisible
        return (block / factor).astype(block.dtype)


class OwnPart(Mutant):
    """Each device computes from its own part of a dimension alone."""

    kind = Kind.MISSING_REDUCTION

    def blocks(self, call: Call) -> list[Blocks]:
        body = jax.jit(partial(load(call.program, "jax"), **call.static))
        args, found = call.whole(), call.right()
        for output, sharding in enumerate(call.shardings):
            shape = call.shapes[output]
            cuts = sharding.cuts(len(shape))
            same = [arg.shape == shape for arg in args]
            if not any(same) or all(cut == 1 for cut in cuts):
                raise NotApplicableError
            dimension = max(d for d, cut in enumerate(cuts) if cut > 1)
            for position, index in sharding.devices_indices_map(shape).items():
                if position not in found[output]:
                    continue
                part = tuple(s if d == dimension else slice(None) for d, s in enumerate(index))
                own = [arg[part] if like else arg for arg, like in zip(args, same, strict=True)]
                try:
                    result = body(*own)
                except Exception:
                    raise NotApplicableError from None
                result = result[output] if isinstance(result, (tuple, list)) else result
                inside = tuple(slice(0, None) if d == dimension else s for d, s in enumerate(index))
                block = np.array(result[inside])
                if block.shape != found[output][position].shape:
                    raise NotApplicableError
                found[output][position] = block
        return found


class ShortOperands(Mutant):
    """Operands are rounded to bfloat16 before the program runs."""

    kind = Kind.LOWER_PRECISION

    def blocks(self, call: Call) -> list[Blocks]:
        args = call.whole()
        if not args:
            raise NotApplicableError
        short = as_dtype("bfloat16")

        def rounds(arg: np.ndarray) -> bool:
            return arg.dtype.kind == "f" and arg.itemsize > short.itemsize

        return call.again(
            [arg.astype(short).astype(arg.dtype) if rounds(arg) else arg for arg in args]
        )


class Stale(Mutant):
    """A device returns what it returned the call before.

    Args:
        name: Name in reports.
        every: Whether all devices do so.
    """

    kind = Kind.UNINITIALISED

    def __init__(self, name: str, *, every: bool) -> None:
        super().__init__(name)
        self._every = every

    def blocks(self, call: Call) -> list[Blocks]:
        found = call.right()
        for output, before in enumerate(call.previous or []):
            for position in list(found[output])[: None if self._every else 1]:
                found[output][position] = before[position]
        return found


class Halo(Mutant):
    """Data that a device takes from its neighbours is one position off.

    Args:
        name: Name in reports.
        by: Offset in elements, 1 or -1.
    """

    kind = Kind.HALO

    def __init__(self, name: str, by: int) -> None:
        super().__init__(name)
        self._by = by

    def blocks(self, call: Call) -> list[Blocks]:
        found = call.right()
        shapes = tuple(arg.shape for arg in call.args)
        for output, sharding in enumerate(call.shardings):
            shape = call.shapes[output]
            if shapes != (shape,):
                raise NotApplicableError
            for position, index in sharding.devices_indices_map(shape).items():
                (need,) = call.case.needs(output, index, shapes)
                beside = [d for d, (n, i) in enumerate(zip(need, index, strict=True)) if n != i]
                if not beside:
                    raise NotApplicableError
                whole = call.whole()[0]
                moved = np.take(
                    whole,
                    np.clip(np.arange(shape[beside[0]]) + self._by, 0, shape[beside[0]] - 1),
                    axis=beside[0],
                )
                own = tuple(s if d == beside[0] else slice(None) for d, s in enumerate(index))
                moved[own] = whole[own]
                there = call.again([moved])[output]
                found[output] |= {position: there[position]} if position in there else {}
        return found


class OnlyOn(Mutant):
    """Another mutant, on one process only."""

    def __init__(self, process: int, mutant: Altered, kind: Kind) -> None:
        super().__init__(f"{mutant.name}, on process {process} only")
        self.kind = kind  # type: ignore[misc]
        self._process = process
        self._mutant = mutant

    def blocks(self, call: Call) -> list[Blocks] | None:
        if current().group.process_index != self._process:
            return None
        return self._mutant.blocks(call)


def mutants() -> list[Mutant]:
    """All mutants for one process; the last must pass."""
    swap, column, rotate = Kind.AXES_SWAPPED, Kind.COLUMN_MAJOR, Kind.WRONG_DEVICES
    memory, short = Kind.UNINITIALISED, Kind.LOWER_PRECISION
    return [
        OtherMesh("mesh axes swapped, and says so", swap, axes_swapped, honest=True),
        OtherMesh("mesh axes swapped", swap, axes_swapped, honest=False),
        OtherMesh("column-major devices, and says so", column, column_major, honest=True),
        OtherMesh("column-major devices", column, column_major, honest=False),
        OtherMesh("right values on the wrong devices", rotate, rotated, honest=True),
        OtherMesh("devices rotated", Kind.PERMUTED, rotated, honest=False),
        OtherMesh("fewer devices", Kind.FEWER_DEVICES, half_of_devices, honest=True),
        Altered("one block transposed", Kind.TRANSPOSED, one_block(transposed)),
        Altered("all blocks transposed", Kind.TRANSPOSED, all_blocks(transposed)),
        Altered("column-major bytes", Kind.TRANSPOSED, all_blocks(column_major_bytes)),
        Partial("reduction dropped"),
        Factor("reduction dropped, equal parts", twice=False),
        Factor("reduction done twice", twice=True),
        OwnPart("computed from the own part alone"),
        Altered("bfloat16 results", short, all_blocks(short_values("bfloat16"))),
        Altered("bfloat16 results of one device", short, one_block(short_values("bfloat16"))),
        Altered("float16 results", short, all_blocks(short_values("float16"))),
        Altered("float32 results", short, all_blocks(short_values("float32"))),
        ShortOperands("bfloat16 operands"),
        Altered("block of NaN", memory, one_block(not_a_number)),
        Altered("block of zeros", memory, one_block(np.zeros_like)),
        Altered("block of 0xCD bytes", memory, one_block(poison)),
        Altered("block of random bits", memory, one_block(random_bits)),
        Altered("block half written", memory, one_block(half_written)),
        Stale("stale block", every=False),
        Stale("stale result", every=True),
        Halo("halo one too far on", 1),
        Halo("halo one too far back", -1),
        Altered("block shifted", Kind.SHIFTED, one_block(shifted)),
        Altered("one unit in the last place", None, all_blocks(neighbour)),
    ]
