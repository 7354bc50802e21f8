"""Other bits for bits, the same on the host and on devices."""

from typing import Any

import numpy as np


def mixed(bits: Any) -> Any:
    """Other 32 bits for each 32 bits, of NumPy or JAX: C. Wellons' lowbias32."""
    u32 = np.uint32
    bits = (bits ^ (bits >> u32(16))) * u32(0x7FEB352D)
    bits = (bits ^ (bits >> u32(15))) * u32(0x846CA68B)
    return bits ^ (bits >> u32(16))


def weights(places: Any) -> Any:
    """Odd numbers of 32 bits, by which a digest multiplies the words at these places."""
    return mixed(places) | np.uint32(1)
