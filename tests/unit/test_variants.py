"""The layouts and element types that run: one, a small matrix, or all."""

import pytest

import pyreactant as pr
from pyreactant.check.programs import CASES, find_case
from pyreactant.check.variants import ALL, ONE, SOME, Variant, cuts, variants

MESHES = [
    pr.Mesh((2, 4), ("x", "y")),
    pr.Mesh((2, 2, 2), ("x", "y", "z")),
    pr.Mesh((8,), ("x",)),
    pr.Mesh((1,), ("x",), [0]),
]


def chosen(
    name: str, mesh: pr.Mesh, extent: str, *, specs: bool = False, dtype: bool = False
) -> tuple[Variant, ...]:
    case = find_case(name)
    size = case.size_for(mesh)
    first = Variant(case.dtypes[0], case.layouts(mesh, size)[0])
    found = variants(case, mesh, size, extent, first, specs=specs, dtype=dtype)
    assert found[0] == first
    assert len(set(found)) == len(found)
    assert all(case.fits(mesh, one.layout, size) and one.dtype in case.dtypes for one in found)
    return found


@pytest.mark.parametrize("mesh", MESHES, ids=["2x4", "2x2x2", "8", "1"])
def test_each_axis_cuts_each_dimension_of_each_array(mesh: pr.Mesh) -> None:
    total = 0
    for name in CASES:
        found = chosen(name, mesh, SOME)
        total += len(found)
        shapes = find_case(name).shapes(find_case(name).size_for(mesh))
        got = {cut for one in found for cut in cuts(one.layout, shapes, mesh)}
        assert got == {
            (number, dimension, axis)
            for number, shape in enumerate(shapes)
            for dimension, n in enumerate(shape)
            for axis in mesh.axis_names
            if n % mesh.axis_size(axis) == 0 and mesh.axis_size(axis) > 1
        }
    assert total < 4 * len(CASES)


def test_all_programs_together_have_all_types() -> None:
    found = {one.dtype for name in CASES for one in chosen(name, MESHES[0], SOME)}
    assert found == {dtype for name in CASES for dtype in find_case(name).dtypes}


def test_one_and_all() -> None:
    mesh = MESHES[0]
    assert len(chosen("matmul", mesh, ONE)) == 1
    case, every = find_case("matmul"), chosen("matmul", mesh, ALL)
    layouts = case.layouts(mesh, case.size_for(mesh))
    assert {Variant(dtype, one) for dtype in case.dtypes for one in layouts} <= set(every)
    assert set(chosen("matmul", mesh, SOME)) <= set(every)


def test_a_requested_layout_or_type_is_the_only_one() -> None:
    mesh = MESHES[0]
    for extent in (SOME, ALL):
        assert {one.dtype for one in chosen("matmul", mesh, extent, dtype=True)} == {"float32"}
        assert len({one.layout for one in chosen("matmul", mesh, extent, specs=True)}) == 1
        assert len(chosen("matmul", mesh, extent, specs=True, dtype=True)) == 1
