"""Sums over a batch whose examples have independent rounding errors.

The rules add up the errors of all examples, or multiply Euclidean norms, as if all errors had the
same sign. Roundings of different examples have random signs, so their squares add up; only what
functions such as tanh do wrong may be alike in all examples. docs/checks.md derives the bound.
"""

from typing import Any

import numpy as np

from .tracked import Tracked

_SMALL = 0.25
"""Largest relative error of the summands; with more, the rule's own bound applies."""


def over_batch(x: Tracked | None, y: Tracked, alike: np.ndarray) -> Tracked:
    """``x.T @ y``, or the sum of the rows of y without x, for exact x.

    Args:
        x: Factors, (batch, m), without an error; None for a sum.
        y: Summands, (batch, n).
        alike: The part of the bound of y, (batch, n), whose errors may have the same sign.
    """
    bounds, model = y.bound, y.model
    relative = _norms(bounds) / np.maximum(_norms(y.value), model.tiny)
    worst = float(relative.max(initial=0.0))
    if not model.random or not worst < _SMALL:
        return _plain(x, y)
    z = _plain(x, Tracked(y.value, 0.0, model))
    if x is None:
        inherited = _norms(bounds) + alike.sum(axis=0)
    else:
        rows, largest = _norms(x.value), np.abs(x.value).max(axis=0)
        # Both are at least the root of the sum of the squares of the products.
        random = np.minimum(np.outer(largest, _norms(bounds)), np.outer(rows, bounds.max(axis=0)))
        inherited = random + np.outer(rows, _norms(alike))
    # The sums are rounded more if the errors have made them larger.
    return Tracked(z.value, (z.bound + inherited) * (1 + 2 * worst), model)


def _plain(x: Tracked | None, y: Tracked) -> Any:
    return y.sum(axis=0) if x is None else x.T @ y


def _norms(array: np.ndarray) -> Any:
    """Euclidean norms of the columns."""
    return np.sqrt(np.einsum("ij,ij->j", array, array))
