"""Specs and slices that fit a program which does not fit its slice.

A closed-form count of the bytes on a device says which are worth compiling; the compiler decides,
since it may gather more than the count, or less. What is called fitting was compiled. "Nothing
fits" appears only if the blocks alone, which every layout must hold, are too large.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays.matmul import MATMUL, Spec, default_mesh, default_out_spec
from ...arrays.mesh import Mesh
from ...arrays.sharding import NamedSharding
from ...arrays.text import bytes_text, format_mesh, spec_text
from ...base.errors import DeadlineError, PyReactantError
from ...base.slices.topology import Topology, topologies
from ...base.slices.topology import topology as find_topology
from ..request import PreflightRequest, slices_text
from .compile import compile_request
from .report import Preflight

TRIES = 2
"""Most compilations of layouts that should fit by the count."""

SECONDS = 60.0
"""Most seconds for one alternative: libtpu takes minutes for some layouts."""

SHARE = 0.9
"""Share of a device's memory that may be used by the count; the program itself needs some too."""


class Candidate(NamedTuple):
    """A request that may fit, and the command-line options that make it."""

    request: PreflightRequest
    options: str


def alternatives_to(
    request: PreflightRequest, report: Preflight, *, cache: bool, timeout: float
) -> tuple[str, ...]:
    """Texts of what fits instead, the nearest first.

    Args:
        request: The request that does not fit.
        report: Its Preflight.
        cache: As for `preflight`.
        timeout: As for `preflight`.
    """
    if not _is_matmul(request):
        return _by_size(request, report)
    larger = _larger(request.topology)
    largest = [request.topology, *larger][-1]
    if (least := _blocks_alone(request, largest)) > largest.hbm_bytes:
        return (
            f"no specs fit up to {slices_text(largest)}: the blocks alone are {bytes_text(least)} "
            "on each device, however they are sharded",
        )
    tried: list[str] = []

    def fits(candidate: Candidate) -> str | None:
        """The text of a candidate that fits; the reason why another does not is in `tried`."""
        limit = min(timeout, SECONDS)
        try:
            compiled = compile_request(candidate.request, cache=cache, timeout=limit)
        except DeadlineError:
            tried.append(f"{candidate.options}: not compiled within {limit:g} s")
            return None
        except PyReactantError:  # libtpu gives up on some programs, which says nothing of others
            tried.append(f"{candidate.options}: could not be compiled")
            return None
        if compiled.bytes_per_device is None:
            tried.append(f"{candidate.options}: does not fit either")
            return None
        size = bytes_text(compiled.bytes_per_device.total)
        return f"fits with {candidate.options}: {size} on each device, compiled"

    for candidate in itertools.islice(_candidates(request), TRIES):
        if (text := fits(candidate)) is not None:
            return (text,)
    if (text := _smallest_slice(list(_possible(request, larger)), fits)) is not None:
        return (text,)
    if not tried:
        return (f"no layout for slices up to {slices_text(largest)} divides the sizes",)
    return (
        f"nothing that fits was found: {'; '.join(tried)} (other specs up to "
        f"{slices_text(largest)} were not tried)",
    )


def _smallest_slice(
    candidates: Sequence[Candidate], fits: Callable[[Candidate], str | None]
) -> str | None:
    """The text of the smallest of some slices, ascending, that fits, found by bisection."""
    low, high, smallest = 0, len(candidates) - 1, None
    middle = high  # the largest first: if it does not fit, none is likely to
    while low <= high:
        if (text := fits(candidates[middle])) is None:
            low = middle + 1
        else:
            smallest, high = text, middle - 1
        middle = (low + high) // 2
    return smallest


def _candidates(request: PreflightRequest) -> Iterator[Candidate]:
    """Requests that should fit by the count.

    Other specs on the same slice come first, then larger slices with the same specs or others.
    """
    yield from _other_specs(request, request.mesh, SHARE)
    for larger in _larger(request.topology):
        same = _same_specs(request, larger)
        if same is not None and matmul_bytes(same.request) < SHARE * larger.hbm_bytes:
            yield same
        yield from itertools.islice(_specs_there(request, larger, SHARE), 1)


