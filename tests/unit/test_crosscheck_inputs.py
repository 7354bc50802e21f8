"""Inputs of a cross-check, block by block, of any number of dimensions."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import pyreactant as pr
from pyreactant.arrays import source as source_module
from pyreactant.arrays.dtypes import NAMES, as_dtype
from pyreactant.arrays.source import RandomSource
from pyreactant.check.inputs import source, sources
from pyreactant.check.programs import Input

KINDS = (
    Input("a", (), "float32"),
    Input("b", (13,), "bfloat16", scale=0.25),
    Input("c", (5, 11), "complex64"),
    Input("d", (3, 4, 9), "float64", scale=2.0**-3),
    Input("e", (2, 3, 4, 5), "bool"),
    Input("f", (3, 17), "int32", kind="indices", high=7),
    Input("g", (29,), "uint32", kind="indices", high=2**32 - 1),
)


@pytest.fixture(autouse=True, scope="module")
def blocks_are_drawn() -> Iterator[None]:
    """Each block is drawn by itself, as those of large arrays are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "KEPT", 0)
        yield


def whole(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)


@given(st.data(), st.sampled_from(KINDS), st.integers(0, 2**70))
def test_any_block_is_that_of_the_whole(data: Any, what: Input, seed: int) -> None:
    one = source(what, seed, stream=3)
    assert (one.shape, one.dtype) == (what.shape, as_dtype(what.dtype))
    everything = one.read(whole(what.shape))
    assert everything.shape == what.shape
    index = []
    for n in what.shape:
        start, stop = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
        index.append(slice(start, stop))
    block = one.read(tuple(index))
    assert block.dtype == one.dtype
    assert block.tobytes() == everything[tuple(index)].tobytes()


@settings(max_examples=50)
@given(st.data(), st.sampled_from(NAMES))
def test_random_sources_of_every_dtype_and_rank(data: Any, dtype: str) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=4)))
    one = RandomSource(shape, dtype, seed=1, stream=0)
    everything = one.read(whole(shape))
    assert everything.shape == shape
    if math.prod(shape):
        first = tuple(slice(n - 1, n) for n in shape)
        assert one.read(first).tobytes() == everything[first].tobytes()


def test_leading_dimensions_are_rows_one_after_the_other() -> None:
    cube, matrix = (RandomSource(s, "float32", 5, 1) for s in ((3, 4, 10), (12, 10)))
    np.testing.assert_array_equal(
        cube.read(whole((3, 4, 10))).reshape(12, 10), matrix.read(whole((12, 10)))
    )
    line = RandomSource((10,), "float32", 5, 1)
    np.testing.assert_array_equal(
        line.read(whole((10,))), matrix.read((slice(0, 1), slice(0, 10)))[0]
    )


@pytest.mark.parametrize(
    ("dtype", "digest"),
    [
        ("float32", "ef669773"),
        ("float64", "a9d6f302"),
        ("int32", "9bbfb30c"),
        ("complex64", "21afab74"),
    ],
)
def test_numbers_of_a_seed_never_change(dtype: str, digest: str) -> None:
    """The cross-check compares machines and versions by seed."""
    numbers = RandomSource((6, 10), dtype, seed=7, stream=1).read((slice(1, 6), slice(3, 10)))
    assert hashlib.sha256(numbers.tobytes()).hexdigest()[:8] == digest


def test_streams_differ_and_scales_and_limits_hold() -> None:
    same = Input("x", (100, 100), "float32")
    one, other = (s.read(whole((100, 100))) for s in sources((same, same), 0))
    assert (one != other).mean() > 0.99
    (scaled,) = sources((Input("x", (100, 100), "float32", scale=0.125),), 0)
    np.testing.assert_array_equal(scaled.read(whole((100, 100))), one / 8)
    chosen = source(Input("i", (1000,), "int32", kind="indices", high=5), 0, 0)
    assert not chosen.random
    assert set(chosen.read(whole((1000,)))) == {0, 1, 2, 3, 4}
    truth = source(Input("t", (1000,), "bool"), 0, 0).read(whole((1000,)))
    assert 400 < truth.sum() < 600


def test_programs_say_the_shapes_of_their_inputs() -> None:
    shapes = [["n", "4n"], ("12n", 3), []]
    program = pr.Program("p", jax="jax.numpy:matmul", inputs=shapes)
    assert program.inputs == (("n", "4n"), ("12n", 3), ())
    assert hash(program) == hash(pr.Program("p", jax="jax.numpy:matmul", inputs=program.inputs))
    for wrong in ((("m", "n"),), (("n", 0),), ("n",), 3, ((1.5,),), (("0n",),), ((True,),)):
        with pytest.raises(pr.InvalidArgumentError, match="must be one shape per argument"):
            pr.Program("p", inputs=wrong)
