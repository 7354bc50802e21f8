"""Specs and slices that fit a program which does not fit its slice.

A closed-form count of the bytes on a device says which are worth compiling; the compiler decides,
since it may gather more than the count, or less. What is called fitting was compiled. "Nothing
fits" appears only if the blocks alone, which every layout must hold, are too large.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...arrays.matmul import MATMUL, Spec, default_mesh, default_out_spec
from ...arrays.mesh import Mesh
from ...arrays.sharding import Aval, NamedSharding
from ...arrays.text import bytes_text, format_mesh, spec_text
from ...base.errors import DeadlineError, PyReactantError
from ...base.slices.topology import Topology, topologies
from ...base.slices.topology import topology as find_topology
from ..request import PreflightRequest
from .compile import compile_request
from .report import Preflight

TRIES = 2
"""Most compilations of layouts that should fit by the count."""

SECONDS = 60.0
"""Most seconds for one alternative: libtpu takes minutes for some layouts."""

SHARE = 0.9
"""Share of a device's memory that may be used by the count; the program itself needs some too."""


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
    slices = [request.topology, *_larger(request.topology)]
    if (least := _blocks_alone(request, slices[-1])) > slices[-1].hbm_bytes:
        return (
            f"no specs fit up to {_name(slices[-1])}: the blocks alone are {bytes_text(least)} on "
            "each device, however they are sharded",
        )
    tried: list[str] = []

    def size_of(candidate: PreflightRequest, options: str) -> int | None:
        limit = min(timeout, SECONDS)
        try:
            found = compile_request(candidate, cache=cache, timeout=limit)
        except DeadlineError:
            tried.append(f"{options}: not compiled within {limit:g} s")
            return None
        except PyReactantError:  # libtpu gives up on some programs, which says nothing of others
            tried.append(f"{options}: could not be compiled")
            return None
        tried.append(f"{options}: does not fit either")
        return found.bytes_per_device.total if found.bytes_per_device else None

    for candidate, options in itertools.islice(_candidates(request), TRIES):
        if (size := size_of(candidate, options)) is not None:
            return (_fits(options, size),)
    smallest = _smallest_slice(list(_possible(request, slices[1:])), size_of)
    if smallest is not None:
        return (smallest,)
    if not tried:
        return (f"no layout for slices up to {_name(slices[-1])} divides the sizes",)
    return (
        f"nothing that fits was found: {'; '.join(tried)} (other specs up to {_name(slices[-1])} "
        "were not tried)",
    )


def _fits(options: str, size: int) -> str:
    return f"fits with {options}: {bytes_text(size)} on each device, compiled"


def _name(found: Topology) -> str:
    return f"{found.name}{f' x {found.num_slices} slices' if found.num_slices > 1 else ''}"


def _smallest_slice(
    candidates: list[tuple[PreflightRequest, str]],
    size_of: Callable[[PreflightRequest, str], int | None],
) -> str | None:
    """The text of the smallest of some slices, ascending, that fits, found by bisection."""
    low, high, found = 0, len(candidates) - 1, None
    middle = high  # the largest first: if it does not fit, none is likely to
    while low <= high:
        size = size_of(*candidates[middle])
        if size is None:
            low = middle + 1
        else:
            found, high = _fits(candidates[middle][1], size), middle - 1
        middle = (low + high) // 2
    return found


def _candidates(request: PreflightRequest) -> Iterator[tuple[PreflightRequest, str]]:
    """Requests that should fit by the count, each with its command-line options.

    Other specs on the same slice come first, then larger slices with the same specs or others.
    """
    yield from _other_specs(request, request.mesh, SHARE)
    for larger in _larger(request.topology):
        for candidate, where in _same_specs(request, [larger]):
            if _count(candidate) < SHARE * larger.hbm_bytes:
                yield candidate, where
        yield from itertools.islice(_specs_there(request, larger, SHARE), 1)


def _possible(
    request: PreflightRequest, slices: Sequence[Topology]
) -> Iterator[tuple[PreflightRequest, str]]:
    """One request for each slice whose blocks fit: the same specs, or the best by the count."""
    for larger in slices:
        same = _same_specs(request, [larger])
        others = _specs_there(request, larger, math.inf)
        yield from itertools.islice(itertools.chain(same, others), 1)


def _specs_there(
    request: PreflightRequest, larger: Topology, share: float
) -> Iterator[tuple[PreflightRequest, str]]:
    """Other specs on another slice."""
    mesh = _stretched(request.mesh, larger.devices) or default_mesh(larger.devices)
    where = f"--topology {larger.name} --mesh {format_mesh(mesh)}"
    there = dataclasses.replace(request, topology=larger)
    for candidate, options in _other_specs(there, mesh, share):
        yield candidate, f"{where} {options}"


def _same_specs(
    request: PreflightRequest, slices: Sequence[Topology]
) -> Iterator[tuple[PreflightRequest, str]]:
    """The same specs on other slices, where their blocks are equal and could fit."""
    for larger in slices:
        mesh = _stretched(request.mesh, larger.devices)
        if mesh is None:
            continue
        x, y = (NamedSharding(mesh, a.sharding.spec) for a in request.arguments)
        assert isinstance(request.out_sharding, NamedSharding)
        out = NamedSharding(mesh, request.out_sharding.spec)
        there = dataclasses.replace(request, topology=larger)
        if _divides(request, x, y, out) and _held(x, y, out, request) <= larger.hbm_bytes:
            yield _with(there, x, y, out), f"--topology {larger.name} --mesh {format_mesh(mesh)}"