def _possible(request: PreflightRequest, slices: Sequence[Topology]) -> Iterator[Candidate]:
    """One request for each slice whose blocks fit: the same specs, or the best by the count."""
    for larger in slices:
        same = _same_specs(request, larger) or next(_specs_there(request, larger, math.inf), None)
        if same is not None:
            yield same


def _specs_there(request: PreflightRequest, larger: Topology, share: float) -> Iterator[Candidate]:
    """Other specs on another slice."""
    mesh = _stretched(request.mesh, larger.devices) or default_mesh(larger.devices)
    there = dataclasses.replace(request, topology=larger)
    for candidate, options in _other_specs(there, mesh, share):
        yield Candidate(candidate, f"{_slice_options(larger, mesh)} {options}")


def _same_specs(request: PreflightRequest, larger: Topology) -> Candidate | None:
    """The same specs on another slice, if the blocks are equal there and could fit."""
    mesh = _stretched(request.mesh, larger.devices)
    if mesh is None:
        return None
    shardings = (NamedSharding(mesh, sharding.spec) for sharding in _shardings(request))
    candidate = _with(dataclasses.replace(request, topology=larger), *shardings)
    if not _divides(candidate) or _held(candidate) > larger.hbm_bytes:
        return None
    return Candidate(candidate, _slice_options(larger, mesh))


def _slice_options(topology: Topology, mesh: Mesh) -> str:
    return f"--topology {topology.name} --mesh {format_mesh(mesh)}"


def _other_specs(request: PreflightRequest, mesh: Mesh, share: float) -> Iterator[Candidate]:
    """Other specs on a mesh whose blocks fit, the one with the fewest bytes by the count first.

    Args:
        request: Its specs are replaced; the output follows from them.
        mesh: The mesh.
        share: Most of a device's memory that the count may use.
    """
    left, right, requested = _shardings(request)
    usual = NamedSharding(left.mesh, default_out_spec(left, right))
    replaced = requested.axes(2) != usual.axes(2)
    candidates = []
    for x_spec, y_spec in itertools.product(_specs(mesh), repeat=2):
        x, y = NamedSharding(mesh, x_spec), NamedSharding(mesh, y_spec)
        rows, columns = x.axes(2)[0], y.axes(2)[1]
        if set(rows) & set(columns):
            continue
        candidate = _with(request, x, y, NamedSharding(mesh, (rows, columns)))
        if _divides(candidate):
            candidates.append((matmul_bytes(candidate), candidate))
    candidates.sort(key=lambda pair: pair[0])
    hbm = request.topology.hbm_bytes
    for size, candidate in candidates:
        if size < share * hbm and _held(candidate) <= hbm:
            x_text, y_text, out_text = (spec_text(s.axes(2)) for s in _shardings(candidate))
            options = f"--spec {x_text} --y-spec {y_text}"
            yield Candidate(candidate, options + f" --out-spec {out_text}" * replaced)


def _specs(mesh: Mesh) -> list[Spec]:
    """Every assignment of the mesh's axes, in order, to rows, to columns or to neither."""
    specs: list[Spec] = []
    for choice in itertools.product((0, 1, 2), repeat=len(mesh.axis_names)):
        entries = [
            tuple(n for n, c in zip(mesh.axis_names, choice, strict=True) if c == dimension)
            for dimension in (0, 1)
        ]
        specs.append(tuple(entries))
    return specs


def _is_matmul(request: PreflightRequest) -> bool:
    """Whether the program is the product of `matmul_sharded`."""
    one_out = isinstance(request.out_sharding, NamedSharding)
    return request.program == MATMUL and one_out and len(request.arguments) == 2


def _shardings(request: PreflightRequest) -> tuple[NamedSharding, ...]:
    """The shardings of both operands and of the product."""
    return (*(argument.sharding for argument in request.arguments), *request.outs)


