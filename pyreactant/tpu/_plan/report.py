"""Plan: meshes and specs, the best first, as plain data."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..._core.mesh import Mesh
from ..._core.sharding import NamedSharding
from ..._core.text import bytes_text, seconds_text, spec_text
from ..._matmul.matmul import default_out_spec
from ..._pages.page import HasPage
from .._topology import Topology
from .layout import Layout, Spec
from .page import page


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
    reference: bool = False

    @property
    def at_least(self) -> bool:
        """Whether `seconds` is only a lower bound, because XLA's estimate is missing."""
        return self.link_seconds is not None and self.xla_seconds is None

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
        """The first candidate that fits and has a time, or None."""
        usable = [c for c in self.candidates if c.fits and c.seconds is not None]
        return usable[0] if usable else None

    @property
    def measured(self) -> bool:
        """Whether times were measured rather than estimated."""
        return self.topology is None

    def commands(self) -> dict[str, str]:
        """Command lines that run the best candidate.

        "matmul" alone, "run" supervised, "slurm" as a Slurm job, "tpu" on slices created for it,
        "crosscheck" on CPU devices. {} without a best candidate and for other programs than a
        product. Only "matmul" if this machine was measured.
        """
        if self.best is None or self.program != "matmul":
            return {}
        words = ["matmul", *self._sizes(), "--dtype", self.dtype]
        words += ["--precision", self.precision] if self.precision else []
        words += self.best.flags()
        if self.measured:
            words += ["--platform", self.platform]
            words += ["--devices-per-process", str(self.devices)] if self.platform == "cpu" else []
            return {"matmul": shlex.join(["pyreactant", *words])}
        assert self.topology is not None
        module = shlex.join(["-m", "pyreactant", *words])
        slices = ["--topology", self.topology.accelerator_type]
        slices += ["--slices", str(self.topology.num_slices)]
        found = {
            "matmul": shlex.join(["pyreactant", *words]),
            "run": f"pyreactant run -- {module}",
            "slurm": f"pyreactant slurm submit -- {module}",
            "tpu": f"{shlex.join(['pyreactant', 'tpu', 'run', *slices])} -- {module}",
        }
        return found | self._crosscheck()

    def _crosscheck(self) -> dict[str, str]:
        """On as many CPU devices as the slices have; {} for products that are not square."""
        assert self.best is not None
        assert self.topology is not None
        sizes = self._sizes()
        flags = self.best.flags()
        if sizes[0] != "--size" or "--out-spec" in flags or "--device-ids" in flags:
            return {}
        x, y = self.best.texts()[:2]
        words = [
            "pyreactant",
            "crosscheck",
            "matmul",
            *sizes,
            "--dtype",
            self.dtype,
            "--platform",
            "cpu",
            "--processes",
            "1",
            "--devices-per-process",
            str(self.devices),
            *flags[:2],
            "--spec",
            f"{x};{y}",
        ]
        return {"crosscheck": shlex.join(words)}

    def _sizes(self) -> list[str]:
        (m, k), (_, n) = self.shapes
        if m == k == n:
            return ["--size", str(m)]
        return ["--m", str(m), "--k", str(k), "--n", str(n)]

    def _page(self) -> str:
        return page(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {
            **plain,
            "topology": None if self.topology is None else self.topology.to_dict(),
            "candidates": [one.to_dict() for one in self.candidates],
            "reference": None if self.reference is None else self.reference.to_dict(),
            "measured": self.measured,
            "commands": self.commands(),
        }


def ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Candidates, the best first; see `Candidate.order`."""
    return tuple(sorted(candidates, key=lambda one: one.order))


_WIDTH, _HEIGHT = 64, 12
_FAR_APART = 8.0


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate in the picture: its label in the table, bytes on each device, seconds."""

    label: str
    size: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """The scale of an axis: linear from 0, or logarithmic if values are far apart."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], high: float) -> "_Scale":
        low = min(values)
        return cls(low / 1.3 if 0 < low < high / _FAR_APART else 0.0, high or 1.0)

    def place(self, value: float) -> float:
        """The position of a value, from 0 to 1."""
        if not self.low:
            return min(1.0, value / self.high)
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def value(self, place: float) -> float:
        """The value at a position."""
        if not self.low:
            return self.high * place
        return float(self.low * (self.high / self.low) ** place)


def scatter(
    points: Sequence[Point], limit: float | None = None, width: int = _WIDTH, height: int = _HEIGHT
) -> list[str]:
    """Lines of a scatter plot: fast is low, small is left; each point is its label.

    A label whose position is taken moves to the nearest free one on its right.

    Args:
        points: The points.
        limit: Memory of a device in bytes; drawn if it is in range.
        width: Characters of the plot area.
        height: Lines of the plot area.
    """
    if not points:
        return []
    sizes, times = [p.size for p in points], [p.seconds for p in points]
    near = limit is not None and limit <= 4 * max(sizes)
    right = max(limit, *sizes) if near and limit is not None else 1.05 * max(sizes)
    across, up = _Scale.of(sizes, right), _Scale.of(times, max(times))
    grid = [[" "] * (width + 1) for _ in range(height)]
    if near and limit is not None:
        for row in grid:
            row[round(across.place(limit) * width)] = "┊"
    for point in points:
        row = grid[height - 1 - round(up.place(point.seconds) * (height - 1))]
        _write(row, round(across.place(point.size) * width), point.label)
    names = [
        seconds_text(up.value((height - 1 - i) / (height - 1))) if i % 3 == (height - 1) % 3 else ""
        for i in range(height)
    ]
    margin = max(map(len, names))
    lines = [
        f"{name:>{margin}} │{''.join(row).rstrip()}" for name, row in zip(names, grid, strict=True)
    ]
    left, end = bytes_text(across.low), bytes_text(right)
    lines.append(f"{'':>{margin}} └{'─' * (width + 1)}")
    lines.append(f"{'':>{margin}}  {left}{end:>{width + 1 - len(left)}}")
    note = "; ┊ is what a device has" if near else ""
    lines.append(f"{'':>{margin}}  time of a call, against bytes on each device{note}")
    return lines


def _write(row: list[str], column: int, label: str) -> None:
    column = max(0, min(column, len(row) - len(label)))
    for start in [*range(column, len(row) - len(label) + 1), *range(column, -1, -1)]:
        if all(c in " ┊" for c in row[start : start + len(label)]):
            row[start : start + len(label)] = label
            return
