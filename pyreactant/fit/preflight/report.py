"""Preflight: what the compiler reports of a program, as plain data.

It is built from the compiler's answer: mesh axes are named, and estimates computed.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from ...arrays.mesh import Mesh
from ...arrays.sharding import Aval, NamedSharding
from ...arrays.text import spec_text
from ...base.document.page import HasPage
from ...base.document.parts import Document
from ...base.slices.topology import Topology
from ..hlo.collective import Collective, name_axes, sent_bytes
from ..hlo.parse import collectives
from .shown import document, text


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """Bytes on each device, by kind, as the compiler counts them.

    Attributes:
        arguments: Blocks of the arguments.
        outputs: Blocks of the outputs.
        temporaries: Peak of the memory that the program needs while it runs.
        code: The program itself.
        alias: Outputs that use the memory of an argument; `arguments` counts them too.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    alias: int

    @property
    def total(self) -> int:
        """Bytes that the device needs."""
        return self.arguments + self.outputs + self.temporaries + self.code - self.alias

    def to_dict(self) -> dict[str, int]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "total": self.total}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds on the seconds of one call, one for each part of a chip.

    They assume that all parts run at the same time at their published speeds (see `Topology`;
    Williams, Waterman and Patterson, "Roofline", CACM 2009).

    Attributes:
        compute: Seconds for the operations, at the peak rate of `peak`; None if unknown.
        hbm: Seconds for the bytes that the compiler counts as accessed; None if unknown.
        ici: Seconds for the bytes that collectives send over the chip's links, if all are used.
        dcn: Seconds for the bytes sent between slices; None if no speed is published.
        peak: Element type of the peak rate, such as "bfloat16".
    """

    compute: float | None
    hbm: float | None
    ici: float
    dcn: float | None
    peak: str

    @property
    def seconds(self) -> float:
        """The largest part: no run can be faster."""
        return max(part or 0.0 for part in (self.compute, self.hbm, self.ici, self.dcn))

    @property
    def bound(self) -> str:
        """Name of the largest part."""
        return max(("compute", "hbm", "ici", "dcn"), key=lambda name: getattr(self, name) or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "seconds": self.seconds, "bound": self.bound}


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument or output.

    Attributes:
        shape: Shape of the whole array; for Reactant's modules, of the Julia array.
        dtype: Element type.
        spec: Partition spec as text; "" if unknown.
        block: Shape of the block on each device; None if unknown.
        in_module: The tensor in the StableHLO module, if it differs.
    """

    shape: tuple[int, ...]
    dtype: str
    spec: str = ""
    block: tuple[int, ...] | None = None
    in_module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(HasPage):
    """The compiler's answer for a program on a slice. The program was compiled, not run.

    Attributes:
        program: Name of the program.
        source: What lowered it: "jax", "reactant", or "stablehlo" for a module from a file.
        topology: The slice.
        mesh: Mesh of the first argument; None for a module without a mesh.
        arguments: The arguments, in order.
        outputs: The outputs, in order; () if the program does not fit.
        fits: Whether the program fits the memory of each device.
        refusal: The compiler's message if the program does not fit, otherwise "".
        bytes_per_device: Memory of each device; None if the program does not fit.
        collectives: Collectives of one device, in order.
        seconds: XLA's own estimate of one call (`optimal_seconds`), without the network between
            slices; None if XLA has none.
        flops: Operations of one device in one call; None if unknown.
        bytes_accessed: Bytes of HBM that one device reads and writes in one call; None if unknown.
        roofline: Lower bounds from published speeds; None if the program does not fit.
        alternatives: Texts of specs or slices that fit, if the program does not.
        interrupted: Whether the search for alternatives was interrupted.
        notes: Limits of these numbers.
        versions: Versions of the packages that lowered and compiled the program.
        compile_seconds: Seconds that the compiler took.
        compiler_bytes: Peak memory of the compiling process, in bytes of this machine.
        cached: Whether the answer came from the cache.
        hlo: Text of the optimised program.

    Examples:
        >>> found.topology.name, len(found.arguments), found.mesh.size
        ('v6e-4', 2, 4)
    """

    program: str
    source: str
    topology: Topology
    mesh: Mesh | None
    arguments: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    fits: bool
    refusal: str
    bytes_per_device: DeviceBytes | None
    collectives: tuple[Collective, ...]
    seconds: float | None
    flops: float | None
    bytes_accessed: float | None
    roofline: Roofline | None
    alternatives: tuple[str, ...] = ()
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(hash=False)
    compile_seconds: float
    compiler_bytes: int
    cached: bool
    hlo: str = field(repr=False)

    @property
    def refused_bytes(self) -> int | None:
        """Bytes that a device would need, from the compiler's refusal; None without a refusal.

        A refusal has one of two forms: "required for HLO temporaries (56.00G) exceeds available
        HBM (31.24G)" and "Used 96.00G of 31.24G hbm".
        """
        found = re.search(r"(?:required[^(]*\(|Used )([\d.]+)([KMGT]?)", self.refusal)
        return found and int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " "))

    def text(self) -> str:
        """The report for people."""
        return text(self)

    def __str__(self) -> str:
        return self.text()

    def document(self) -> Document:
        """What the page shows."""
        return document(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, without the HLO text. Times are estimates."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "hlo"}
        memory, roofline = self.bytes_per_device, self.roofline
        return {
            **plain,
            "topology": self.topology.to_dict(),
            "mesh": None if self.mesh is None else self.mesh.to_dict(),
            "arguments": [asdict(operand) for operand in self.arguments],
            "outputs": [asdict(operand) for operand in self.outputs],
            "bytes_per_device": None if memory is None else memory.to_dict(),
            "hbm_bytes": self.topology.hbm_bytes,
            "collectives": [collective.to_dict() for collective in self.collectives],
            "roofline": None if roofline is None else roofline.to_dict(),
            "versions": dict(self.versions),
        }


_PEAK_OF = {"int8": "int8", "uint8": "int8"}


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
    cost = answer.get("cost", {})
    found = _collectives(answer.get("hlo", ""), topology, mesh, positions)
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
        collectives=found,
        seconds=_known(cost, "optimal_seconds"),
        flops=flops,
        bytes_accessed=accessed,
        roofline=None if memory is None else _roofline(topology, arguments, found, flops, accessed),
        notes=(
            *notes,
            *_notes(found, answer.get("hlo", "")),
            *_precision_notes(arguments, answer.get("hlo", "")),
        ),
        versions=versions,
        compile_seconds=answer["compile_seconds"],
        compiler_bytes=answer["compiler_bytes"],
        cached=cached,
        hlo=answer.get("hlo", ""),
    )


