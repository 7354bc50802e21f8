"""Paired, interleaved measurements: ratios within one run, medians with quartiles."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyreactant.base.facts import package_version


@dataclass(frozen=True)
class Pair:
    """Measurements of ours and of the hand-written reference.

    Attributes:
        name: What was measured.
        ours: Seconds (or bytes) of each repetition.
        reference: The same for the hand-written reference, measured in turns with ours; None
            compares ours itself with the bound.
        bound: Largest ratio, difference or value that counts as "within".
        difference: Whether the bound is on ours minus reference rather than on their ratio.
        unit: "s" (seconds) or "B" (bytes).
    """

    name: str
    ours: Sequence[float]
    reference: Sequence[float] | None
    bound: float
    difference: bool = False
    unit: str = "s"

    @property
    def values(self) -> list[float]:
        """Ratio, difference or value of each repetition, which the bound applies to."""
        if self.reference is None:
            return list(self.ours)
        pairs = zip(self.ours, self.reference, strict=True)
        return [a - b if self.difference else a / b for a, b in pairs]

    @property
    def kind(self) -> str:
        """What the bound applies to: "value", "difference" or "ratio"."""
        if self.reference is None:
            return "value"
        return "difference" if self.difference else "ratio"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        low, middle, high = quartiles(self.values)
        return {
            "name": self.name,
            "unit": self.unit,
            "ours_median": statistics.median(self.ours),
            "theirs_median": None if self.reference is None else statistics.median(self.reference),
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
    """Time one call in seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def added_memory(action: Callable[[], object]) -> int:
    """Bytes that this process takes at most for a call, over what it holds before."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before = _memory("VmRSS")
    action()
    return _memory("VmHWM") - before


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def keeping_bytecode(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment in which Python caches bytecode, as it does for an installed package."""
    return {k: v for k, v in environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def interleave(
    ours: Callable[[], float], reference: Callable[[], float], repetitions: int
) -> tuple[list[float], list[float]]:
    """Measure both in turns and alternate which is first, after one unmeasured round.

    A single repetition is a smoke test, which needs no such round.
    """
    if repetitions > 1:
        ours(), reference()
    first: list[float] = []
    second: list[float] = []
    for repetition in range(repetitions):
        if repetition % 2:
            second.append(reference())
            first.append(ours())
        else:
            first.append(ours())
            second.append(reference())
    return first, second


def machine() -> dict[str, Any]:
    """Date, machine and package versions of the measurements."""
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
