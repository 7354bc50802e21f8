"""Check: a verdict about a product, and how those of blocks and processes become one."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ._collective import exchange_json
from ._runtime import current


@dataclass(frozen=True, slots=True)
class Check:
    """A verdict about a product.

    Attributes:
        method: "float64 product", "integer product" or "Freivalds".
        passed: Whether every element is within the tolerance.
        error: Largest distance from the oracle (for Freivalds' from x (y r)).
        tolerance: What was allowed where error over tolerance is largest.
        ratio: That quotient; at most 1 when passed.
        wrong: Elements, for Freivalds' rows, that are not within the tolerance, counted on
            every device that holds them.
        non_finite: Elements that are NaN or infinite, as the oracle's are, counted likewise.
        usual: Largest quotient of error and what rounding usually makes of it.
        note: What the numbers do not say.
        worst: Where it is wrong: process, device, block, element, got, expected.
    """

    method: str
    passed: bool = True
    error: float = 0.0
    tolerance: float = 0.0
    ratio: float = 0.0
    wrong: int = 0
    non_finite: int = 0
    usual: float = 0.0
    note: str = ""
    worst: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; a ratio that is infinite is None."""
        return asdict(self) | {"ratio": self.ratio if math.isfinite(self.ratio) else None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Check":
        """The verdict that `to_dict` described."""
        return cls(**{**data, "ratio": math.inf if data["ratio"] is None else data["ratio"]})


def merge(checks: Iterable[Check]) -> Check:
    """One verdict from several about different blocks of one product."""
    checks = list(checks)
    worst = max(checks, key=lambda c: (not c.passed, c.ratio))
    return replace(
        worst,
        passed=all(c.passed for c in checks),
        error=max(c.error for c in checks),
        wrong=sum(c.wrong for c in checks),
        non_finite=sum(c.non_finite for c in checks),
        usual=max(c.usual for c in checks),
    )


def merge_everywhere(mine: Check) -> Check:
    """One verdict from those of all processes. Collective."""
    running = current()
    checks = exchange_json(running.backend, running.group, mine.to_dict())
    return merge(Check.from_dict(check) for check in checks)
