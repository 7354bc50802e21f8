"""Cases whose dimensions have letters: "mk,kn->mn" says what depends on what.

From the letters follow the shapes, the part of each input that a block of the output needs, what
is summed over, the layouts and, for many programs, the bytes that must move.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._core.mesh import Mesh
from .._core.sharding import Axes, Index
from ._case import Layout, Shape, Spec

Assignment = Mapping[str, tuple[str, ...]]
"""Which mesh axes cut the dimensions of a letter."""


@dataclass(frozen=True)
class Letters:
    """The dimensions of a program's arrays, one letter each.

    Args:
        text: Inputs and outputs, for instance "mk,kn->mn".
        sizes: Size of a letter from n; n itself where it is not named.
        whole: Letters along which an output needs all, though it has them too, as the columns
            of a softmax.
        cut: Letters that meshes may cut; "" for all.
    """

    text: str
    sizes: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    whole: str = ""
    cut: str = ""

    @property
    def inputs(self) -> list[str]:
        """Letters of each input."""
        return self.text.partition("->")[0].split(",")

    @property
    def outputs(self) -> list[str]:
        """Letters of each output."""
        return self.text.partition("->")[2].split(",")

    def shape(self, letters: str, n: int) -> Shape:
        """Shape of an array with these letters."""
        return tuple(self.sizes.get(letter, _same)(n) for letter in letters)

    def needs(self, output: int, index: Index, shapes: tuple[Shape, ...]) -> tuple[Index, ...]:
        """As `Case.needs`: a letter of the output is its slice, all others are needed whole."""
        known = {
            letter: part
            for letter, part in zip(self.outputs[output], index, strict=True)
            if letter not in self.whole
        }
        return tuple(
            tuple(known.get(letter, slice(0, n)) for letter, n in zip(letters, shape, strict=True))
            for letters, shape in zip(self.inputs, shapes, strict=True)
        )

    def contracted(self, output: int) -> tuple[tuple[int, int], ...]:
        """As `Case.contracted`: letters that the output does not have, or needs whole."""
        return tuple(
            (i, dimension)
            for i, letters in enumerate(self.inputs)
            for dimension, letter in enumerate(letters)
            if letter not in self.outputs[output] or letter in self.whole
        )

    def block(self, output: int, index: Index, result: Any) -> Any:
        """The block of a result that is whole along the letters of `whole`."""
        return result[
            tuple(
                part if letter in self.whole else slice(None)
                for letter, part in zip(self.outputs[output], index, strict=True)
            )
        ]

    def layouts(self, mesh: Mesh, n: int) -> Iterator[Layout]:
        """As `Case.candidates`: every letter cut in the same way wherever it stands."""
        letters = self.cut or "".join(dict.fromkeys("".join((*self.inputs, *self.outputs))))
        for assignment in assignments(letters, mesh):
            yield self.layout(assignment)

    def layout(self, cuts: Assignment) -> Layout:
        """The layout in which each letter is cut by these axes."""
        ins, outs = (
            tuple(spec(letters, cuts) for letters in group) for group in (self.inputs, self.outputs)
        )
        return Layout(ins, outs)

    def axes(self, layout: Layout) -> dict[str, tuple[str, ...]] | None:
        """The axes of each letter; None where a letter is cut in two ways, or two in the same."""
        found: dict[str, tuple[str, ...]] = {}
        arrays = zip(
            (*self.inputs, *self.outputs), (*layout.in_specs, *layout.out_specs), strict=True
        )
        for letters, one in arrays:
            padded = (*one, *[None] * (len(letters) - len(one)))
            for letter, entry in zip(letters, padded, strict=True):
                if found.setdefault(letter, as_axes(entry)) != as_axes(entry):
                    return None
        used = [axis for axes in found.values() for axis in axes]
        return found if len(used) == len(set(used)) else None

    def cut_of(self, letter: str, mesh: Mesh, axes: Assignment) -> int:
        """Into how many blocks the dimensions of a letter are cut."""
        return math.prod(mesh.axis_size(axis) for axis in axes[letter])

    def block_elements(self, letters: str, mesh: Mesh, axes: Assignment, n: int) -> int:
        """Elements of one block of an array with these letters."""
        sizes = self.shape(letters, n)
        return math.prod(
            size // self.cut_of(letter, mesh, axes)
            for letter, size in zip(letters, sizes, strict=True)
        )


def assignments(letters: str, mesh: Mesh) -> Iterable[Assignment]:
    """Ways to cut letters by a mesh: two at once, one by all axes, by one, none.

    Axes beyond the second go with the second, so that the number of ways depends on the letters
    and not on the mesh.
    """
    names = mesh.axis_names
    first, rest = names[:1], names[1:]
    if rest:
        for one, other in itertools.permutations(letters, 2):
            yield {one: first, other: rest}
    for letter in letters:
        yield {letter: names}
    if rest and letters:
        yield {letters[0]: (*rest, *first)}
        yield {letters[-1]: first}
    yield {}


def spec(letters: str, cuts: Assignment) -> Spec:
    """The partition spec of an array with these letters."""
    return tuple(as_entry(cuts.get(letter, ())) for letter in letters)


def as_axes(entry: Axes) -> tuple[str, ...]:
    """The axes that an entry of a spec names."""
    return () if entry is None else (entry,) if isinstance(entry, str) else entry


def as_entry(axes: tuple[str, ...]) -> Axes:
    """The entry of a spec that names these axes."""
    return None if not axes else axes[0] if len(axes) == 1 else axes


def _same(n: int) -> int:
    return n
