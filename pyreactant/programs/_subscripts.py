"""Subscripts of a program's arrays, as in einsum, such as "mk,kn->mn".

The subscripts determine the shapes, the part of each input that a block of the output needs, the
summed dimensions, the layouts and, for many programs, the communicated bytes.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._core.mesh import Mesh
from .._core.sharding import Index, as_axes, as_entry
from ._case import Layout, Shape, Spec

Assignment = Mapping[str, tuple[str, ...]]
"""The mesh axes that shard each dimension, by its label."""


@dataclass(frozen=True)
class Subscripts:
    """Labels for the dimensions of a program's arrays; dimensions of equal size share a label.

    Args:
        text: Inputs and outputs, such as "mk,kn->mn".
        sizes: Size of a label's dimensions as a function of n; other labels have size n.
        whole: Labels of the outputs along which each element depends on the whole inputs, such
            as the columns of a softmax.
        cut: Labels of the dimensions that may be sharded; "" means all.
    """

    text: str
    sizes: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    whole: str = ""
    cut: str = ""

    @property
    def inputs(self) -> list[str]:
        """Subscripts of each input."""
        return self.text.partition("->")[0].split(",")

    @property
    def outputs(self) -> list[str]:
        """Subscripts of each output."""
        return self.text.partition("->")[2].split(",")

    def shape(self, subscripts: str, n: int) -> Shape:
        """Shape of an array with these subscripts."""
        return tuple(self.sizes.get(label, _same)(n) for label in subscripts)

    def needs(self, output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
        """As `Case.needs`: the output's slice for its own labels, everything for the others."""
        known = {
            label: part
            for label, part in zip(self.outputs[output], index, strict=True)
            if label not in self.whole
        }
        return tuple(
            tuple(known.get(label, slice(0, n)) for label, n in zip(subscripts, shape, strict=True))
            for subscripts, shape in zip(self.inputs, shapes, strict=True)
        )

    def contracted(self, output: int) -> tuple[tuple[int, int], ...]:
        """As `Case.contracted`: the labels that the output lacks, and those of `whole`."""
        return tuple(
            (i, dimension)
            for i, subscripts in enumerate(self.inputs)
            for dimension, label in enumerate(subscripts)
            if label not in self.outputs[output] or label in self.whole
        )

    def block(self, output: int, index: Index, result: Any) -> Any:
        """The block of a result that is complete along the labels of `whole`."""
        return result[
            tuple(
                part if label in self.whole else slice(None)
                for label, part in zip(self.outputs[output], index, strict=True)
            )
        ]

    def layouts(self, mesh: Mesh, n: int) -> Iterator[Layout]:
        """As `Case.candidates`: each label is sharded in the same way in every array."""
        labels = self.cut or "".join(dict.fromkeys("".join((*self.inputs, *self.outputs))))
        for assignment in assignments(labels, mesh):
            yield self.layout(assignment)

    def layout(self, cuts: Assignment) -> Layout:
        """The layout in which these axes shard the dimensions of each label."""
        ins, outs = (
            tuple(spec(subscripts, cuts) for subscripts in group)
            for group in (self.inputs, self.outputs)
        )
        return Layout(ins, outs)

    def axes(self, layout: Layout) -> dict[str, tuple[str, ...]] | None:
        """The axes of each label; None if they differ between arrays, or two labels share one."""
        found: dict[str, tuple[str, ...]] = {}
        arrays = zip(
            (*self.inputs, *self.outputs), (*layout.in_specs, *layout.out_specs), strict=True
        )
        for subscripts, one in arrays:
            padded = (*one, *[None] * (len(subscripts) - len(one)))
            for label, entry in zip(subscripts, padded, strict=True):
                if found.setdefault(label, as_axes(entry)) != as_axes(entry):
                    return None
        used = [axis for axes in found.values() for axis in axes]
        return found if len(used) == len(set(used)) else None

    def cut_of(self, label: str, mesh: Mesh, axes: Assignment) -> int:
        """The number of blocks along a dimension with this label."""
        return math.prod(mesh.axis_size(axis) for axis in axes[label])

    def block_elements(self, subscripts: str, mesh: Mesh, axes: Assignment, n: int) -> int:
        """Elements of one block of an array with these subscripts."""
        sizes = self.shape(subscripts, n)
        return math.prod(
            size // self.cut_of(label, mesh, axes)
            for label, size in zip(subscripts, sizes, strict=True)
        )


def assignments(labels: str, mesh: Mesh) -> Iterable[Assignment]:
    """Assignments of a mesh's axes to two labels, to one label, and to none.

    Axes beyond the second stay with the second, so that the number of assignments depends on the
    labels and not on the mesh.
    """
    names = mesh.axis_names
    first, rest = names[:1], names[1:]
    if rest:
        for one, other in itertools.permutations(labels, 2):
            yield {one: first, other: rest}
    for label in labels:
        yield {label: names}
    if rest and labels:
        yield {labels[0]: (*rest, *first)}
        yield {labels[-1]: first}
    yield {}


def spec(subscripts: str, cuts: Assignment) -> Spec:
    """The partition spec of an array with these subscripts."""
    return tuple(as_entry(cuts.get(label, ())) for label in subscripts)


def _same(n: int) -> int:
    return n
