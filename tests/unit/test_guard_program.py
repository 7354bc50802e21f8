"""The digest of a program is equal where programs are, and only there."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from pyreactant.arrays.runtimes.guard.operation import (
    VALUES,
    Operation,
    caller_line,
    canonical,
    digest_of,
    program_digest,
    values_digest,
)

pytestmark = pytest.mark.usefixtures("backend")  # lowering starts JAX in this process


def lowered(function: Callable[..., Any], *, locations: bool = False) -> str:
    return jax.jit(function).lower(jnp.ones((4, 4))).as_text(debug_info=locations)


def step(x: Any) -> Any:
    return jnp.tanh(x) * 2 + x @ x


def other(x: Any) -> Any:
    return jnp.tanh(x) * 3 + x @ x


def calling_back(x: Any) -> Any:
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    jax.debug.callback(lambda a: None, x)
    jax.debug.print("x {}", x, ordered=True)
    y = io_callback(lambda a: np.asarray(a), like, x, ordered=True)
    return jax.pure_callback(lambda a: np.asarray(a), like, y)


def test_constants_and_operations_count() -> None:
    texts = [lowered(step), lowered(other), lowered(lambda x: step(x).T), lowered(calling_back)]
    assert len({program_digest(text) for text in texts}) == 4
    assert program_digest(lowered(step)) == program_digest(lowered(lambda x: step(x)))


def test_locations_do_not_count() -> None:
    bare, located = lowered(calling_back), lowered(calling_back, locations=True)
    assert "loc(" in located
    assert canonical(located).strip() == canonical(bare).strip()


def test_equal_programs_with_callbacks_are_equal() -> None:
    """Whatever callbacks the process has made before."""
    first, second = lowered(calling_back), lowered(lambda x: calling_back(x))
    assert "index = 1 : ui64" in first
    assert program_digest(first) == program_digest(second)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('#loc = loc("a.mlir":1:2)\nmodule @f {\n} loc(#loc)\n', "module @g {\n}\n"),
        ('x loc(#loc12)\n#loc12 = loc("f"("a.py":1:2 to :9))\n', "x\n"),
    ],
)
def test_equal_programs(one: str, two: str) -> None:
    assert canonical(one) == canonical(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("custom_call @call(%a) {index = 3 : ui64}", "custom_call @call(%a) {index = 4 : ui64}"),
        ("module @f {\n func.func @a }", "module @f {\n func.func @b }"),
        ("dense<1>", "dense<2>"),
    ],
)
def test_different_programs(one: str, two: str) -> None:
    assert canonical(one) != canonical(two)


def test_line_of_the_caller() -> None:
    def within() -> str:
        return caller_line()

    text = within()
    assert re.fullmatch(r"test_guard_program\.py:\d+", text)
    assert caller_line().split(":")[1] != text.split(":")[1]


def test_digests() -> None:
    fields = (("shape", "(8,)"), (VALUES, "1"))
    one = Operation("device_put", "", fields, "a.py:1")
    two = Operation("device_put", "", (fields[0], (VALUES, "2")), "a.py:1")
    assert (one.key, one.digest) == (two.key, one.digest)
    assert one.digest != two.digest
    other_line = Operation("device_put", "", fields, "a.py:2")
    assert one.key != other_line.key
    run = Operation("run", "f", (("program", "1"),), "a.py:1")
    assert run.digest == Operation("run", "g", (("program", "1"),), "a.py:2").digest
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    # Equal on every process and machine, unlike Python's hash.
    assert one.digest == 16420532894864067074


def test_digest_of_values() -> None:
    """Equal arrays have one digest, in any memory order; of a large array a sample is read."""
    small, large = np.arange(64.0).reshape(8, 8), np.zeros((1024, 1024))
    for array in (small, large):
        copy = np.asfortranarray(array)
        assert values_digest(copy) == values_digest(array)
        copy[0, 0] = 7
        assert values_digest(copy) != values_digest(array)
    one, two = (np.broadcast_to(np.float32(1), (10_000, 10_000)) for _ in range(2))  # 400 MB each
    assert values_digest(one) == values_digest(two)
    assert values_digest(np.zeros((0, 4))) == values_digest(np.zeros((0, 4)))
