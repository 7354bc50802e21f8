"""Specs and slices that fit a program which does not fit its slice.

Candidates are ranked by a closed-form count of the bytes on a device, and the compiler confirms the
nearest ones, in at most `TRIES` compilations. The text of an alternative tells whether it was
compiled.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..._core.array import Aval
from ..._core.mesh import Mesh
from ..._core.sharding import NamedSharding
from ..._core.text import bytes_text, format_mesh, spec_text
from ..._matmul.matmul import MATMUL, Spec, default_mesh
from .._request import Request
from .._topology import Topology, topologies
from .._topology import topology as find_topology
from .compile import compile_request
from .report import Preflight

TRIES = 2


def alternatives_to(
    request: Request, report: Preflight, *, cache: bool, timeout: float
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
    for tries, (candidate, options) in enumerate(_candidates(request), 1):
        compiled = compile_request(candidate, cache=cache, timeout=timeout)
        if compiled.fits and compiled.bytes_per_device is not None:
            size = bytes_text(compiled.bytes_per_device.total)
            return (f"fits with {options}: {size} on each device, compiled",)
        if tries == TRIES:
            return (f"{options} should fit by the size of the blocks, but does not fit either",)
    largest = _larger(request.topology)[-1:] or [request.topology]
    return (f"no specs fit up to {largest[0].name}, by the size of the blocks; not compiled",)


def _candidates(request: Request) -> Iterator[tuple[Request, str]]:
    """Requests that should fit, each with its command-line options.

    Other specs on the same slice come first, then larger slices with the same specs or others.
    """
    yield from _other_specs(request)
    for larger in _larger(request.topology):
        mesh = _stretched(request.mesh, larger.devices)
        x, y = (NamedSharding(mesh, a.sharding.spec) for a in request.arguments)
        assert isinstance(request.out_sharding, NamedSharding)
        out = NamedSharding(mesh, request.out_sharding.spec)
        same_specs = _with(dataclasses.replace(request, topology=larger), x, y, out)
        where = f"--topology {larger.name} --mesh {format_mesh(mesh)}"
        if (
            _divides(request, x, y, out)
            and matmul_bytes(x, y, out, request) < 0.9 * larger.hbm_bytes
        ):
            yield same_specs, where
        for candidate, options in itertools.islice(_other_specs(same_specs), 1):
            yield candidate, f"{where} {options}"


def _with(request: Request, x: NamedSharding, y: NamedSharding, out: NamedSharding) -> Request:
    left, right = request.arguments
    arguments = (Aval(left.shape, left.dtype, x), Aval(right.shape, right.dtype, y))
    return dataclasses.replace(request, arguments=arguments, out_sharding=out)


def _divides(request: Request, x: NamedSharding, y: NamedSharding, out: NamedSharding) -> bool:
    (m, k), (_, n) = request.arguments[0].shape, request.arguments[1].shape
    cuts = ((x, (m, k)), (y, (k, n)), (out, (m, n)))
    return not any(
        size % cut
        for sharding, shape in cuts
        for size, cut in zip(shape, sharding.cuts(2), strict=True)
    )


def matmul_bytes(x: NamedSharding, y: NamedSharding, out: NamedSharding, request: Request) -> int:
    """Least bytes on a device for x @ y: the blocks, and the operands that are gathered.

    If both operands are sharded along the inner dimension by the same axes, each device multiplies
    its blocks and the partial products are added up: nothing is gathered.
    """
    (m, k), (_, n) = request.arguments[0].shape, request.arguments[1].shape
    item = request.arguments[0].dtype.itemsize
    (rows, inner), (inner_y, columns) = x.cuts(2), y.cuts(2)
    blocks = [(m, k, rows * inner), (k, n, inner_y * columns), (m, n, math.prod(out.cuts(2)))]
    total = sum(a * b // cut for a, b, cut in blocks)
    if inner > 1 and x.axes(2)[1] == y.axes(2)[0]:
        return item * (total + m * n // (rows * columns))
    gathered_x = m * k // rows if inner > 1 else 0
    gathered_y = k * n // columns if inner_y > 1 else 0
    return item * (total + gathered_x + gathered_y)


def _is_matmul(request: Request) -> bool:
    """Whether the program is the product of `matmul_sharded`."""
    one_out = isinstance(request.out_sharding, NamedSharding)
    return request.program == MATMUL and one_out and len(request.arguments) == 2


def _other_specs(request: Request) -> Iterator[tuple[Request, str]]:
    """Other specs on the same mesh that should fit, the one with the fewest bytes first."""
    mesh, found = request.mesh, []
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
        if size < 0.9 * request.topology.hbm_bytes:
            options = f"--spec {spec_text(x.axes(2))} --y-spec {spec_text(y.axes(2))}"
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


def _stretched(mesh: Mesh, devices: int) -> Mesh:
    """The mesh for more devices: its smallest axis grows; a square mesh if that is impossible."""
    factor, rest = divmod(devices, mesh.size)
    if rest or not mesh.all_devices:
        return default_mesh(devices)
    shape = list(mesh.shape)
    shape[int(np.argmin(shape))] *= factor
    return Mesh(shape, mesh.axis_names)


def _by_size(request: Request, report: Preflight) -> tuple[str, ...]:
    """The smallest slice whose total memory would hold the program, by size alone."""
    memory, topology = report.bytes_per_device, request.topology
    needed = report.refused_bytes if memory is None else memory.total
    if needed is None:
        return ()
    for larger in _larger(topology):
        if needed * topology.devices < 0.9 * larger.hbm_bytes * larger.devices:
            return (f"{larger.name} may hold it, by size alone; not compiled",)
    return ()
