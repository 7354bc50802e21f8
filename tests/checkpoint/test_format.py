"""Orbax's files as data: the shape of chunks, trees, and files that cannot be read."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyreactant as pr
from pyreactant.arrays.checkpoint import format
from pyreactant.arrays.checkpoint.format import Array, Entry

SIZES = st.integers(1, 40)


@given(st.lists(st.tuples(SIZES, SIZES), max_size=3), st.integers(1, 64), st.integers(1, 2000))
def test_chunks_divide_blocks(sizes: list[tuple[int, int]], size: int, largest: int) -> None:
    block = [each for each, _ in sizes]
    shape = [each * count for each, count in sizes]
    chunk = format.chunk_shape(shape, block, size, largest)
    for whole, part, cut in zip(shape, block, chunk, strict=True):
        assert 1 <= cut <= part
        assert part == whole or part % cut == 0


def test_a_chunk_is_a_block_of_at_most_64_mib() -> None:
    assert format.chunk_shape((1024, 1024), (512, 1024), 4) == (512, 1024)
    chunk = format.chunk_shape((2**16, 2**12), (2**15, 2**12), 4)
    assert chunk == (2**12, 2**12)
    assert math.prod(chunk) * 4 == format.LARGEST_CHUNK
    # Whole in this dimension, so that the last chunk may be shorter.
    assert format.chunk_shape((1_000_003, 100), (1_000_003, 50), 4) == (333335, 50)
    # No divisor is near: the second dimension is cut, or the chunk stays larger.
    assert format.chunk_shape((2 * 1_000_003, 64), (1_000_003, 64), 4) == (1_000_003, 16)
    assert format.chunk_shape((2 * 100_000_007,), (100_000_007,), 4) == (100_000_007,)
    assert format.chunk_shape((0, 3), (0, 3), 4) == (1, 3)


FEW = st.integers(1, 8)


@given(st.lists(st.tuples(FEW, FEW, FEW), min_size=1, max_size=3), st.integers(4, 400))
def test_parts_end_at_chunks(sizes: list[tuple[int, int, int]], largest: int) -> None:
    block = tuple(slice(first, first + length) for first, length, _ in sizes)
    array = Array((16,) * len(sizes), "float32", tuple(chunk for *_, chunk in sizes))
    seen = np.zeros(array.shape, int)
    for part in format.parts(block, array, largest):
        seen[part] += 1
        for s, whole, chunk in zip(part, block, array.chunk, strict=True):
            assert s.start in (whole.start, s.start // chunk * chunk)
            assert s.stop in (whole.stop, s.stop // chunk * chunk)
        in_one = all(
            (s.stop - 1) // chunk == s.start // chunk
            for s, chunk in zip(part, array.chunk, strict=True)
        )
        assert in_one or array.nbytes_of(part) <= largest
    assert seen[block].all()
    assert seen.sum() == seen[block].size


def test_a_tree_is_read_as_it_was_written() -> None:
    entries = [
        Entry(("a", 0), format.ARRAY),
        Entry(("a", 1, "7"), format.SCALAR),
        Entry(("k",), format.ARRAY, "threefry2x32"),
        Entry(("n",), "None"),
    ]
    text = format.tree_text(entries)
    arrays = {"k": Array((4, 2), "uint32", (4, 2))}
    types = format.key_types_text(arrays, {"k": "threefry2x32"})
    read, stored = format.read_tree(text, [types], ocdbt=False)
    assert read == entries
    assert stored == {"ocdbt": True, "zarr3": True, "complete": True}
    values = [(entry.keys, number) for number, entry in enumerate(entries)]
    assert format.nested(values) == {"a": [0, {"7": 1}], "k": 2, "n": 3}
    assert format.nested([((0,), 1), ((1, "x"), 2)]) == [1, {"x": 2}]
    assert format.nested([]) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tree_metadata": {"x": {}}}', "null"])
def test_a_tree_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no entry|Expecting value"):
        format.read_tree(text, [], ocdbt=True)


def test_arrays_of_zarr_2() -> None:
    for stored, dtype in (("<f4", "float32"), ("|b1", "bool"), ("bfloat16", "bfloat16")):
        text = json.dumps({"zarr_format": 2, "dtype": stored, "chunks": [2], "shape": [4]})
        assert format.read_array(text.encode()) == Array((4,), dtype, (2,))
    with pytest.raises(ValueError, match="shape"):
        format.read_array(b'{"zarr_format": 2, "dtype": "<f4", "chunks": []}')


def test_digests() -> None:
    text = format.digests_text({"a": "1"}, {"w": "2"}).encode()
    assert format.read_digests(text, "x") == ({"a": "1"}, {"w": "2"})
    with pytest.raises(ValueError, match="digest"):
        format.read_digests(text.replace(b'"w"', b'"v"'), "x")
    body = {"format": "pyreactant checkpoint", "version": 2, "files": {}, "arrays": {}}
    newer = json.dumps({**body, "digest": format.digest(json.dumps(body, sort_keys=True).encode())})
    with pytest.raises(pr.FileError, match="version 2 of the format, and this pyreactant reads up"):
        format.read_digests(newer.encode(), "x")
