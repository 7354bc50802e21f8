"""Trees of arrays and plain values come back as they were; what is cut short is not there."""

import json
import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyreactant as pr
from pyreactant.runs import values

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal with the same types, where NaN equals NaN and 0.0 differs from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.isnan(a) == math.isnan(b) and (
            math.isnan(a) or (a == b and math.copysign(1, a) == math.copysign(1, b))
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@settings(max_examples=60)
@given(plain)
def test_plain_values(value: Any) -> None:
    text = json.dumps(values.Encoder("the value").encode(value), allow_nan=False)
    assert same(values.decode(json.loads(text), []), value)


ARRAYS = [
    np.ones((2, 3), ml_dtypes.bfloat16),
    np.ones(3, ml_dtypes.float8_e4m3fn),
    np.ones(3, ml_dtypes.int4),
    np.zeros((), ml_dtypes.bfloat16),
    np.arange(6).reshape(2, 3).T,
    np.arange(10)[::-2],
    np.zeros((0, 4), np.float32),
    np.array(5, np.uint64),
    np.array(["2020-01-01"], "M8[D]"),
    np.array([b"ab"]),
    np.array([True, False]),
    np.array([1 + 2j], np.complex64),
    np.broadcast_to(np.float32(1), (3, 2)),
    np.float64(2.0),
    ml_dtypes.bfloat16(1.5),
]


def write(folder: Path, value: Any) -> None:
    encoder = values.Encoder("the value")
    values.write(folder, encoder.encode(value), encoder.arrays)


def test_arrays(tmp_path: Path) -> None:
    write(tmp_path / "value", ARRAYS)
    for array, found in zip(ARRAYS, values.read(tmp_path / "value"), strict=True):
        assert type(found) is type(array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert (found == array).all()


LARGE = [
    np.arange(1 << 18, dtype=np.float64).reshape(4, -1),
    np.arange(1 << 18, dtype=np.float64).reshape(4, -1).T,
    np.ones((1 << 10, 1 << 10), ml_dtypes.bfloat16),
    np.broadcast_to(np.float32(1), (1 << 10, 1 << 10)),
]


def test_large_arrays_belong_to_who_reads_them(tmp_path: Path) -> None:
    """They may be changed and outlive their files, on every file system."""
    for local in (values._LOCAL, frozenset[str]()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(values, "_LOCAL", local)
            write(tmp_path / "value", LARGE)
            for array in values.read(tmp_path / "value"):
                array[...] = 0
            again = values.read(tmp_path / "value")
            os.truncate(tmp_path / "value" / "0.npy", 1 << 20)
            (tmp_path / "value" / "1.npy").unlink()
        for array, found in zip(LARGE[1:], again[1:], strict=True):
            assert type(found) is np.ndarray
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert (found == array).all()
        with pytest.raises(pr.FileError, match="damaged"):
            values.read(tmp_path / "value")


def keys(depth: int) -> Any:
    key: Any = ()
    for _ in range(depth):
        key = (key,)
    return {key: 1}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "pass its fields, {name: x[name]"),
        (np.void(b"abc"), "arrays of dtype |V3 do not travel"),
        (np.zeros(3).view(type("Own", (np.ndarray,), {})), "pass numpy.array(x)"),
        (keys(3000), "a key is nested more than 200 deep"),
        (Path("x"), "pass str(x)"),
        (range(3), "pass list(x)"),
    ],
    ids=["fields", "void", "own", "key", "path", "range"],
)
def test_what_cannot_travel(value: Any, words: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        values.Encoder("the value").encode({"x": [value]})
    assert str(caught.value).startswith("the value['x'][0] cannot travel: ")
    assert words in str(caught.value)


def test_a_key_of_jax_random(backend: str) -> None:
    import jax

    with pytest.raises(pr.InvalidArgumentError, match=r"value\[0\] .*Use jax.random.key_data"):
        values.Encoder("the value").encode([jax.random.key(0)])


def test_huge_whole_numbers(tmp_path: Path) -> None:
    write(tmp_path / "value", {"n": 10**5000})
    assert values.read(tmp_path / "value")["n"] == 10**5000


def test_a_value_appears_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "value"
    with pytest.raises(pr.FileError, match="absent or cut short"):
        values.read(folder)
    write(folder, [np.zeros(4)])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    for length in (140, 1, 0):
        os.truncate(folder / "0.npy", length)
        with pytest.raises(pr.FileError, match="is damaged"):
            values.read(folder)
    (folder / "0.npy").unlink()
    with pytest.raises(pr.FileError, match="absent or cut short"):
        values.read(folder)
    (folder / "tree.json").write_text('{"arrays": 0, "tree": {"$what": 1}}')
    with pytest.raises(pr.FileError, match="unknown mark"):
        values.read(folder)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    write(tmp_path / "value", [np.zeros(4)])
    np.save(tmp_path / "value" / "0.npy", np.array([print]), allow_pickle=True)
    with pytest.raises(pr.FileError, match="damaged"):
        values.read(tmp_path / "value")
