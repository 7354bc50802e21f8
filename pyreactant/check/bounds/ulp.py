"""One unit in the last place."""

from typing import Any

import numpy as np

from ...arrays.dtypes import finfo


def ulp(sizes: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """One unit in the last place of `dtype` at these absolute values (float64)."""
    info = finfo(dtype)
    # Clearing the mantissa gives the power of two below a number.
    powers = (np.asarray(sizes).view(np.int64) & EXPONENT).view(np.float64)
    return np.maximum(powers, float(info.tiny)) * float(info.eps)


EXPONENT = np.int64(0x7FF0_0000_0000_0000)
"""The bits of the exponent of a float64."""
