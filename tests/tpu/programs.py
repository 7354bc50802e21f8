"""Programs for the preflight's tests; they run for real too."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def two_layers(x: Any, first: Any, second: Any) -> Any:
    """A layer, a nonlinearity, a layer: for JAX."""
    import jax.numpy as jnp

    return jnp.maximum(x @ first, 0) @ second


def two_layers_numpy(x: Any, first: Any, second: Any) -> Any:
    """The same for NumPy, in float64."""
    x, first, second = (np.asarray(a, np.float64) for a in (x, first, second))
    return np.maximum(x @ first, 0) @ second


def power(x: Any, *, exponents: tuple[int, ...]) -> Any:
    """With a static argument."""
    assert isinstance(exponents, tuple)
    return sum(x**n for n in exponents)


def halves(x: Any) -> tuple[Any, Any]:
    """Two outputs."""
    return x[: len(x) // 2], x[len(x) // 2 :]


def positive(x: Any) -> Any:
    """A shape that depends on values."""
    return x[x > 0]


def fails(x: Any) -> Any:
    """As a user's mistake does."""
    raise ValueError(f"cannot use {x.shape}")


def aborts(x: Any) -> Any:
    """As libtpu does where a program is not as it expects."""
    print(
        "F1121 16:34:07.295337   28937 shape.cc:249] Check failed: size == kUnboundedSize",
        file=sys.stderr,
        flush=True,
    )
    os.abort()


def prints_and_sleeps(x: Any) -> Any:
    """Says who it is, and takes long: to be killed."""
    print("a line on standard output")
    Path(os.environ["TEST_PID_FILE"]).write_text(str(os.getpid()))
    time.sleep(120)
    return x
