"""The typical limit of a result: how far right programs usually are from the exact result.

It is derived from runs with random roundings (`runs`) and assumes that errors are about normal; it
proves nothing, where the derived bound does. An element may be off by some standard deviations and
one unit in the last place. Two tests of a block find errors that are small in each element and
alike in all: a factor, and a lower precision inside.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays.dtypes import finfo
from ...arrays.sharding import Index
from .model import ulp
from .runs import COUNT, ROWS, Runs
from .sight import Sight, combined
from .tracked import UnknownOperationError

SIGMAS = 8.0
"""Standard deviations that an element may be off."""

LEAST_SIGMAS = 6.0
"""Fewer would call right results wrong: one of many millions of elements is off by 6."""

_OF_KIND, _OF_ALL = 13.3, 7.7
"""Student's t with `ROWS` and with `COUNT` degrees of freedom exceeds it with chance 5e-7."""

_ALIKE = 4.0
"""Ratio of two variances of `ROWS` runs up to which they are taken for one; chance exceeds it in 7
of 100 cases."""

_FLUSHED = float(np.finfo(np.float32).tiny)
"""Smaller numbers may be 0 in a right result."""

_LEAST = 16
"""Elements from which a block is tested as a whole."""

_BRANCH = 400.0
"""Variance of an element over the median one from which an undecided branch chose it."""


@dataclass(frozen=True, slots=True)
class Typical:
    """The spread of a result over the runs.

    Attributes:
        value: The result without errors.
        sigma: Standard deviation of each element; infinite where the result is not finite.
        apart: How far each run is from the one without errors, (runs, *shape).
        branch: Elements for which the runs took different branches.
        sigmas: Standard deviations that an element may be off.
        roundoff: Unit roundoff of the type of the runs.
    """

    value: np.ndarray
    sigma: np.ndarray
    apart: np.ndarray
    branch: np.ndarray
    sigmas: float
    roundoff: float

    @classmethod
    def of(cls, result: Runs, sigmas: float) -> "Typical":
        """The spread of an oracle's result.

        Raises:
            UnknownOperationError: The runs do not show it: a result of whole numbers or booleans,
                or NaN or infinity in some runs only.
        """
        model = result.model
        if model is None:
            raise UnknownOperationError("its results are whole numbers or booleans")
        value = result.runs[0]
        finite = np.isfinite(value)
        if not (np.isfinite(result.runs) == finite).all():
            raise UnknownOperationError("some runs overflow, or have NaN")
        runs = np.broadcast_to(result.runs, (COUNT + 1, *value.shape))
        apart = np.where(finite, runs - value, 0.0)[1:]
        squares = np.square(apart).mean(axis=0)
        usual = float(np.median(squares[squares > 0])) if squares.any() else 0.0
        branch = (squares > _BRANCH * usual) & (result.rounding.undecided > 0)
        kinds = (np.square(half).mean(axis=0) for half in (apart[:ROWS], apart[ROWS:]))
        variance = np.maximum(*(_pooled(np.where(branch, usual, kind)) for kind in kinds))
        sigma = np.where(finite, np.sqrt(variance), np.inf)
        return cls(value, sigma, apart.astype(np.float32), branch, sigmas, model.roundoff)

    def part(self, inside: Index) -> "Typical":
        """A part of the result."""
        return replace(
            self,
            value=self.value[inside],
            sigma=self.sigma[inside],
            apart=self.apart[(slice(None), *inside)],
            branch=self.branch[inside],
        )

    @property
    def limit(self) -> np.ndarray:
        """How far an element may be off, beyond one unit in the last place."""
        return self.sigmas * self.sigma + _FLUSHED

    def near(self, got: np.ndarray) -> np.ndarray:
        """The right values; where branches are undecided, those of the run that is nearest."""
        value = self.value
        if not self.branch.any():
            return value
        runs = np.concatenate([value[None], value + self.apart])
        with np.errstate(all="ignore"):
            which = np.argmin(np.abs(runs - got.astype(np.float64)), axis=0)
        nearest = np.take_along_axis(runs, which[None], axis=0)[0]
        return np.where(self.branch, nearest, value)

    def largest(self, got: np.ndarray) -> float:
        """The largest error beyond one unit in the last place, in standard deviations."""
        value = self.near(got)
        with np.errstate(all="ignore"):
            error = np.abs(got.astype(np.float64) - value)
            kept = np.isfinite(error) & np.isfinite(self.sigma)
            last = ulp(np.abs(np.where(kept, value, 0)), got.dtype)
            error = np.where(kept, error, 0.0) - last - _FLUSHED
            return float(np.max(error / self.sigma, initial=0.0, where=kept & (error > 0)))

    def of_block(self, got: np.ndarray) -> tuple[float, float]:
        """Both tests of a block: each is the statistic over its limit, and above 1 if it failed.

        The first is the regression of the error on the result, the second the root mean square of
        the error over that of sigma.
        """
        with np.errstate(all="ignore"):
            value = self.value
            error = got.astype(np.float64) - value
            kept = np.isfinite(error) & np.isfinite(self.sigma) & ~self.branch
        last = ulp(np.where(kept, np.abs(value), 0.0), got.dtype)
        error, value = error[kept], value[kept]
        squares, size = self.sigma[kept] ** 2, float(np.vdot(value, value))
        if error.size < _LEAST or not squares.sum() or not size:
            return 0.0, 0.0
        unit = max(self.roundoff, float(finfo(got.dtype).eps) / 2)
        if unit > self.roundoff:  # the result is rounded once more
            squares = squares + last[kept] ** 2 / 12
        runs = self.apart[:, kept].astype(np.float64)
        factors = runs @ value / size
        factor = float(error @ value) / size
        rms = math.sqrt(float(error @ error) / squares.sum())
        own = np.sqrt(np.square(runs).sum(axis=1) / squares.sum())
        return (
            abs(factor) / (_most(factors) + unit / 8),
            rms / (1.25 + _OF_ALL * float(own.std())),
        )


