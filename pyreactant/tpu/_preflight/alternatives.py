"""Where a product does not fit a slice: specs and slices that do.

A closed-form count of the bytes on a device ranks what could be; the compiler then says whether
the nearest of it is so. At most `TRIES` compilations: what was not compiled is said to be so.
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
    """What fits instead, in words, the nearest first.

    Args:
        request: What does not fit.
        report: How it does not.
        cache: As for `preflight`.
        timeout: As for `preflight`.
    """
    if not _is_matmul(request):
        return _by_size(request, report)
    for tries, (candidate, words) in enumerate(_candidates(request), 1):
        tried = compile_request(candidate, cache=cache, timeout=timeout)
        if tried.fits and tried.bytes_per_device is not None:
            size = bytes_text(tried.bytes_per_device.total)
            return (f"fits with {words}: {size} on each device, compiled",)
        if tries == TRIES:
            return (f"{words} should fit by a count of the blocks, but does not either",)
    largest = _larger(request.topology)[-1:] or [request.topology]
    return (f"no specs fit, here or up to {largest[0].name}, by a count of the blocks alone",)


def _candidates(request: Request) -> Iterator[tuple[Request, str]]:
    """What should fit: other specs here, then larger slices with these specs or others."""
    yield from _other_specs(request)
    for found in _larger(request.topology):
        mesh = _stretched(request.mesh, found.devices)
        x, y = (NamedSharding(mesh, a.sharding.spec) for a in request.arguments)
        assert isinstance(request.out_sharding, NamedSharding)
        out = NamedSharding(mesh, request.out_sharding.spec)
        there = dataclasses.replace(request, topology=found)
        where = f"--topology {found.name} --mesh {format_mesh(mesh)}"
        if (
            _divides(request, x, y, out)
            and matmul_bytes(x, y, out, request) < 0.9 * found.hbm_bytes
        ):
            yield _with(there, x, y, out), where
        on_mesh = _with(there, x, y, out)
        for candidate, words in itertools.islice(_other_specs(on_mesh), 1):
            yield candidate, f"{where} {words}"


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

    Where both operands are cut alike in the inner dimension and by nothing that cuts the product,
    each device multiplies what it has, and the partial products are added up: nothing is gathered.
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
    """The product, as `matmul_sharded` makes it."""
    one_out = isinstance(request.out_sharding, NamedSharding)
    return request.program == MATMUL and one_out and len(request.arguments) == 2


def _other_specs(request: Request) -> Iterator[tuple[Request, str]]:
    """Other specs on the same mesh that should fit, the one with the least bytes first."""
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
            words = f"--spec {spec_text(x.axes(2))} --y-spec {spec_text(y.axes(2))}"
            yield _with(request, x, y, out), words


def _specs(mesh: Mesh) -> list[Spec]:
    """Every way to give each of the mesh's axes, in order, to rows, to columns or to neither."""
    specs: list[Spec] = []
    for choice in itertools.product((0, 1, 2), repeat=len(mesh.axis_names)):
        entries = [
            tuple(n for n, c in zip(mesh.axis_names, choice, strict=True) if c == dimension)
            for dimension in (0, 1)
        ]
        specs.append(tuple(entries))
    return specs


def _larger(topology: Topology) -> Sequence[Topology]:
    """Slices of the generation with more chips, one of each number, ascending."""
    names = {
        found.chips: found.name
        for found in topologies()
        if found.generation == topology.generation
        and found.chips > topology.chips // topology.num_slices
    }
    return [find_topology(names[chips], topology.num_slices) for chips in sorted(names)]


def _stretched(mesh: Mesh, devices: int) -> Mesh:
    """The mesh for more devices: its smallest axis longer; a square one where that cannot be."""
    factor, rest = divmod(devices, mesh.size)
    if rest or not mesh.all_devices:
        return default_mesh(devices)
    shape = list(mesh.shape)
    shape[int(np.argmin(shape))] *= factor
    return Mesh(shape, mesh.axis_names)


def _by_size(request: Request, report: Preflight) -> tuple[str, ...]:
    """The first slice whose memory in all is so much larger as the program is, not compiled."""
    memory, here = report.bytes_per_device, request.topology
    needed = report.refused_bytes if memory is None else memory.total
    if needed is None:
        return ()
    for found in _larger(here):
        if needed * here.devices < 0.9 * found.hbm_bytes * found.devices:
            return (f"{found.name} may hold it, judged by size alone; not compiled",)
    return ()