def _shapes(request: PreflightRequest) -> tuple[tuple[int, ...], ...]:
    """The shapes of both operands and of the product."""
    (m, k), (_, n) = (argument.shape for argument in request.arguments)
    return (m, k), (k, n), (m, n)


def _with(request: PreflightRequest, *shardings: NamedSharding) -> PreflightRequest:
    """The request with other shardings of both operands and of the product."""
    *operands, out = shardings
    arguments = tuple(
        dataclasses.replace(argument, sharding=sharding)
        for argument, sharding in zip(request.arguments, operands, strict=True)
    )
    return dataclasses.replace(request, arguments=arguments, out_sharding=out)


def _divides(request: PreflightRequest) -> bool:
    """Whether all blocks are equal."""
    return not any(
        size % cut
        for sharding, shape in zip(_shardings(request), _shapes(request), strict=True)
        for size, cut in zip(shape, sharding.cuts(2), strict=True)
    )


def matmul_bytes(request: PreflightRequest) -> int:
    """Bytes on a device for x @ y: the blocks, and the operands if they are gathered whole.

    If both operands are sharded along the inner dimension by the same axes, each device multiplies
    its blocks and the partial products are added up: nothing is gathered. The compiler may need
    less: it may gather a part at a time, and short types.
    """
    (m, k), (_, n), _ = _shapes(request)
    x, y, _ = _shardings(request)
    item = request.arguments[0].dtype.itemsize
    (rows, inner), (inner_y, columns) = x.cuts(2), y.cuts(2)
    if inner > 1 and x.axes(2)[1] == y.axes(2)[0]:
        return _held(request) + item * (m * n // (rows * columns))
    gathered_x = m * k // rows if inner > 1 else 0
    gathered_y = k * n // columns if inner_y > 1 else 0
    return _held(request) + item * (gathered_x + gathered_y)


def _held(request: PreflightRequest) -> int:
    """Bytes of the blocks on a device, which no compiler can avoid."""
    pairs = zip(_shardings(request), _shapes(request), strict=True)
    sizes = (math.prod(shape) // math.prod(sharding.cuts(2)) for sharding, shape in pairs)
    return int(request.arguments[0].dtype.itemsize * sum(sizes))


def _blocks_alone(request: PreflightRequest, topology: Topology) -> int:
    """Bytes on a device if both operands and the product are shared out among all devices."""
    elements = sum(map(math.prod, _shapes(request)))
    return int(request.arguments[0].dtype.itemsize * elements // topology.devices)


def _larger(topology: Topology) -> Sequence[Topology]:
    """Slices of the generation with more chips, one for each number of chips, ascending."""
    names = {
        other.chips: other.name
        for other in topologies()
        if other.generation == topology.generation
        and other.chips > topology.chips // topology.num_slices
    }
    return [find_topology(names[chips], topology.num_slices) for chips in sorted(names)]


def _stretched(mesh: Mesh, devices: int) -> Mesh | None:
    """The mesh for more devices: its smallest axes grow. None if that is impossible."""
    factor, rest = divmod(devices, mesh.size)
    if rest or not mesh.all_devices:
        return None
    shape = list(mesh.shape)
    while factor > 1:
        prime = next(n for n in range(2, factor + 1) if factor % n == 0)
        shape[int(np.argmin(shape))] *= prime
        factor //= prime
    return Mesh(shape, mesh.axis_names)


def _by_size(request: PreflightRequest, report: Preflight) -> tuple[str, ...]:
    """The smallest slice whose total memory would hold the program, by size alone."""
    memory, topology = report.bytes_per_device, request.topology
    needed = report.refused_bytes if memory is None else memory.total
    if needed is None:
        return ()
    larger = _larger(topology)
    for other in larger:
        if needed * topology.devices < SHARE * other.hbm_bytes * other.devices:
            return (f"{other.name} may hold it, by size alone; not compiled",)
    largest = slices_text([topology, *larger][-1])
    return (f"no slice up to {largest} may hold it, by size alone; not compiled",)
