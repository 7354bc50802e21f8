"""The oracles of blocks, the inputs that they need, and the layouts, without a runtime."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreactant.arrays.dtypes import wide
from pyreactant.arrays.mesh import Mesh
from pyreactant.arrays.program import find_object
from pyreactant.arrays.sharding import Index
from pyreactant.arrays.source import ArraySource
from pyreactant.check.bounds.tracked import Tracked
from pyreactant.check.inputs import sources
from pyreactant.check.programs import CASES, Case
from pyreactant.check.regions import whole_index
from tests.harness import REPOSITORY
from tests.programs.common import CUBE, GRID, LINE, by_numpy, model_of, outputs_of

SIZE = 16


def a_block(data: st.DataObject, shape: tuple[int, ...]) -> Index:
    """A block with at least one element."""
    index = []
    for n in shape:
        start = data.draw(st.integers(0, n - 1))
        index.append(slice(start, data.draw(st.integers(start + 1, n))))
    return tuple(index)


def plain(block: Any) -> np.ndarray:
    return block.value if isinstance(block, Tracked) else block


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15)
@given(st.data())
def test_blocks_are_those_of_the_whole(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    dtype = data.draw(st.sampled_from([case.dtypes[0], case.dtypes[-1]]))
    inputs = sources(case.inputs(SIZE, dtype), data.draw(st.integers(0, 9)))
    for number, output in enumerate(outputs_of(case, SIZE, dtype)):
        index = a_block(data, output.shape)
        model = model_of(case, dtype)
        block: Any = case.expected(number, index, inputs, model)
        everything: Any = case.expected(number, whole_index(output.shape), inputs, model)
        assert type(block) is type(everything)
        if isinstance(block, Tracked):
            # NumPy's order of summation depends on the shape of the block.
            np.testing.assert_allclose(
                block.value, everything.value[index], rtol=0, atol=1e-12, strict=True
            )
            np.testing.assert_allclose(block.bound, everything.bound[index], rtol=1e-6)
        else:
            np.testing.assert_array_equal(block, everything[index], strict=True)
            assert block.dtype.name == output.dtype


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15)
@given(st.data())
def test_nothing_but_its_needs_changes_a_block(name: str, data: st.DataObject) -> None:
    """Changing inputs that a block does not need does not change the block."""
    case = CASES[name]
    dtype = case.dtypes[0]
    one, other = (sources(case.inputs(SIZE, dtype), seed) for seed in (0, 1))
    shapes = tuple(source.shape for source in one)
    number = data.draw(st.integers(0, len(outputs_of(case, SIZE, dtype)) - 1))
    index = a_block(data, outputs_of(case, SIZE, dtype)[number].shape)
    needs = case.needs(number, index, shapes)
    mixed = []
    for a, b, need in zip(one, other, needs, strict=True):
        array = b.read(whole_index(b.shape))
        array[need] = a.read(need)
        mixed.append(ArraySource(array))
    shape = outputs_of(case, SIZE, dtype)[number].shape
    before, after = (
        plain(case.expected(number, whole_index(shape), tuple(s), model_of(case, dtype)))[index]
        for s in (one, mixed)
    )
    np.testing.assert_allclose(before, after, rtol=0, atol=1e-12)


IN_PIECES = [name for name, case in CASES.items() if case.oracle and case.oracle.elements]


@pytest.mark.parametrize("name", IN_PIECES)
def test_oracles_in_pieces_give_what_numpy_gives(name: str) -> None:
    """160 rows are more than one piece."""
    case = CASES[name]
    for dtype in case.dtypes:
        inputs, model = sources(case.inputs(160, dtype), 1), model_of(case, dtype)
        arrays = [source.read(whole_index(source.shape)) for source in inputs]
        right = by_numpy(case, *(wide(a) if model is not None else a for a in arrays))
        for number, output in enumerate(outputs_of(case, 160, dtype)):
            everything: Any = case.expected(number, whole_index(output.shape), inputs, model)
            for index in (whole_index(output.shape), tuple(slice(3, 150) for _ in output.shape)):
                block: Any = case.expected(number, index, inputs, model)
                if model is not None:
                    np.testing.assert_allclose(block.bound, everything.bound[index], rtol=1e-6)
                wanted = np.asarray(right[number])[index]
                np.testing.assert_allclose(plain(block), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_what_a_case_says_of_itself(name: str) -> None:
    case = CASES[name]
    assert case.name == name
    for body in (case.program.jax, case.program.oracle):
        assert callable(find_object(str(body)))
    assert str(case.program.jax).endswith(f":{name}")
    assert case.program.julia == f"PyReactant.Programs.{name}"
    assert case.summary
    assert len(case.summary) < 60
    inputs = case.inputs(SIZE, case.dtypes[0])
    for mesh in (LINE, GRID, CUBE):
        layouts = case.layouts(mesh)
        assert len(set(layouts)) == len(layouts) >= 2
        for layout in layouts:
            assert type(layout).from_dict(layout.to_dict()) == layout
            assert len(layout.in_specs) == len(inputs)
    for number in range(len(outputs_of(case, SIZE, case.dtypes[0]))):
        for i, dimension in case.contracted(number):
            assert 0 <= dimension < len(inputs[i].shape)


def test_every_program_has_a_julia_body_in_the_file_of_its_family() -> None:
    for name, case in CASES.items():
        family = str(case.program.jax).partition(":")[0].rpartition(".")[2]
        text = (REPOSITORY / "julia" / "src" / "programs" / f"{family}.jl").read_text()
        assert re.search(rf"^(function )?{name}\(", text, re.MULTILINE), name


def test_layouts_that_do_not_divide_are_left_out() -> None:
    case = CASES["matmul"]
    assert len(case.layouts(GRID, 12)) < len(case.layouts(GRID, 16))
    assert case.layouts(GRID, 9)[0].in_specs == ((None, None), (None, None))


@pytest.mark.parametrize("name", CASES)
def test_a_size_for_any_mesh(name: str) -> None:
    case = CASES[name]
    assert case.size_for(GRID) == case.size_for(LINE) == case.default_size
    six = Mesh((2, 3), ("x", "y"))
    size = case.size_for(six)
    assert case.default_size <= size < case.default_size + 24
    assert set(case.layouts(six, size)) == set(case.layouts(GRID))


def test_defaults_cut_over_all_axes_and_the_first_product_is_that_of_the_reference_case() -> None:
    assert CASES["matmul"].layouts(GRID)[0].in_specs == (("x", "y"), ("x", "y"))
    for case in map(CASES.__getitem__, CASES):
        layout = case.layouts(GRID)[0]
        assert {axis for spec in layout.in_specs for axis in spec} - {None}


@pytest.mark.parametrize("name", CASES)
def test_float32_oracle_in_float32_is_within_the_bound(name: str) -> None:
    """The oracle in the checked type is like another correct runtime."""
    case: Case = CASES[name]
    dtype = case.dtypes[0]
    if case.is_exact(dtype):
        return
    for seed in range(5):
        inputs = sources(case.inputs(SIZE, dtype), seed)
        results = by_numpy(case, *(source.read(whole_index(source.shape)) for source in inputs))
        for number, (output, got) in enumerate(
            zip(outputs_of(case, SIZE, dtype), results, strict=True)
        ):
            expected = case.expected(
                number, whole_index(output.shape), inputs, model_of(case, dtype)
            )
            assert isinstance(expected, Tracked)
            assert np.all(np.abs(got - expected.value) <= expected.bound)
