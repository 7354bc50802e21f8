"""A tighter bound for Fourier transforms of data without structure.

The normwise bound of the rules allows that all rounding errors meet in one element. The errors of
random data have random signs and spread over the whole transform; docs/checks.md derives the bound.
"""

import math
from typing import Any

import numpy as np

from .tracked import Tracked

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
    return Tracked(z.value, np.minimum(z.bound, bound), z.model)