def operands(avals: Sequence[Aval]) -> tuple[Operand, ...]:
    """Arguments, as a report shows them."""
    return tuple(
        Operand(
            a.shape,
            a.dtype.name,
            spec_text(a.sharding.axes(len(a.shape))),
            a.sharding.shard_shape(a.shape),
        )
        for a in avals
    )


def outputs_of(answer: Mapping[str, Any], mesh: Mesh) -> tuple[Operand, ...]:
    """Outputs as the compiler placed them."""
    return tuple(_output(out, mesh) for out in answer.get("outputs", ()))


def _output(out: Mapping[str, Any], mesh: Mesh) -> Operand:
    shape, spec = tuple(out["shape"]), out["spec"]
    named = {
        name
        for entry in spec or ()
        for name in ([entry] if isinstance(entry, str) else entry or ())
    }
    if spec is None or not named <= set(mesh.axis_names):
        return Operand(shape, out["dtype"])
    sharding = NamedSharding(mesh, spec)
    return Operand(
        shape, out["dtype"], spec_text(sharding.axes(len(shape))), sharding.shard_shape(shape)
    )


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
    crossing = _crossing(slices.reshape(mesh.shape), mesh.axis_names)
    return name_axes(collectives(hlo, len(own)), grid[own], mesh.axis_names, crossing)


def _crossing(slices: np.ndarray, axis_names: tuple[str, ...]) -> tuple[str, ...]:
    """The axes that cross slices."""
    return tuple(name for axis, name in enumerate(axis_names) if np.ptp(slices, axis=axis).any())


def _roofline(
    topology: Topology,
    arguments: Sequence[Operand],
    found: Sequence[Collective],
    flops: float | None,
    accessed: float | None,
) -> Roofline:
    peaks = {_peak(argument.dtype) for argument in arguments}
    peak = peaks.pop() if len(peaks) == 1 else "bfloat16"
    if peak not in topology.peak_flops:
        peak = "bfloat16"
    per_chip = topology.devices_per_chip
    ici = sent_bytes(c for c in found if not c.across_slices)
    dcn = sent_bytes(c for c in found if c.across_slices)
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


def _peak(dtype: str) -> str:
    return "float8" if re.match("float8", dtype) else _PEAK_OF.get(dtype, "bfloat16")


def _notes(found: Sequence[Collective], hlo: str) -> Iterator[str]:
    if " while(" in hlo:
        yield "XLA's operations, bytes and estimate count the body of each loop once"
    if any(c.times is None for c in found):
        yield "some collectives run in a loop of unknown length; the estimates count them once"
    if any(c.across_slices for c in found):
        yield "XLA's own estimate leaves out the network between slices"


# Passes over bfloat16 parts for a float32 product on TPU, as `jax.lax.Precision` documents them.
_PASSES = {"default": 1, "high": 3, "highest": 6}
_PRODUCT = re.compile(r"= f32\[[^=\n]* (?:convolution|dot)\(([^\n]*)")
_PRECISION = re.compile(r"operand_precision=\{(\w+),")


def _precision_notes(arguments: Sequence[Operand], hlo: str) -> Iterator[str]:
    """How float32 products are computed; XLA computes them from bfloat16 parts."""
    if not any(argument.dtype in ("float32", "complex64") for argument in arguments):
        return
    found = set()
    for product in _PRODUCT.finditer(hlo):
        given = _PRECISION.search(product[1])
        found.add(given[1] if given else "default")
    for name in sorted(found & set(_PASSES), key=lambda name: _PASSES[name]):
        passes = _PASSES[name]
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