def _most(factors: np.ndarray) -> float:
    """How large a factor may be, by those of the runs: both kinds together if they are alike."""
    less, more = sorted(float(np.square(kind).mean()) for kind in (factors[:ROWS], factors[ROWS:]))
    if more <= _ALIKE * less:
        return _OF_ALL * math.sqrt((less + more) / 2)
    return _OF_KIND * math.sqrt(more)


def _pooled(variance: np.ndarray) -> np.ndarray:
    """At least the mean of an element's neighbours that round at all, 5 in each dimension."""
    if variance.size < 4 or not variance.any():
        return variance
    total, count = variance, (variance > 0).astype(np.float64)
    width = 2 if variance.ndim > 1 else 4
    for axis in range(variance.ndim)[-2:]:
        total, count = (_window(x, axis, width) for x in (total, count))
    return np.maximum(variance, total / np.maximum(count, 1))


def _window(x: np.ndarray, axis: int, width: int) -> np.ndarray:
    """Sums over the neighbours along a dimension."""
    padding = [(width, width) if d == axis else (0, 0) for d in range(x.ndim)]
    padded, result = np.pad(x, padding), np.zeros(x.shape)
    for first in range(2 * width + 1):
        part = tuple(
            slice(first, first + n) if d == axis else slice(None) for d, n in enumerate(x.shape)
        )
        result += padded[part]
    return result


@dataclass(frozen=True, slots=True)
class TypicalVerdict:
    """What the typical limit says about values.

    Attributes:
        sigmas: Largest error beyond one unit in the last place, in standard deviations.
        beyond: Elements beyond the limit.
        factor: Regression of the error on the result over its limit.
        rms: Root mean square of the error over its limit.
        undecided: Elements whose branch rounding may turn.
        derived: What the derived bound alone can see.
        only: Whether the values are within the derived bound, and so wrong by this limit alone.
        missing: Why there is no typical limit; "" if there is.
    """

    sigmas: float = 0.0
    beyond: int = 0
    factor: float = 0.0
    rms: float = 0.0
    undecided: int = 0
    derived: Sight = field(default_factory=Sight)
    only: bool = False
    missing: str = ""

    @property
    def passed(self) -> bool:
        """Whether all values are as right programs usually have them."""
        return not self.beyond and max(self.factor, self.rms) <= 1

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TypicalVerdict":
        """What `bounds.verdict.plain` made of it."""
        numbers = {name: float(data[name]) for name in ("sigmas", "factor", "rms")}
        return cls(**{**data, **numbers, "derived": Sight.from_dict(data["derived"])})


def together(verdicts: Iterable[TypicalVerdict | None]) -> TypicalVerdict | None:
    """What the limit says about several blocks."""
    some = [verdict for verdict in verdicts if verdict is not None]
    if not some:
        return None
    return TypicalVerdict(
        sigmas=max(v.sigmas for v in some),
        beyond=sum(v.beyond for v in some),
        factor=max(v.factor for v in some),
        rms=max(v.rms for v in some),
        undecided=sum(v.undecided for v in some),
        derived=combined(v.derived for v in some),
        only=any(v.only for v in some) and all(v.only or v.passed for v in some),
        missing=next((v.missing for v in some if v.missing), ""),
    )
