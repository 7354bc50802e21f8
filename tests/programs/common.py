"""Helpers for tests of the built-in programs: run a case on the process's runtime."""

from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.arrays.program import load
from pyreactant.arrays.source import Source
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import Tracked
from pyreactant.check.inputs import sources
from pyreactant.check.programs import Case, Layout, Output

LINE = pr.Mesh((8,), ("i",))
GRID = pr.Mesh((2, 4), ("x", "y"))
CUBE = pr.Mesh((2, 2, 2), ("a", "b", "c"), [3, 1, 7, 5, 0, 2, 4, 6])  # ids in random order


def model_of(case: Case, dtype: str) -> Model | None:
    """Rounding model of a runtime on 8 CPU devices; None if results are exact."""
    return None if case.is_exact(dtype) else Model.of(dtype, partials=8, random=case.random)


def outputs_of(case: Case, size: int, dtype: str) -> tuple[Output, ...]:
    """Outputs of a case, for a case whose oracle declares them."""
    assert case.outputs is not None
    return case.outputs(size, dtype)


def by_numpy(case: Case, *arrays: np.ndarray) -> tuple[Any, ...]:
    """The whole results of the program's NumPy body."""
    results = load(case.program, "oracle")(*arrays)
    return results if isinstance(results, tuple) else (results,)


def run(case: Case, mesh: pr.Mesh, layout: Layout, dtype: str) -> tuple[Any, tuple[Source, ...]]:
    """Run a case; return the outputs as a tuple, and the sources of the inputs."""
    size = case.default_size
    inputs = sources(case.inputs(size, dtype), 0)
    arrays = [
        pr.from_callback(one.shape, one.dtype, pr.NamedSharding(mesh, spec), one.read)
        for one, spec in zip(inputs, layout.in_specs, strict=True)
    ]
    outs = tuple(pr.NamedSharding(mesh, spec) for spec in layout.out_specs)
    f = pr.compile(
        case.program,
        *arrays,
        out_sharding=outs if len(outs) > 1 else outs[0],
        precision="highest",
        static=dict(case.static(size)),
    )
    results = f(*arrays)
    return results if isinstance(results, tuple) else (results,), inputs


def check_block(got: np.ndarray, expected: Any) -> float:
    """The largest ratio of an error to its bound; exact results are compared bitwise."""
    assert got.shape == expected.shape
    if not isinstance(expected, Tracked):
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()
        return 0.0
    error = np.abs(got.astype(expected.value.dtype) - expected.value)
    assert np.isfinite(expected.bound).all()
    return float(np.max(error / expected.bound, initial=0.0))


def short_bits(x: np.ndarray) -> np.ndarray:
    """float32 or complex64 numbers that bfloat16 represents exactly."""
    halves = np.ascontiguousarray(x).view(np.float32).astype(as_dtype("bfloat16"))
    return halves.astype(np.float32).view(x.dtype).reshape(x.shape)
