"""Operands, read block by block: from a seed, from memory, from valid and damaged files."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import pyreactant as pr
from pyreactant.arrays import source as source_module
from pyreactant.arrays.dtypes import NAMES, as_array, as_dtype
from pyreactant.arrays.source import ArraySource, RandomSource, open_npy


@given(st.data(), st.sampled_from([n for n in NAMES if n != "bool"]), st.booleans())
def test_any_block_of_a_random_matrix_is_that_of_the_whole(
    data: Any, dtype: str, kept: bool
) -> None:
    m, n = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 40))
    whole = RandomSource((m, n), dtype, seed=7, stream=1).read((slice(0, m), slice(0, n)))
    source = RandomSource((m, n), dtype, seed=7, stream=1)
    rows = sorted(data.draw(st.tuples(st.integers(0, m), st.integers(0, m))))
    columns = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    index = slice(*rows), slice(*columns)
    with patch.object(source_module, "KEPT", source_module.KEPT if kept else 0):
        block = source.read(index)
    assert block.dtype == as_dtype(dtype)
    assert block.tobytes() == whole[index].tobytes()
    block[...] = 0
    assert source.read(index).tobytes() == whole[index].tobytes(), "each reader has its own block"


def test_random_matrices_differ_and_look_random() -> None:
    def read(seed: int, stream: int) -> np.ndarray:
        return RandomSource((256, 256), "float32", seed, stream).read((slice(0, 256),) * 2)

    first = read(0, 0)
    assert abs(first.mean()) < 0.01
    assert abs(first.std() - 1 / np.sqrt(3)) < 0.01
    assert np.abs(np.corrcoef(first) - np.eye(256)).max() < 0.4
    assert (first != read(1, 0)).mean() > 0.99
    assert (first != read(0, 1)).mean() > 0.99


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float32", ">f4", "bfloat16", "complex128"])
def test_npy_round_trip(order: Any, dtype: str, tmp_path: Path) -> None:
    kind = np.dtype(dtype) if dtype == ">f4" else as_dtype(dtype)
    array = np.asarray(np.arange(12).reshape(3, 4), dtype=kind, order=order)
    np.save(tmp_path / "a.npy", array)
    source = open_npy(tmp_path / "a.npy", dtype if dtype == "bfloat16" else None)
    assert source.shape == (3, 4)
    assert source.dtype == kind.newbyteorder("=")
    block = source.read((slice(1, 3), slice(0, 2)))
    assert block.dtype == kind.newbyteorder("=")
    np.testing.assert_array_equal(block, array[1:3, :2].astype(kind.newbyteorder("=")))


def _saved(folder: Path, array: np.ndarray) -> bytes:
    np.save(folder / "good.npy", array, allow_pickle=True)
    return (folder / "good.npy").read_bytes()


@pytest.mark.parametrize(
    ("array", "cut", "kind", "message"),
    [
        (np.ones((9, 9)), 300, pr.FileError, "it is truncated"),
        (np.ones((9, 9)), 40, pr.FileError, "it is truncated"),
        (np.ones((9, 9)), 3, pr.FileError, "it has another format"),
        (np.ones((9, 9)), 0, pr.FileError, "not a whole .npy file"),
        (np.array([[None]]), None, pr.DTypeError, "holds Python objects"),
        (np.array([["text"]]), None, pr.DTypeError, "no runtime holds"),
        (np.ones(9), None, pr.FileError, r"must hold a matrix, got an array of shape \(9,\)"),
        (np.ones((2, 2), as_dtype("bfloat16")), None, pr.DTypeError, "dtype='bfloat16'"),
    ],
)
def test_bad_files(array: Any, cut: int | None, kind: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.npy"
    path.write_bytes(_saved(tmp_path, array)[:cut])
    with pytest.raises(kind, match=message):
        open_npy(path)


def test_missing_file_folder_archive_and_dtype(tmp_path: Path) -> None:
    with pytest.raises(pr.FileError, match="no such file"):
        open_npy(tmp_path / "none.npy")
    with pytest.raises(pr.FileError, match="cannot be read"):
        open_npy(tmp_path)
    np.savez(tmp_path / "a.npz", np.ones(2))
    with pytest.raises(pr.FileError, match="archive; give a"):
        open_npy(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with pytest.raises(pr.DTypeError, match="holds float64, but dtype float32 was requested"):
        open_npy(tmp_path / "a.npy", "float32")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_raise_ours(tmp_path: Path, data: Any) -> None:
    content = bytearray(_saved(tmp_path, np.ones((4, 4), np.float32)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 127))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.npy"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        source = open_npy(path)
    except (pr.FileError, pr.DTypeError):
        return
    assert isinstance(source, ArraySource)
    source.read((slice(0, 1), slice(0, 1)))


@pytest.mark.parametrize(
    "bad", ["text", [[object()]], np.array(["2020"], "M8[Y]"), np.longdouble(1)]
)
def test_arrays_that_no_runtime_holds(bad: Any) -> None:
    with pytest.raises(pr.DTypeError, match="no runtime holds"):
        as_array(bad)


def test_dtype_names() -> None:
    assert [as_dtype(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(pr.DTypeError, match="unknown dtype 'float13'; known are bool"):
        as_dtype("float13")
