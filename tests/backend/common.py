"""Helpers of the contract suite."""

import math
from pathlib import Path

import numpy as np

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype

MESH = pr.Mesh((2, 4), ("x", "y"))
XY = pr.NamedSharding(MESH, ("x", "y"))
WHOLE = pr.NamedSharding(MESH, ())
BODIES = "tests.backend.bodies:"
JULIA_BODIES = str(Path(__file__).parent / "Bodies")
MATMUL = pr.Program("matmul", jax="jax.numpy:matmul", julia="*")


def body(name: str) -> pr.Program:
    """A program of the suite, with a body for each runtime in bodies.py and Bodies/."""
    return pr.Program(name, jax=BODIES + name, julia=f"Bodies.{name}", julia_project=JULIA_BODIES)


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Repeat the numbers 0 to 99; products of the suite's sizes are exact in float32."""
    return (np.arange(math.prod(shape)) % 100).reshape(shape).astype(as_dtype(dtype))
