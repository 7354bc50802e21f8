"""Plan: meshes and specs in the order in which they are worth trying, as plain data."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..._core.mesh import Mesh
from ..._core.sharding import NamedSharding
from ..._core.text import bytes_text, seconds_text, spec_text
from ..._matmul.matmul import default_out_spec
from .._topology import Topology
from .layout import Layout, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mesh and specs, with what the compiler or a measurement says of them.

    Attributes:
        layout: The mesh, the specs, and what the closed forms say.
        seconds: Of one call: the larger of `xla_seconds`, the rooflines and `link_seconds`, an
            estimate; or measured. None where it failed.
        xla_seconds: XLA's own estimate, which knows nothing of the links; None where it has none.
        link_seconds: Until the busiest link has carried what the compiled program sends.
        sent_bytes: That each device sends in one call, as the compiled program says.
        bytes_per_device: That it needs on each device; of a measured one, its blocks alone.
        fits: Whether these fit.
        trouble: Why it has no time; "" where it has.
        reference: Whether it was not chosen but is what `matmul_sharded` does by itself.
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
        """Whether `seconds` is only a lower bound, for want of XLA's estimate."""
        return self.link_seconds is not None and self.xla_seconds is None

    @property
    def mesh(self) -> Mesh:
        """The devices."""
        return self.layout.mesh

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Of the arguments."""
        return self.layout.specs

    @property
    def out_spec(self) -> Spec | None:
        """Of the output; None leaves it to the compiler."""
        return self.layout.out_spec

    @property
    def order(self) -> tuple[Any, ...]:
        """What candidates are sorted by: fitting, time to three digits, bytes sent, memory.

        Times that agree to three digits are a tie: no estimate is better than that.
        """
        usable = self.fits and self.seconds is not None
        time = math.inf if self.seconds is None else self.seconds
        size = self.layout.memory_bytes if self.bytes_per_device is None else self.bytes_per_device
        sent = self.layout.received_bytes if self.sent_bytes is None else self.sent_bytes
        return not usable, float(f"{time:.3g}"), float(f"{sent or 0.0:.3g}"), size

    def texts(self) -> tuple[str, ...]:
        """The specs of the arguments and of the output, as the command line has them."""
        shardings = [NamedSharding(self.mesh, spec) for spec in self.specs]
        out = () if self.out_spec is None else (NamedSharding(self.mesh, self.out_spec),)
        return tuple(spec_text(sharding.spec) for sharding in (*shardings, *out))

    def flags(self) -> tuple[str, ...]:
        """Options of `pyreactant matmul` that ask for just this."""
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
class Plan:
    """What was found.

    Attributes:
        program: Its name.
        shapes: Of the arguments.
        dtype: Of the arguments.
        precision: As asked for.
        topology: The slice; None where devices here were measured.
        platform: "tpu", or what was measured.
        devices: How many.
        hbm_bytes: Of each device; None where that is not known.
        candidates: The best first, without the reference.
        reference: What `matmul_sharded` does by itself, for comparison; None where its specs do
            not divide the sizes, or for other programs.
        considered: How many meshes and specs there were.
        too_large: How many of them cannot fit, by their blocks alone.
        interrupted: Whether it was stopped before all were tried.
        peak_bytes: Memory that compiling one took here, the most; None where nothing was compiled.
        at_once: How many were compiled at once, at most.
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
        """The first that fits and has a time; None where there is none."""
        usable = [c for c in self.candidates if c.fits and c.seconds is not None]
        return usable[0] if usable else None

    @property
    def measured(self) -> bool:
        """Whether times were measured; else they are estimates."""
        return self.topology is None

    def commands(self) -> dict[str, str]:
        """Command lines that run the best of them, by how.

        "matmul" alone, "run" supervised, "sbatch" as a Slurm job, "tpu" on slices made for it,
        "crosscheck" on CPU devices here. {} where there is none, or for another program than a
        product. What was measured here is given for here alone.
        """
        if self.best is None or self.program != "matmul":
            return {}
        words = ["matmul", *self._sizes(), "--dtype", self.dtype]
        words += ["--precision", self.precision] if self.precision else []
        words += self.best.flags()
        if self.measured:
            words += ["--platform", self.platform]
            words += ["--cpu-devices", str(self.devices)] if self.platform == "cpu" else []
            return {"matmul": shlex.join(["pyreactant", *words])}
        assert self.topology is not None
        module = shlex.join(["-m", "pyreactant", *words])
        slices = ["--accelerator-type", self.topology.accelerator_type]
        slices += ["--slice-count", str(self.topology.num_slices)]
        found = {
            "matmul": shlex.join(["pyreactant", *words]),
            "run": f"pyreactant run -- {module}",
            "sbatch": f"PYREACTANT_PROGRAM={shlex.quote(module)} sbatch slurm/main.sbatch",
            "tpu": f"{shlex.join(['pyreactant', 'tpu', 'run', *slices])} -- {module}",
        }
        return found | self._crosscheck()

    def _crosscheck(self) -> dict[str, str]:
        """On CPU devices here, as many as the slices have; {} for products that are not square."""
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
    """The best first; see `Candidate.order`."""
    return tuple(sorted(candidates, key=lambda one: one.order))


_WIDTH, _HEIGHT = 64, 12
_FAR_APART = 8.0


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate: what it is called in the table, bytes on each device, seconds."""

    label: str
    size: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Scale:
    """From a value to a place: from 0, or by powers where values are far apart."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], high: float) -> "_Scale":
        low = min(values)
        return cls(low / 1.3 if 0 < low < high / _FAR_APART else 0.0, high or 1.0)

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if not self.low:
            return min(1.0, value / self.high)
        return min(1.0, math.log(value / self.low) / math.log(self.high / self.low))

    def value(self, place: float) -> float:
        """What stands at a place."""
        if not self.low:
            return self.high * place
        return float(self.low * (self.high / self.low) ** place)


def scatter(
    points: Sequence[Point], limit: float | None = None, width: int = _WIDTH, height: int = _HEIGHT
) -> list[str]:
    """Lines of a picture: fast is low, small is left; the labels stand where the points are.

    A label that finds its place taken goes to the nearest free one to its right.

    Args:
        points: What to show.
        limit: Bytes that a device has; drawn where the picture reaches so far.
        width: Characters of the picture itself.
        height: Lines of the picture itself.
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