def _with(
    request: PreflightRequest, x: NamedSharding, y: NamedSharding, out: NamedSharding
) -> PreflightRequest:
    left, right = request.arguments
    arguments = (Aval(left.shape, left.dtype, x), Aval(right.shape, right.dtype, y))
    return dataclasses.replace(request, arguments=arguments, out_sharding=out)


def _divides(
    request: PreflightRequest, x: NamedSharding, y: NamedSharding, out: NamedSharding
) -> bool:
    (m, k), (_, n) = request.arguments[0].shape, request.arguments[1].shape
    cuts = ((x, (m, k)), (y, (k, n)), (out, (m, n)))
    return not any(
        size % cut
        for sharding, shape in cuts
        for size, cut in zip(shape, sharding.cuts(2), strict=True)
    )


def matmul_bytes(
    x: NamedSharding, y: NamedSharding, out: NamedSharding, request: PreflightRequest
) -> int:
    """Bytes on a device for x @ y: the blocks, and the operands if they are gathered whole.

    If both operands are sharded along the inner dimension by the same axes, each device multiplies
    its blocks and the partial products are added up: nothing is gathered. The compiler may need
    less: it may gather a part at a time, and short types.
    """
    (m, k), (_, n) = request.arguments[0].shape, request.arguments[1].shape
    item = request.arguments[0].dtype.itemsize
    (rows, inner), (inner_y, columns) = x.cuts(2), y.cuts(2)
    blocks = _held(x, y, out, request)
    if inner > 1 and x.axes(2)[1] == y.axes(2)[0]:
        return blocks + item * (m * n // (rows * columns))
    gathered_x = m * k // rows if inner > 1 else 0
    gathered_y = k * n // columns if inner_y > 1 else 0
    return blocks + item * (gathered_x + gathered_y)


def _count(request: PreflightRequest) -> int:
    x, y = (argument.sharding for argument in request.arguments)
    assert isinstance(request.out_sharding, NamedSharding)
    return matmul_bytes(x, y, request.out_sharding, request)


def _held(x: NamedSharding, y: NamedSharding, out: NamedSharding, request: PreflightRequest) -> int:
    """Bytes of the blocks on a device, which no compiler can avoid."""
    (m, k), (_, n) = request.arguments[0].shape, request.arguments[1].shape
    sizes = ((m * k, x), (k * n, y), (m * n, out))
    item = request.arguments[0].dtype.itemsize
    return item * sum(size // math.prod(sharding.cuts(2)) for size, sharding in sizes)


def _blocks_alone(request: PreflightRequest, topology: Topology) -> int:
    """Bytes on a device if both operands and the product are shared out among all devices."""
    (m, k), (_, n) = request.arguments[0].shape, request.arguments[1].shape
    return request.arguments[0].dtype.itemsize * (m * k + k * n + m * n) // topology.devices


def _is_matmul(request: PreflightRequest) -> bool:
    """Whether the program is the product of `matmul_sharded`."""
    one_out = isinstance(request.out_sharding, NamedSharding)
    return request.program == MATMUL and one_out and len(request.arguments) == 2


def _other_specs(
    request: PreflightRequest, mesh: Mesh, share: float
) -> Iterator[tuple[PreflightRequest, str]]:
    """Other specs on a mesh whose blocks fit, the one with the fewest bytes by the count first.

    Args:
        request: Its specs are replaced; the output follows from them.
        mesh: The mesh.
        share: Most of a device's memory that the count may use.
    """
    found, hbm = [], request.topology.hbm_bytes
    left, right = (argument.sharding for argument in request.arguments)
    assert isinstance(request.out_sharding, NamedSharding)
    usual = NamedSharding(left.mesh, default_out_spec(left, right))
    replaced = request.out_sharding.axes(2) != usual.axes(2)
    for x_spec, y_spec in itertools.product(_specs(mesh), repeat=2):
        x, y = NamedSharding(mesh, x_spec), NamedSharding(mesh, y_spec)
        rows, columns = x.axes(2)[0], y.axes(2)[1]
        if set(rows) & set(columns):
            continue
        out = NamedSharding(mesh, (rows, columns))
        if _divides(request, x, y, out):
            found.append((matmul_bytes(x, y, out, request), x, y, out))
    found.sort(key=lambda row: row[0])
    for size, x, y, out in found:
        if size < share * hbm and _held(x, y, out, request) <= hbm:
            options = f"--spec {spec_text(x.axes(2))} --y-spec {spec_text(y.axes(2))}"
            options += f" --out-spec {spec_text(out.axes(2))}" if replaced else ""
            yield _with(request, x, y, out), options


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


def _larger(topology: Topology) -> Sequence[Topology]:
    """Slices of the generation with more chips, one for each number of chips, ascending."""
    names = {
        found.chips: found.name
        for found in topologies()
        if found.generation == topology.generation
        and found.chips > topology.chips // topology.num_slices
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
    for larger in _larger(topology):
        if needed * topology.devices < 0.9 * larger.hbm_bytes * larger.devices:
            return (f"{larger.name} may hold it, by size alone; not compiled",)
    largest = [topology, *_larger(topology)][-1]
    return (f"no slice up to {_name(largest)} may hold it, by size alone; not compiled",)
