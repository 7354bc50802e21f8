"""Layouts and slices that fit a program which does not fit its slice.

The closed forms of `plan` say which are worth compiling; the compiler decides, since it may need
more memory than they count, or less. What is called fitting was compiled. "No specs fit" appears
only if the blocks alone, which every layout must hold, are too large.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...arrays.matmul import MATMUL
from ...arrays.sharding import NamedSharding
from ...arrays.text import bytes_text
from ...base.errors import DeadlineError, PyReactantError
from ...base.slices.topology import Topology, slices_text, topologies
from ...base.slices.topology import topology as find_topology
from ..layouts.layouts import Layout, product_layouts
from ..layouts.machine import slice_machine
from ..layouts.model import Product
from ..request import PreflightRequest
from .compile import compile_request
from .report import Preflight

TRIES, _SAME_SLICE = 5, 2
"""Most compilations, and most of them for the slice that was asked for."""

SECONDS = 60.0
"""Most seconds for one alternative: libtpu takes minutes for some layouts."""

SHARE = 0.9
"""Share of a device's memory that may be used by the count; the program itself needs some too."""

_KEPT = 16
"""Layouts of a slice among which the one with the least memory is chosen."""


class Candidate(NamedTuple):
    """A request that may fit.

    Attributes:
        request: The request.
        options: The command-line options that make it.
        needed: Bytes on a device by the closed forms: its blocks, and what it receives.
    """

    request: PreflightRequest
    options: str
    needed: float


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
    slices = [request.topology, *_larger(request.topology)]
    largest = slices_text(slices[-1])
    if not _is_matmul(request):
        return _by_size(report, slices)
    product = _product(request)
    least = product.whole_bytes // slices[-1].devices
    if least > slices[-1].hbm_bytes:
        return (
            f"no specs fit up to {largest}: the blocks alone are {bytes_text(least)} on each "
            "device, however they are sharded",
        )
    tried: list[str] = []
    limit = min(timeout, SECONDS)
    for candidate in itertools.islice(_promising(request, slices), TRIES):
        try:
            compiled = compile_request(candidate.request, cache=cache, timeout=limit)
        except DeadlineError:
            tried.append(f"{candidate.options}: not compiled within {limit:g} s")
            continue
        except PyReactantError:  # libtpu gives up on some programs, which says nothing of others
            tried.append(f"{candidate.options}: could not be compiled")
            continue
        if compiled.bytes_per_device is not None:
            size = bytes_text(compiled.bytes_per_device.total)
            return (f"fits with {candidate.options}: {size} on each device, compiled",)
        tried.append(f"{candidate.options}: does not fit either")
    if not tried:
        return (f"no layout for slices up to {largest} divides the sizes",)
    return (
        f"nothing that fits was found: {'; '.join(tried)} (other specs up to {largest} were not "
        "tried)",
    )


def _promising(request: PreflightRequest, slices: Sequence[Topology]) -> Iterator[Candidate]:
    """Candidates that should fit by the count: some on the same slice, then one on each other.

    On the largest slice one is tried whatever the count says.
    """
    for slice_ in slices:
        most = math.inf if slice_ is slices[-1] else SHARE * slice_.hbm_bytes
        fitting = [c for c in _candidates(request, slice_) if c.needed < most]
        yield from fitting[: _SAME_SLICE if slice_ is request.topology else 1]


def _candidates(request: PreflightRequest, slice_: Topology) -> list[Candidate]:
    """The product on a slice, in the layouts whose blocks fit; that with the least bytes first."""
    machine = slice_machine(slice_, request.arguments[0].dtype.name)
    # Without the network, so that the devices are in their plain order.
    machine = dataclasses.replace(machine, topology=None)
    layouts = product_layouts(_product(request), machine, _KEPT).layouts
    candidates = [_candidate(request, slice_, layout) for layout in layouts]
    return sorted(candidates, key=lambda candidate: candidate.needed)


def _candidate(request: PreflightRequest, slice_: Topology, layout: Layout) -> Candidate:
    arguments = tuple(
        dataclasses.replace(argument, sharding=NamedSharding(layout.mesh, spec))
        for argument, spec in zip(request.arguments, layout.specs, strict=True)
    )
    out = NamedSharding(layout.mesh, layout.out_spec or ())
    there = dataclasses.replace(request, topology=slice_, arguments=arguments, out_sharding=out)
    flags = list(layout.flags())
    if slice_ is not request.topology:
        flags = ["--topology", slice_.name, *flags]
    elif layout.mesh == request.mesh:
        del flags[:2]
    needed = layout.memory_bytes + (layout.received_bytes or 0.0)
    return Candidate(there, " ".join(flags), needed)


def _is_matmul(request: PreflightRequest) -> bool:
    """Whether the program is the product of `matmul_sharded`."""
    one_out = isinstance(request.out_sharding, NamedSharding)
    return request.program == MATMUL and one_out and len(request.arguments) == 2


def _product(request: PreflightRequest) -> Product:
    (m, k), (_, n) = (argument.shape for argument in request.arguments)
    return Product(m, k, n, request.arguments[0].dtype.itemsize)


def _larger(topology: Topology) -> Sequence[Topology]:
    """Slices of the generation with more chips, one for each number of chips, ascending."""
    names = {
        other.chips: other.name
        for other in topologies()
        if other.generation == topology.generation
        and other.chips > topology.chips // topology.num_slices
    }
    return [find_topology(names[chips], topology.num_slices) for chips in sorted(names)]


def _by_size(report: Preflight, slices: Sequence[Topology]) -> tuple[str, ...]:
    """The smallest slice whose total memory would hold the program, by size alone."""
    memory = report.bytes_per_device
    needed = report.refused_bytes if memory is None else memory.total
    if needed is None:
        return ()
    for other in slices[1:]:
        if needed * slices[0].devices < SHARE * other.hbm_bytes * other.devices:
            return (f"{other.name} may hold it, by size alone; not compiled",)
    largest = slices_text(slices[-1])
    return (f"no slice up to {largest} may hold it, by size alone; not compiled",)
