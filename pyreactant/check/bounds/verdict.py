"""The verdict on values: whether they are right, their errors, and what the comparison can see."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from .sight import Sight, combined, total
from .typical import TypicalVerdict, together

FLOAT32_PRODUCTS = "products of the check in float32"
BY_FLOAT32 = f"oracle, {FLOAT32_PRODUCTS}"
"""The method of an oracle whose large products were formed in float32 (docs/checks.md)."""

FREIVALDS = "Freivalds"
ON_DEVICES = "Freivalds on the devices"
"""The methods that check the rows of a product, on the host and where the product is."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether values are right, and their errors.

    Attributes:
        method: How the values were checked: "oracle", `BY_FLOAT32`, "exact oracle", `FREIVALDS`,
            `ON_DEVICES`, "digest", ...; "" if the caller sets it.
        elements: Number of compared elements.
        error: Largest absolute error.
        allowed: Tolerance of the element where error over tolerance is largest.
        ratio: Largest error over tolerance; at most 1 if all values are right, infinite if the
            tolerance is zero.
        ulps: Largest error in units in the last place.
        error_squares: Sum of squared errors.
        value_squares: Sum of squared expected values.
        wrong: Number of elements (rows in Freivalds' check) that are beyond the tolerance, or
            NaN or infinite in the wrong place.
        wrong_patterns: Number of elements that are wrongly NaN or infinite, or wrongly finite.
        non_finite: Number of elements that are rightly NaN or infinite.
        usual: Largest error over the usual rounding error.
        note: Remark for the report.
        estimated: Why the tolerance is estimated; "" if it is derived.
        worst: The element where error over tolerance is largest: {"element": position, "got",
            "expected", "allowed"}; None if nothing was compared or all bits are equal. Callers
            may replace it with their own facts about the place.
        sight: What the comparison can see; nothing if there was none.
        places: The number of wrong elements in each cell of the block's grid (`sight.grid_of`);
            None if they were not counted.
        typical: The verdict by the typical limit of rounding; None if it was not asked for.
    """

    method: str = ""
    elements: int = 0
    error: float = 0.0
    allowed: float = 0.0
    ratio: float = 0.0
    ulps: float = 0.0
    error_squares: float = 0.0
    value_squares: float = 0.0
    wrong: int = 0
    wrong_patterns: int = 0
    non_finite: int = 0
    usual: float = 0.0
    note: str = ""
    estimated: str = ""
    worst: dict[str, Any] | None = None
    sight: Sight = field(default_factory=Sight)
    places: np.ndarray | None = field(default=None, compare=False)
    typical: TypicalVerdict | None = None

    @property
    def passed(self) -> bool:
        """Whether every element is right."""
        return self.wrong == 0

    @property
    def by_rows(self) -> bool:
        """Whether whole rows of a product were checked, and not elements."""
        return self.method in (FREIVALDS, ON_DEVICES)

    @property
    def relative_norm(self) -> float:
        """Norm of the error over the norm of the expected values."""
        if self.error_squares == 0:
            return 0.0
        return (
            math.sqrt(self.error_squares / self.value_squares) if self.value_squares else math.inf
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, with the relative norm; `from_dict` reads it back."""
        places = None if self.places is None else self.places.tolist()
        own = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        return own | {"relative_norm": plain(self.relative_norm), "places": places}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Verdict":
        """The verdict that `to_dict` described; other keys are ignored."""
        # A record of an earlier pyreactant has the norm alone.
        squares = {"error_squares": float(data["relative_norm"]) ** 2, "value_squares": 1.0}
        known = {f.name: f for f in fields(cls)}
        given = squares | {name: value for name, value in data.items() if name in known}
        for name in ("error", "allowed", "ratio", "ulps"):
            given[name] = data[name]
        for name, value in given.items():
            if isinstance(known[name].default, float):
                given[name] = float(value)
        sight = given.get("sight")
        given["sight"] = Sight() if sight is None else Sight.from_dict(sight)
        if given.get("typical") is not None:
            given["typical"] = TypicalVerdict.from_dict(given["typical"])
        if given.get("places") is not None:
            given["places"] = np.array(given["places"], np.int64)
        return cls(**given)


def plain(value: Any) -> Any:
    """Dictionaries, lists, numbers and text; numbers that are not finite become strings."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict with the largest ratio; wrong verdicts come before right ones."""
    return max(verdicts, key=lambda v: (not v.passed, v.ratio))


def join(parts: Iterable[Verdict]) -> Verdict:
    """Combine the verdicts on several blocks or tiles."""
    verdicts = list(parts) or [Verdict()]
    worst = worst_of(verdicts)
    return replace(
        worst,
        method=worst.method or next((v.method for v in verdicts if v.method), ""),
        elements=sum(v.elements for v in verdicts),
        error=max(v.error for v in verdicts),
        ulps=max(v.ulps for v in verdicts),
        error_squares=sum(v.error_squares for v in verdicts),
        value_squares=sum(v.value_squares for v in verdicts),
        wrong=sum(v.wrong for v in verdicts),
        wrong_patterns=sum(v.wrong_patterns for v in verdicts),
        non_finite=sum(v.non_finite for v in verdicts),
        usual=max(v.usual for v in verdicts),
        estimated=next((v.estimated for v in verdicts if v.estimated), ""),
        sight=combined(v.sight for v in verdicts),
        places=total(v.places for v in verdicts),
        typical=together(v.typical for v in verdicts),
    )
