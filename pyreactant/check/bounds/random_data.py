"""Tighter bounds of sums over a batch and of Fourier transforms, for data without structure.

The rules allow that all rounding errors have the same sign, or meet in one element. The errors of
random data have random signs: their squares add up, and they spread over a whole transform. Only
what functions such as tanh do wrong may be alike in all examples. docs/checks.md has the proofs.
"""

import math
from typing import Any

import numpy as np

from .rules.products import norms
from .tracked import Tracked

_SMALL = 0.25
"""Largest relative error of the summands; with more, the rule's own bound applies."""


def over_batch(x: Tracked | None, y: Tracked, alike: np.ndarray) -> Tracked:
    """``x @ y``, or the sum of the rows of y without x, for exact x.

    Args:
        x: Factors, (m, batch), without an error; None for a sum.
        y: Summands, (batch, n).
        alike: The part of the bound of y, (batch, n), whose errors may have the same sign.
    """
    bounds, model = y.bound, y.model
    relative = _norms(bounds) / np.maximum(_norms(y.value), model.tiny)
    if not model.random or not relative.max(initial=0.0) < _SMALL:
        return _plain(x, y)
    z = _plain(x, Tracked(y.value, 0.0, model))
    if x is None:
        inherited = _norms(bounds) + alike.sum(axis=0)
    else:
        rows, largest = norms(x, 1)[0], np.maximum(x.held.max(axis=1), -x.held.min(axis=1))
        # Both are at least the root of the sum of the squares of the products.
        random = np.minimum(np.outer(largest, _norms(bounds)), np.outer(rows, bounds.max(axis=0)))
        inherited = random + np.outer(rows, _norms(alike))
    # The sums are rounded more if the errors have made them larger.
    return Tracked(z.value, (z.bound + inherited) * (1 + 2 * relative), model)


def _plain(x: Tracked | None, y: Tracked) -> Any:
    return y.sum(axis=0) if x is None else x @ y


def _norms(array: np.ndarray) -> Any:
    """Euclidean norms of the columns."""
    return np.sqrt(np.einsum("ij,ij->j", array, array))


_OF_STAGE = 7 * 16
"""Seven standard deviations of the error of a stage, 16 u as in the rules."""

_STRAY = 71
"""Added to the number of stages because stages with few numbers may have larger ones."""


def of_random_data(z: Any, elements: int, squares: float) -> Any:
    """A transform of exact random numbers without structure, with the smaller of both bounds.

    Args:
        z: A part of the transform, with the bound of the rules; a NumPy array is returned as it is.
        elements: Number of transformed elements that each element of the result needs.
        squares: Sum of the squares of these elements, or its largest if there are several sums.
    """
    if not isinstance(z, Tracked) or not z.model.random:
        return z
    # Two stages more for each dimension, as in the rules; no transform here has more than two.
    stages = math.ceil(math.log2(max(elements, 2))) + 4
    u = z.model.roundoff + z.model.operand_roundoff
    size = math.sqrt(squares)  # root mean square of the result
    bound = _OF_STAGE * u * size * math.sqrt(stages + _STRAY) + elements * z.model.tiny
    return Tracked(z.value, np.minimum(z.narrow, bound), z.model)
