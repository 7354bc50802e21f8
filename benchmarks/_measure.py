"""Paired, interleaved measurements: ratios within one run, medians with spread."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@dataclass(frozen=True)
class Pair:
    """Ours against the hand-written way to do the same.

    Attributes:
        name: What was measured.
        ours: Seconds (or bytes) of each repetition.
        theirs: The same for the hand-written way, taken in turns.
        bound: The largest quotient, or difference, that the issue allows.
        difference: Whether the bound is on ours minus theirs rather than ours over theirs.
        unit: "s" or "B".
    """

    name: str
    ours: Sequence[float]
    theirs: Sequence[float]
    bound: float
    difference: bool = False
    unit: str = "s"

    @property
    def values(self) -> list[float]:
        """The compared figure of each pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [a - b if self.difference else a / b for a, b in pairs]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        low, middle, high = quartiles(self.values)
        return {
            "name": self.name,
            "unit": self.unit,
            "ours_median": statistics.median(self.ours),
            "theirs_median": statistics.median(self.theirs),
            "kind": "difference" if self.difference else "ratio",
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
    found = {}
    for package in ("pyreactant", "jax", "jaxlib", "numpy", "typer"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "versions": found,
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
