"""The sets of inputs: the same in blocks as in whole, in range, and as exact as they say."""

from typing import Any

import numpy as np
import pytest

from pyreactant.arrays.dtypes import finfo
from pyreactant.arrays.source import ArraySource
from pyreactant.check.inputs import SETS, InputSet, exponents, input_sets
from pyreactant.check.programs import CASES, find_case

MANY = [(name, dtype) for name in CASES for dtype in find_case(name).dtypes]


def named(program: str, dtype: str, name: str, size: int = 16) -> InputSet:
    return next(one for one in input_sets(find_case(program), size, dtype) if one.name == name)


def whole(found: InputSet, program: str, dtype: str, number: int = 0, size: int = 16) -> Any:
    what = find_case(program).inputs(size, dtype)[number]
    return found.make(what, 7, number).read(tuple(slice(0, n) for n in what.shape))


def in_full(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@pytest.mark.parametrize(("program", "dtype"), MANY)
def test_a_block_is_a_part_of_the_whole(program: str, dtype: str) -> None:
    for found in input_sets(find_case(program), 16, dtype):
        assert found.name in SETS
        for number, what in enumerate(find_case(program).inputs(16, dtype)):
            everything = whole(found, program, dtype, number)
            assert everything.shape == what.shape
            assert everything.dtype.name == what.dtype
            part = tuple(slice(n // 4, n // 2 + 1) for n in what.shape)
            block = found.make(what, 7, number).read(part)
            assert block.tobytes() == everything[part].tobytes()


@pytest.mark.parametrize(("program", "dtype"), MANY)
def test_exact_probes_stay_below_the_type_s_whole_numbers(program: str, dtype: str) -> None:
    """With absolute values in place of values, the oracle gives the sum of |x||y|."""
    case = find_case(program)
    for size in (8, 16, 300):
        probes = [one for one in input_sets(case, size, dtype) if one.whole]
        if not probes or (size == 300 and program not in ("row_sum", "full_sum", "matvec")):
            continue
        parts = [
            whole(probes[0], program, dtype, number, size)
            for number in range(len(case.inputs(size, dtype)))
        ]
        values = [in_full(part) for part in parts]
        assert all((x.real == np.rint(x.real)).all() for x in values)
        assert all((np.abs(x) > 0).any() for x in values)
        assert case.outputs is not None
        shape = case.outputs(size, dtype)[0].shape
        index = tuple(slice(0, n) for n in shape)
        sizes = tuple(np.abs(x.real) + np.abs(x.imag) for x in values)
        if case.domain.degree == 1:  # sums keep the parts of complex numbers apart
            sizes = tuple(np.abs(x.real) for x in values)
        most = np.max(np.asarray(case.expected(0, index, tuple(map(ArraySource, sizes)), None)))
        assert most <= 2.0 ** (int(finfo(parts[0].dtype).nmant) + 1)


def test_an_exact_probe_of_a_long_sum_has_zeros() -> None:
    found = named("full_sum", "bfloat16", "exact", 64)
    assert found.text == "whole numbers from -1 to 1, 1 of 16 is not zero"
    assert np.count_nonzero(in_full(whole(found, "full_sum", "bfloat16", size=64))) == 256


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_wide_inputs_have_many_sizes_and_offsets(dtype: str) -> None:
    found, case = named("row_sum", dtype, "wide", 64), find_case("row_sum")
    low, high = exponents(case, 64, dtype)
    assert (low, high) == ((-5, 5) if dtype == "float16" else (-20, 20))
    assert f"from 2^{low} to 2^{high}" in found.text
    assert not found.random
    x = in_full(whole(found, "row_sum", dtype, size=64))
    assert np.abs(x).max() <= 2.0**high
    rows = [set(np.floor(np.log2(np.abs(row[row != 0])))) for row in x]
    assert max(map(len, rows)) > 5  # mixed magnitudes
    near = [np.abs(row).max() < 1.5 * np.abs(row).min() for row in x]
    same = [len(set(np.sign(row))) == 1 for row in x]
    assert any(a and b for a, b in zip(near, same, strict=True))  # an offset
    assert any(a and not b for a, b in zip(near, same, strict=True))  # one that cancels


def test_wide_inputs_use_all_bits() -> None:
    x = whole(named("matmul", "float64", "wide"), "matmul", "float64")
    assert (np.abs(np.frexp(x)[0]) * 2.0**40 % 1 != 0).mean() > 0.9
    z = whole(named("matmul", "complex64", "wide"), "matmul", "complex64")
    for part in (z.real, z.imag):
        assert (np.abs(np.frexp(part)[0]) * 2.0**18 % 1 != 0).mean() > 0.5
    n = whole(named("matmul", "int32", "wide"), "matmul", "int32")
    assert np.abs(n.astype(np.int64)).max() > 2**30
    assert (n < 0).any()


def test_no_partial_result_of_wide_inputs_overflows() -> None:
    assert exponents(find_case("matmul"), 64, "float16") == (-5, 3)
    assert exponents(find_case("matmul"), 4096, "float16")[1] < 1
    assert exponents(find_case("matmul"), 64, "float64") == (-20, 20)
    assert exponents(find_case("attention"), 32, "float32") == (-4, 4)


def test_special_values_are_where_the_program_defines_them() -> None:
    x = whole(named("transpose", "float32", "special"), "transpose", "float32")
    assert np.isnan(x).any()
    assert {np.inf, -np.inf} <= set(x[np.isinf(x)])
    assert {False, True} == set(np.signbit(x[x == 0]))
    assert ((x != 0) & (np.abs(x) < np.finfo(np.float32).tiny)).any()
    assert np.isfinite(x[::2]).all()
    assert not [one for one in input_sets(find_case("fft"), 16, "complex64") if one.name != "wide"]
    assert not input_sets(find_case("random_fill"), 16, "float32")
    assert not input_sets(find_case("transpose"), 16, "bool")
    y = whole(named("matmul", "float32", "special"), "matmul", "float32", 1)
    assert np.isfinite(y).all()
