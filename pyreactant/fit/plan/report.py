"""Plan: meshes and specs, the best first, as plain data."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...arrays.matmul import default_out_spec
from ...arrays.mesh import Mesh
from ...arrays.sharding import NamedSharding
from ...arrays.text import spec_text
from ...base.document.page import HasPage
from ...base.document.parts import Document
from ...base.slices.topology import Topology
from ...base.words import is_too_large
from .layouts import Layout, Spec
from .page import document
from .text import commands, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mesh and specs, with the figures of the compiler or of a measurement.

    Attributes:
        layout: The mesh, the specs, and the figures of the closed forms.
        seconds: Time of a call, measured or estimated: the largest of `xla_seconds`, the
            rooflines and `link_seconds`. None if it failed.
        xla_seconds: XLA's estimate, which ignores the links; None without one.
        link_seconds: Time until the busiest link has carried the compiled program's data.
        sent_bytes: Bytes that each device sends in a call, from the compiled program.
        bytes_per_device: Bytes that each device needs; if measured, those of its blocks.
        fits: Whether these fit.
        trouble: Why there is no time; "" if there is one.
        notes: Limits of these numbers; see `Preflight.notes`.
        reference: Whether this is the default layout of `matmul_sharded`, for comparison.
    """

    layout: Layout
    seconds: float | None = None
    xla_seconds: float | None = None
    link_seconds: float | None = None
    sent_bytes: float | None = None
    bytes_per_device: float | None = None
    fits: bool = True
    trouble: str = ""
    notes: tuple[str, ...] = ()
    reference: bool = False

    @property
    def at_least(self) -> bool:
        """Whether `seconds` is only a lower bound, because XLA's estimate is missing."""
        return self.link_seconds is not None and self.xla_seconds is None

    @property
    def refused(self) -> bool:
        """Whether the compiler refused it because it does not fit."""
        return is_too_large(self.trouble)

    @property
    def mesh(self) -> Mesh:
        """The devices."""
        return self.layout.mesh

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Specs of the arguments."""
        return self.layout.specs

    @property
    def out_spec(self) -> Spec | None:
        """Spec of the output; None leaves it to the compiler."""
        return self.layout.out_spec

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key: fits, time to three digits, bytes sent, memory.

        Times that agree to three digits are a tie: no estimate is better than that.
        """
        usable = self.fits and self.seconds is not None
        time = math.inf if self.seconds is None else self.seconds
        size = self.layout.memory_bytes if self.bytes_per_device is None else self.bytes_per_device
        sent = self.layout.received_bytes if self.sent_bytes is None else self.sent_bytes
        return not usable, float(f"{time:.3g}"), float(f"{sent or 0.0:.3g}"), size

    def texts(self) -> tuple[str, ...]:
        """The specs of the arguments and of the output, as the command line takes them."""
        shardings = [NamedSharding(self.mesh, spec) for spec in self.specs]
        out = () if self.out_spec is None else (NamedSharding(self.mesh, self.out_spec),)
        return tuple(spec_text(sharding.spec) for sharding in (*shardings, *out))

    def flags(self) -> tuple[str, ...]:
        """Options of `pyreactant matmul` for this candidate."""
        mesh = ",".join(
            f"{n}={s}" for n, s in zip(self.mesh.axis_names, self.mesh.shape, strict=True)
        )
        x, y, *out = self.texts()
        flags = ["--mesh", mesh, "--spec", x]
        flags += ["--y-spec", y] if y != x else []
        usual = default_out_spec(*(NamedSharding(self.mesh, spec) for spec in self.specs))
        if out and out[0] != spec_text(NamedSharding(self.mesh, usual).axes(2)):
            flags += ["--out-spec", out[0]]
        if not self.mesh.all_devices:
            flags += ["--device-ids", ",".join(map(str, self.mesh.device_ids))]
        return tuple(flags)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        layout = {**asdict(self.layout), "mesh": self.mesh.to_dict()}
        return {**asdict(self), "layout": layout, "texts": list(self.texts())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(HasPage):
    """The result of `plan`.

    Attributes:
        program: Name of the program.
        shapes: Shapes of the arguments.
        dtype: Element type of the arguments.
        precision: The requested precision.
        topology: The slice; None if this machine was measured.
        platform: "tpu", or the platform of the measured devices.
        devices: Number of devices.
        hbm_bytes: Memory of each device; None if unknown.
        candidates: Candidates without the reference, the best first.
        reference: The default layout of `matmul_sharded`, for comparison; None if its specs do not
            divide the sizes, and for other programs.
        considered: Number of layouts considered.
        too_large: Number of these whose blocks do not fit.
        interrupted: Whether it was stopped before all candidates were tried.
        peak_bytes: Most memory that one compilation took; None if nothing was compiled.
        at_once: Most compilations at a time.

    Examples:
        >>> found_plan.program, found_plan.devices, len(found_plan.candidates)
        ('matmul', 8, 1)
    """

    program: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    precision: str | None
    topology: Topology | None
    platform: str
    devices: int
    hbm_bytes: int | None
    candidates: tuple[Candidate, ...]
    reference: Candidate | None
    considered: int
    too_large: int
    interrupted: bool
    peak_bytes: int | None
    at_once: int

    @property
    def best(self) -> Candidate | None:
        """The fastest candidate, or the default layout if that ties with it; None if nothing fits.

        See `tied`. The default layout needs no options, so another one must be faster.
        """
        tied = self.tied
        return next((one for one in tied if one.reference), tied[0] if tied else None)

    @property
    def tied(self) -> tuple[Candidate, ...]:
        """The candidates, the default layout included, whose time the model calls the least.

        Estimates within 1 % are a tie, and measured times within 5 %.
        """
        usable = ranked([one for _, one in self.rows if one.fits and one.seconds is not None])
        if not usable or usable[0].seconds is None:
            return ()
        most = (1 + self.tie) * usable[0].seconds
        least = usable[0].at_least  # a lower bound ties only with other lower bounds
        return tuple(one for one in usable if (one.seconds or 0) <= most and one.at_least == least)

    @property
    def tie(self) -> float:
        """The relative difference of times below which they tie."""
        return 0.05 if self.measured else 0.01

    @property
    def rows(self) -> list[tuple[str, Candidate]]:
        """The candidates with their labels in the report: their rank, or R for the default."""
        rows = [(str(number), one) for number, one in enumerate(self.candidates, 1)]
        return rows + ([] if self.reference is None else [("R", self.reference)])

    @property
    def measured(self) -> bool:
        """Whether times were measured rather than estimated."""
        return self.topology is None

    def commands(self) -> dict[str, str]:
        """Command lines for the best candidate, by name.

        "matmul", "run" and "crosscheck" try the layout on CPU devices of this machine, large
        products with smaller sizes. "slurm" and "tpu" run the product itself; words such as ZONE
        stand for what the user fills in. {} without a best candidate and for other programs than a
        product. If this machine was measured, only "matmul".
        """
        return commands(self)

    def text(self) -> str:
        """The report for people."""
        return text(self)

    def __str__(self) -> str:
        return self.text()

    def document(self) -> Document:
        """What the page shows."""
        return document(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {
            **plain,
            "topology": None if self.topology is None else self.topology.to_dict(),
            "candidates": [one.to_dict() for one in self.candidates],
            "reference": None if self.reference is None else self.reference.to_dict(),
            "best": None if self.best is None else self.best.to_dict(),
            "measured": self.measured,
            "commands": self.commands(),
        }


def ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Candidates, the best first; see `Candidate.order`."""
    return tuple(sorted(candidates, key=lambda one: one.order))
