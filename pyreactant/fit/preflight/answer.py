"""A Preflight from the compiler's answer: mesh axes are named, and estimates computed."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.mesh import Mesh
from ...arrays.sharding import Aval, NamedSharding, as_axes, as_spec
from ...arrays.text import spec_text
from ...base.slices.topology import Topology
from ..hlo.collective import Collective, name_axes, sent_bytes
from ..hlo.parse import collectives
from ..request import peak_of
from .report import DeviceBytes, Operand, Preflight, Roofline


def build(
    answer: Mapping[str, Any],
    *,
    program: str,
    source: str,
    topology: Topology,
    mesh: Mesh | None,
    positions: Sequence[int],
    arguments: tuple[Operand, ...],
    outputs: tuple[Operand, ...],
    versions: Mapping[str, str],
    cached: bool,
    notes: tuple[str, ...] = (),
) -> Preflight:
    """A Preflight from a child's answer.

    Args:
        answer: The answer of `ask`: "hlo", "bytes" and "cost", or "refusal".
        program, source, topology, mesh, arguments, outputs, versions, cached, notes: As the
            attributes of Preflight.
        positions: Row-major position in the mesh of each of the program's partitions.
    """
    memory = None if "refusal" in answer else DeviceBytes(**answer["bytes"])
    cost, hlo = answer.get("cost", {}), answer.get("hlo", "")
    exchanges = _collectives(hlo, topology, mesh, positions)
    flops, accessed = _known(cost, "flops"), _known(cost, "bytes accessed")
    return Preflight(
        program=program,
        source=source,
        topology=topology,
        mesh=mesh,
        arguments=arguments,
        outputs=outputs,
        fits=memory is not None,  # the compiler refuses a program that does not fit
        refusal=answer.get("refusal", ""),
        bytes_per_device=memory,
        collectives=exchanges,
        seconds=_known(cost, "optimal_seconds"),
        flops=flops,
        bytes_accessed=accessed,
        roofline=_roofline(topology, arguments, exchanges, flops, accessed) if memory else None,
        notes=(*notes, *_notes(exchanges, hlo), *_precision_notes(arguments, hlo)),
        versions=versions,
        compile_seconds=answer["compile_seconds"],
        compiler_bytes=answer["compiler_bytes"],
        cached=cached,
        hlo=hlo,
    )


def operands(avals: Sequence[Aval]) -> tuple[Operand, ...]:
    """Arguments, as a report shows them."""
    return tuple(_operand(a.shape, a.dtype.name, a.sharding) for a in avals)


def _operand(shape: tuple[int, ...], dtype: str, sharding: NamedSharding) -> Operand:
    spec = spec_text(sharding.axes(len(shape)))
    return Operand(shape, dtype, spec, sharding.shard_shape(shape))


def outputs_of(answer: Mapping[str, Any], mesh: Mesh) -> tuple[Operand, ...]:
    """Outputs as the compiler placed them."""
    return tuple(_output(out, mesh) for out in answer.get("outputs", ()))


def _output(out: Mapping[str, Any], mesh: Mesh) -> Operand:
    shape, spec = tuple(out["shape"]), out["spec"]
    if spec is None:
        return Operand(shape, out["dtype"])
    if not {name for entry in as_spec(spec) for name in as_axes(entry)} <= set(mesh.axis_names):
        return Operand(shape, out["dtype"])
    return _operand(shape, out["dtype"], NamedSharding(mesh, spec))


def _known(cost: Mapping[str, float], name: str) -> float | None:
    """A cost by its name; XLA writes a negative number for an unknown one."""
    value = cost.get(name)
    return None if value is None or value < 0 or not math.isfinite(value) else float(value)


def _collectives(
    hlo: str, topology: Topology, mesh: Mesh | None, positions: Sequence[int]
) -> tuple[Collective, ...]:
    per_slice = topology.devices // topology.num_slices
    if mesh is None:
        return collectives(hlo, per_slice)
    # Each slice runs the same program, whose partitions are the devices of that slice.
    slices = np.array(mesh.device_ids) // per_slice
    own = [place for place in positions if slices[place] == slices[positions[0]]]
    grid = np.indices(mesh.shape).reshape(len(mesh.shape), -1).T
    slices = slices.reshape(mesh.shape)
    crossing = [name for i, name in enumerate(mesh.axis_names) if np.ptp(slices, axis=i).any()]
    return name_axes(collectives(hlo, len(own)), grid[own], mesh.axis_names, tuple(crossing))


def _roofline(
    topology: Topology,
    arguments: Sequence[Operand],
    exchanges: Sequence[Collective],
    flops: float | None,
    accessed: float | None,
) -> Roofline:
    peaks = {peak_of(argument.dtype, topology) for argument in arguments}
    peak = peaks.pop() if len(peaks) == 1 else "bfloat16"
    per_chip = topology.devices_per_chip
    ici = sent_bytes(c for c in exchanges if not c.across_slices)
    dcn = sent_bytes(c for c in exchanges if c.across_slices)
    # The published figure is the sum of both directions.
    one_way = topology.ici_bandwidth / 2
    between = topology.dcn_bandwidth
    return Roofline(
        compute=None if flops is None else flops * per_chip / topology.peak_flops[peak],
        hbm=None if accessed is None else accessed * per_chip / topology.hbm_bandwidth,
        ici=ici * per_chip / one_way,
        dcn=0.0 if not dcn else None if between is None else dcn * per_chip / between,
        peak=peak,
    )


def _notes(exchanges: Sequence[Collective], hlo: str) -> Iterator[str]:
    if " while(" in hlo:
        yield "XLA's operations, bytes and estimate count the body of each loop once"
    if any(c.times is None for c in exchanges):
        yield "some collectives run in a loop of unknown length; the estimates count them once"
    if any(c.across_slices for c in exchanges):
        yield "XLA's own estimate leaves out the network between slices"


# Passes over bfloat16 parts for a float32 product on TPU, as `jax.lax.Precision` documents them.
_PASSES = {"default": 1, "high": 3, "highest": 6}
_PRODUCT = re.compile(r"= f32\[[^=\n]* (?:convolution|dot)\(([^\n]*)")
_PRECISION = re.compile(r"operand_precision=\{(\w+),")


def _precision_notes(arguments: Sequence[Operand], hlo: str) -> Iterator[str]:
    """How float32 products are computed; XLA computes them from bfloat16 parts."""
    if not any(argument.dtype in ("float32", "complex64") for argument in arguments):
        return
    precisions = set()
    for product in _PRODUCT.finditer(hlo):
        given = _PRECISION.search(product[1])
        precisions.add(given[1] if given else "default")
    for name, passes in _PASSES.items():
        if name not in precisions:
            continue
        if passes == 1:
            yield (
                "float32 products round their operands to bfloat16 (1 pass, TPU's default); "
                "--precision high takes 3 passes, highest 6 for nearly float32"
            )
        else:
            yield (
                f"float32 products take {passes} bfloat16 passes (--precision {name}); the "
                "estimates count one"
            )
