"""Right and wrong user programs; named by ``tests.crosscheck.user_programs:NAME``."""

import os
import time
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.crosscheck import _member

SQUARE = (("n", "n"),)
HERE = "tests.crosscheck.user_programs"


def double(x: Any) -> Any:
    return x * 2


def two(x: Any) -> Any:
    return x * 2, x.sum(axis=1)


def raises_here(x: Any) -> Any:
    if pr.process_index() == 1:
        _member.AGREE_SECONDS = 1.0  # not 20
        raise ValueError("no luck on this process")
    return x.sum() + x * 0  # a collective operation, so that the other processes wait


def raises(x: Any) -> Any:
    raise ValueError("no luck at all")


def sleeps(x: Any) -> Any:
    time.sleep(100)
    return x * 2


def leaves(x: Any) -> Any:
    if pr.process_index() == 1:
        os._exit(9)
    return x.sum() + x * 0


def same_shape(x: np.ndarray) -> np.ndarray:
    return x.sum() + x * 0


def row(x: Any) -> Any:
    return x[0]


def norms(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.linalg.norm(x, axis=1)


def numpy_norms(x: np.ndarray) -> Any:
    return np.linalg.norm(x, axis=1)


def _second() -> bool:
    """Whether this is the second runtime, for bodies that differ as one in Julia might."""
    return os.environ["PYREACTANT_BACKEND"] != "jax"


def square(x: Any) -> Any:
    return (x @ x).T if _second() else x @ x


def numpy_square(x: np.ndarray) -> np.ndarray:
    return x @ x


def half_as_much(x: Any) -> Any:
    return x[: len(x) // 2] if _second() else x


def half_as_wide(x: Any) -> Any:
    return x.astype("float16") if _second() else x


def one_or_two(x: Any) -> Any:
    return (x, x) if _second() else x


def program(name: str, jax: str, oracle: str | None, **more: Any) -> pr.Program:
    return pr.Program(
        name, jax=f"{HERE}:{jax}", oracle=oracle and f"{HERE}:{oracle}", inputs=SQUARE, **more
    )


right = program("right", "double", "double")
blind = program("blind", "double", None)
wrong = program("wrong", "double", "same_shape")
estimated = program("estimated", "norms", "numpy_norms")
two_results = program("two_results", "two", "two")
raises_on_one = program("raises_on_one", "raises_here", "same_shape")
raises_on_all = program("raises_on_all", "raises", "double")
leaves_early = program("leaves_early", "leaves", "same_shape")
turned_round = program("turned_round", "square", "numpy_square")
other_shape = program("other_shape", "half_as_much", None)
other_dtype = program("other_dtype", "half_as_wide", None)
other_count = program("other_count", "one_or_two", None)
slow = program("slow", "sleeps", "double")
fewer_results = program("fewer_results", "double", "two")
another_shape = program("another_shape", "row", "double")
