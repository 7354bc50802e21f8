"""Programs for tests of preflight; they can also run."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def two_layers(x: Any, first: Any, second: Any) -> Any:
    """A layer, a nonlinearity and a layer, for JAX."""
    import jax.numpy as jnp

    return jnp.maximum(x @ first, 0) @ second


def two_layers_numpy(x: Any, first: Any, second: Any) -> Any:
    """The same in NumPy, in float64."""
    x, first, second = (np.asarray(a, np.float64) for a in (x, first, second))
    return np.maximum(x @ first, 0) @ second


def power(x: Any, *, exponents: tuple[int, ...]) -> Any:
    """A program with a static argument."""
    assert isinstance(exponents, tuple)
    return sum(x**n for n in exponents)


def doubled(x: Any, unused: Any) -> Any:
    """A program that does not look at its second argument."""
    return 2 * x


def turned(x: Any) -> Any:
    """A program of arrays whose mesh has explicit axes."""
    import jax

    return jax.sharding.reshard(x, jax.sharding.PartitionSpec("y", "x"))


def halves(x: Any) -> tuple[Any, Any]:
    """A program with two outputs."""
    return x[: len(x) // 2], x[len(x) // 2 :]


def positive(x: Any) -> Any:
    """A program whose shape depends on values."""
    return x[x > 0]


def fails(x: Any) -> Any:
    """Raises, as a user's mistake does."""
    raise ValueError(f"cannot use {x.shape}")


def aborts(x: Any) -> Any:
    """Aborts, as libtpu does for an unexpected program."""
    print(
        "F1121 16:34:07.295337   28937 shape.cc:249] Check failed: size == kUnboundedSize",
        file=sys.stderr,
        flush=True,
    )
    os.abort()


def prints_and_sleeps(x: Any) -> Any:
    """Prints a line, writes its process id to a file, and sleeps until it is killed."""
    print("a line on standard output")
    Path(os.environ["TEST_PID_FILE"]).write_text(str(os.getpid()))
    time.sleep(120)
    return x
