"""What the contract suite's files share."""

import math

import numpy as np

import pyreactant as pr
from pyreactant._dtypes import as_dtype

MESH = pr.Mesh((2, 4), ("x", "y"))
XY = pr.NamedSharding(MESH, ("x", "y"))
BODIES = "tests.backend.bodies:"


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """0, 1, 2, ... below 100, over again; products of the sizes here are exact in float32."""
    return (np.arange(math.prod(shape)) % 100).reshape(shape).astype(as_dtype(dtype))
