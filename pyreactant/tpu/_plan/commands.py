"""Command lines for the best layout of a product, and what they are for."""

import math
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._core.sharding import NamedSharding
from ..._runtimes.known import MOST_CPU_DEVICES
from .words import counted

if TYPE_CHECKING:
    from .report import Candidate, Plan

_LARGE, _SMALL = 4096, 512
"""A product with a larger side is tried here with sides of about the smaller length."""


def commands(found: "Plan") -> dict[str, str]:
    """The command lines; see `Plan.commands`."""
    best = found.best
    if best is None or found.program != "matmul":
        return {}
    (m, k), (_, n) = found.shapes
    whole = _matmul(found, best, (m, k, n))
    cpu = ["--platform", "cpu", "--devices-per-process", str(found.devices)]
    if found.measured:
        where = cpu if found.platform == "cpu" else ["--platform", found.platform]
        return {"matmul": shlex.join(["pyreactant", *whole, *where])}
    lines = dict(_here(found, best, cpu)) if found.devices <= MOST_CPU_DEVICES else {}
    assert found.topology is not None
    slices = ["--topology", found.topology.accelerator_type]
    slices += ["--slices", str(found.topology.num_slices)]
    account = ["--name", "NAME", "--project", "PROJECT", "--zone", "ZONE"]
    module = ["--", "-m", "pyreactant", *whole]
    lines["slurm"] = shlex.join(["pyreactant", "slurm", "submit", "--nodes", "NODES", *module])
    lines["tpu"] = shlex.join(["pyreactant", "tpu", "run", *slices, *account, *module])
    return lines


def remarks(found: "Plan") -> Iterator[str]:
    """Sentences about the command lines."""
    best, lines = found.best, found.commands()
    if best is None or found.measured or not lines:
        return
    sizes, devices = _tried(found, best), counted(found.devices, "device")
    here = [name for name in ("matmul", "run", "crosscheck") if name in lines]
    if here:
        size = (
            "" if sizes == _sides(found) else f" with smaller sizes ({'x'.join(map(str, sizes))})"
        )
        yield f"{', '.join(here)}: for CPU devices of this machine, {found.devices} in all{size}."
    if "crosscheck" not in lines:
        yield (
            "There is no crosscheck command for this layout: crosscheck takes neither --out-spec "
            f"nor --device-ids, and up to {MOST_CPU_DEVICES} devices."
        )
    yield (
        f"slurm, tpu: replace NODES by the number of nodes that have {devices} in all, and NAME, "
        "PROJECT and ZONE by your own for Cloud TPU, which costs money."
    )


def _here(found: "Plan", best: "Candidate", cpu: list[str]) -> Iterator[tuple[str, str]]:
    """Commands for CPU devices of this machine."""
    small = _matmul(found, best, _tried(found, best))
    yield "matmul", shlex.join(["pyreactant", *small, *cpu])
    several = 2 if found.devices % 2 == 0 else 1
    there = ["--platform", "cpu", "--processes", str(several)]
    there += ["--devices-per-process", str(found.devices // several)]
    yield "run", shlex.join(["pyreactant", "run", *there, "--", "-m", "pyreactant", *small])
    flags = best.flags()
    if "--out-spec" in flags or "--device-ids" in flags:
        return
    size = _multiple(math.lcm(*_cuts(best)), min(_SMALL, max(_sides(found))))
    words = ["pyreactant", "crosscheck", "matmul", "--size", str(size), "--dtype", found.dtype]
    words += ["--platform", "cpu", "--processes", "1", *cpu[2:], *flags[:2]]
    yield "crosscheck", shlex.join([*words, "--spec", ";".join(best.texts()[:2])])


def _matmul(found: "Plan", best: "Candidate", sides: tuple[int, ...]) -> list[str]:
    m, k, n = sides
    sizes = ["--size", str(m)] if m == k == n else ["--m", str(m), "--k", str(k), "--n", str(n)]
    precision = ["--precision", found.precision] if found.precision else []
    return ["matmul", *sizes, "--dtype", found.dtype, *precision, *best.flags()]


def _sides(found: "Plan") -> tuple[int, int, int]:
    (m, k), (_, n) = found.shapes
    return m, k, n


def _tried(found: "Plan", best: "Candidate") -> tuple[int, ...]:
    """The sides m, k and n that are tried on this machine; blocks stay equal."""
    sides, cuts = _sides(found), _cuts(best)
    if max(sides) <= _LARGE:
        return sides
    if len(set(sides)) == 1:
        cuts = (math.lcm(*cuts),) * 3
    return tuple(min(s, _multiple(cut, _SMALL)) for s, cut in zip(sides, cuts, strict=True))


def _cuts(best: "Candidate") -> tuple[int, int, int]:
    """Numbers that m, k and n must be multiples of."""
    x, y, c = (
        NamedSharding(best.mesh, spec).cuts(2) for spec in (*best.specs, best.out_spec or ())
    )
    return math.lcm(x[0], c[0]), math.lcm(x[1], y[0]), math.lcm(y[1], c[1])


def _multiple(step: int, least: int) -> int:
    return step * math.ceil(least / step)
