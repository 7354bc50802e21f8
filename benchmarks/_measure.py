"""Paired, interleaved measurements: ratios within one run, medians with spread."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyreactant._system.facts import package_version


@dataclass(frozen=True)
class Pair:
    """Ours against the hand-written way to do the same.

    Attributes:
        name: What was measured.
        ours: Seconds (or bytes) of each repetition.
        theirs: The same for the hand-written way, taken in turns; None where there is none, and
            ours itself is compared with the bound.
        bound: The largest quotient, or difference, that the issue allows.
        difference: Whether the bound is on ours minus theirs rather than ours over theirs.
        unit: "s" or "B".
    """

    name: str
    ours: Sequence[float]
    theirs: Sequence[float] | None
    bound: float
    difference: bool = False
    unit: str = "s"

    @property
    def values(self) -> list[float]:
        """The compared figure of each pair."""
        if self.theirs is None:
            return list(self.ours)
        pairs = zip(self.ours, self.theirs, strict=True)
        return [a - b if self.difference else a / b for a, b in pairs]

    @property
    def kind(self) -> str:
        """What the bound is on."""
        if self.theirs is None:
            return "value"
        return "difference" if self.difference else "ratio"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        low, middle, high = quartiles(self.values)
        return {
            "name": self.name,
            "unit": self.unit,
            "ours_median": statistics.median(self.ours),
            "theirs_median": None if self.theirs is None else statistics.median(self.theirs),
            "kind": self.kind,
            "lower_quartile": low,
            "median": middle,
            "upper_quartile": high,
            "bound": self.bound,
            "within": middle <= self.bound,
            "repetitions": len(self.ours),
        }


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def timed(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def keeping_bytecode(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which compiled modules are kept, as an installed package has them."""
    return {k: v for k, v in environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def interleave(
    ours: Callable[[], float], theirs: Callable[[], float], repetitions: int
) -> tuple[list[float], list[float]]:
    """Measure both in turns, each first every other time; one unmeasured round before."""
    ours(), theirs()
    first: list[float] = []
    second: list[float] = []
    for repetition in range(repetitions):
        if repetition % 2:
            second.append(theirs())
            first.append(ours())
        else:
            first.append(ours())
            second.append(theirs())
    return first, second


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    packages = ("pyreactant", "jax", "jaxlib", "numpy", "typer")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "versions": {name: package_version(name) or "absent" for name in packages},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
