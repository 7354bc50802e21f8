"""How far two blocks are from each other."""

import math
from typing import Any, NamedTuple

import numpy as np

from .._tolerance import finfo


class Distance(NamedTuple):
    """Of two blocks.

    Attributes:
        largest: Between two elements; infinite where one alone is NaN or infinite.
        at: Which element that is.
        ulps: The largest, in units in the last place of the first's element.
        squares: Sum of the squared distances.
        norm: Sum of the first's squared elements.
    """

    largest: float
    at: tuple[int, ...]
    ulps: float
    squares: float
    norm: float


def distance(x: np.ndarray, y: np.ndarray, dtype: np.dtype[Any]) -> Distance:
    """How far two blocks are from each other; infinitely where NaN or infinity differ."""
    if not x.size:
        return Distance(0.0, (0,) * x.ndim, 0.0, 0.0, 0.0)
    if dtype.kind in "iub":
        apart = np.where(x > y, x, y).astype(np.float64) - np.where(x > y, y, x)
        apart = np.where((x != y) & (apart == 0), 1.0, apart)  # beyond 2**53
        norm = float(np.sum(x.astype(np.float64) ** 2))
        return Distance(float(np.max(apart)), _argmax(apart), 0.0, float(np.sum(apart**2)), norm)
    a, b = _wide(x), _wide(y)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    info = finfo(dtype)
    size = np.maximum(np.where(np.isfinite(a), np.abs(a), 0.0), float(info.smallest_normal))
    unit = float(info.eps) * 2.0 ** np.floor(np.log2(size))
    finite = np.isfinite(a)
    return Distance(
        float(np.max(apart)),
        _argmax(apart),
        float(np.max(apart / unit)),
        float(np.sum(apart**2)),
        float(np.sum(np.abs(a[finite]) ** 2)),
    )


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _argmax(apart: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))


def close(x: np.ndarray, y: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether two blocks are the same but for rounding."""
    found = distance(x, y, dtype)
    if dtype.kind in "iub":
        return found.largest == 0
    return found.squares <= (64 * float(finfo(dtype).eps)) ** 2 * found.norm


def guess(block: np.ndarray, dtype: np.dtype[Any], elements: int) -> float:
    """What rounding might make of an element where nothing is known of the program.

    As if every element were a sum over all `elements` of the largest input, whose rounding
    errors have random signs: 8 sqrt(elements) u for each of the two runs, times the block's
    root mean square.
    """
    wide = _wide(block[np.isfinite(block)])
    rms = math.sqrt(float(np.mean(np.abs(wide) ** 2))) if wide.size else 0.0
    return 16 * math.sqrt(elements) * float(finfo(dtype).eps) / 2 * rms
