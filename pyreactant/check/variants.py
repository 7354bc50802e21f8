"""Which layouts and element types of a program run: one, a small matrix, or all."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..arrays.mesh import Mesh
from ..arrays.sharding import NamedSharding
from .programs.case import Case, Layout, Shape, Spec

ONE, SOME, ALL = "one", "some", "all"

EXTENTS = (ONE, SOME, ALL)
"""One layout and type; each mesh axis across each dimension of each array; everything."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An element type and a layout of a program."""

    dtype: str
    layout: Layout


def variants(
    case: Case, mesh: Mesh, size: int, extent: str, first: Variant, *, specs: bool, dtype: bool
) -> tuple[Variant, ...]:
    """The variants of a program to run.

    With "some", the layouts are the fewest that a greedy search finds in which each mesh axis cuts
    each dimension of each array that it divides at least once. Element types alternate, up to three
    of a program; programs begin at different ones, so that all programs together have all types.

    Args:
        case: The program.
        mesh: Mesh of the devices.
        size: The "n" of its shapes.
        extent: One of `EXTENTS`.
        first: The requested or default variant, which comes first.
        specs: Whether the layout is requested, and so the only one.
        dtype: Whether the element type is requested, and so the only one.
    """
    if extent == ONE or case.oracle is None:
        return (first,)
    dtypes = [first.dtype] if dtype else _in_turn(case, first.dtype)
    layouts = [first.layout]
    if not specs and extent == ALL:
        more = (*case.layouts(mesh, size), *_cover(case, mesh, size, first.layout))
        layouts += [layout for layout in dict.fromkeys(more) if layout != first.layout]
    elif not specs:
        layouts += _cover(case, mesh, size, first.layout)
    pairs: Iterable[tuple[Layout, str]] = itertools.product(layouts, dtypes)
    if extent != ALL:
        count = max(len(layouts), min(_TYPES, len(dtypes)))
        pairs = itertools.islice(zip(itertools.cycle(layouts), itertools.cycle(dtypes)), count)
    return tuple(dict.fromkeys(Variant(dtype, layout) for layout, dtype in pairs))


_TYPES = 3
"""Most element types of a program in a matrix of layouts and types; each compiles once more."""


def _in_turn(case: Case, first: str) -> list[str]:
    """A program's element types: the first one, then the others from a different one on."""
    others = [dtype for dtype in case.dtypes if dtype != first]
    turn = sum(map(ord, case.name)) % max(1, len(others))
    return [first, *others[turn:], *others[:turn]]


Cut = tuple[int, int, str]
"""The number of an array among inputs and outputs, a dimension, and a mesh axis that cuts it."""


def cuts(layout: Layout, shapes: Sequence[Shape], mesh: Mesh) -> set[Cut]:
    """The cuts of a layout of arrays of these shapes; axes of length 1 cut nothing."""
    specs = (*layout.in_specs, *layout.out_specs)
    return {
        (number, dimension, axis)
        for number, (spec, shape) in enumerate(zip(specs, shapes, strict=False))
        for dimension, axes in enumerate(NamedSharding(mesh, spec).axes(len(shape)))
        for axis in axes
        if mesh.axis_size(axis) > 1
    }


def _cover(case: Case, mesh: Mesh, size: int, first: Layout) -> Iterator[Layout]:
    """More layouts, until each axis cuts each dimension; the program's own ones come first."""
    shapes = case.shapes(size)
    known = cuts(first, shapes, mesh)
    inputs = len(case.inputs(size, case.dtypes[0]))
    outputs = bool(first.out_specs)
    for source in (case.layouts(mesh, size), _turned(mesh, shapes, inputs, outputs)):
        left = [(one, cuts(one, shapes, mesh)) for one in source if case.fits(mesh, one, size)]
        while left:
            best, new = max(left, key=lambda one: len(one[1] - known))
            if not new - known:
                break
            known |= new
            yield best


def _turned(mesh: Mesh, shapes: Sequence[Shape], inputs: int, outputs: bool) -> Iterable[Layout]:
    """Layouts in which all arrays have the mesh axes in turn, from each dimension on.

    Axes that do not divide a dimension are left out.
    """
    names = mesh.axis_names
    most = max([1, len(names), *map(len, shapes)])
    for turn in range(most):
        specs = [_turned_spec(mesh, shape, turn) for shape in shapes]
        yield Layout(tuple(specs[:inputs]), tuple(specs[inputs:]) if outputs else ())


def _turned_spec(mesh: Mesh, shape: Shape, turn: int) -> Spec:
    names = mesh.axis_names
    places = max(len(shape), len(names), 1)
    spec: list[str | None] = []
    for dimension, n in enumerate(shape):
        place = (dimension + turn) % places
        name = names[place] if place < len(names) else None
        spec.append(name if name and n % mesh.axis_size(name) == 0 else None)
    return tuple(spec)
