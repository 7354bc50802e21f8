"""A built-in program's case from its subscripts and its NumPy oracle.

Subscripts of a program's arrays are as in einsum, such as "mk,kn->mn". They determine the shapes,
the part of each input that a block of the output needs, the summed dimensions and the layouts.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import Index, as_entry
from .case import Case, Input, Inputs, Layout, Oracle, Output, Shape, Spec

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
        return tuple(self.sizes[label](n) if label in self.sizes else n for label in subscripts)

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
        for cuts in _assignments(labels, mesh):
            ins, outs = (
                tuple(_spec(subscripts, cuts) for subscripts in group)
                for group in (self.inputs, self.outputs)
            )
            yield Layout(ins, outs)


def _assignments(labels: str, mesh: Mesh) -> Iterable[Assignment]:
    """Assignments of a mesh's axes to two labels, to one label, and to none.

    Axes beyond the second stay with the second, so that the number of assignments depends on the
    labels and not on the mesh.
    """
    names = mesh.axis_names
    first, rest = names[:1], names[1:]
    if rest:
        for label, other in itertools.permutations(labels, 2):
            yield {label: first, other: rest}
    for label in labels:
        yield {label: names}
    if rest and labels:
        yield {labels[0]: (*rest, *first)}
        yield {labels[-1]: first}
    yield {}


def _spec(subscripts: str, cuts: Assignment) -> Spec:
    """The partition spec of an array with these subscripts."""
    return tuple(as_entry(cuts.get(label, ())) for label in subscripts)


REALS = ("float32", "float64", "bfloat16", "float16")
NUMBERS = (*REALS, "complex64", "complex128", "int32")


def subscript_case(
    body: Callable[..., Any],
    summary: str,
    subscripts: Subscripts,
    reference: Callable[..., Any],
    *,
    weights: Collection[int] = (),
    extra: Callable[[Mesh, int], Iterable[Layout]] | None = None,
    **fields: Any,
) -> Case:
    """The case of a program whose arrays are all of one dtype.

    Args:
        body: The JAX body; its name is that of the Julia body, too, and of the program in reports.
        summary: Description in one line.
        subscripts: Subscripts of its arrays.
        reference: The NumPy body; from the parts that a block needs it computes that block,
            complete along ``subscripts.whole``.
        weights: Numbers of the inputs that are scaled by the power of two which keeps sums of n
            products near 1.
        extra: Layouts before those of the subscripts; the first is the default.
        fields: Fields of `Case` that are not the usual ones.
    """
    needs = fields.get("needs", subscripts.needs)

    def inputs(n: int, dtype: str) -> tuple[Input, ...]:
        small = 2.0 ** -round(np.log2(n) / 2)
        return tuple(
            Input(labels, subscripts.shape(labels, n), dtype, scale=small if i in weights else 1)
            for i, labels in enumerate(subscripts.inputs)
        )

    def outputs(n: int, dtype: str) -> tuple[Output, ...]:
        return tuple(Output(subscripts.shape(labels, n), dtype) for labels in subscripts.outputs)

    def candidates(mesh: Mesh, n: int) -> Iterable[Layout]:
        yield from extra(mesh, n) if extra else ()
        yield from subscripts.layouts(mesh, n)

    def block(output: int, index: Index, inputs: Inputs) -> Any:
        parts = [inputs.read(i, part) for i, part in enumerate(needs(output, index, inputs.shapes))]
        results = reference(*parts)
        result = results[output] if len(subscripts.outputs) > 1 else results
        part = subscripts.block(output, index, result)
        if isinstance(part, (np.ndarray, np.generic)):
            # NumPy sums short integers in 64 bits; runtimes compute modulo 2**bits.
            return np.asarray(part, parts[0].dtype)
        return part

    program = Program(
        body.__name__,
        jax=f"{body.__module__}:{body.__name__}",
        julia=f"PyReactant.Programs.{body.__name__}",
        oracle=f"{reference.__module__}:{reference.__name__}",
    )
    usual: dict[str, Any] = {
        "dtypes": REALS,
        "default_size": 64,
        "inputs": inputs,
        "outputs": outputs,
        "candidates": candidates,
        "needs": needs,
        "oracle": Oracle(block),
        "random": True,
        "contracted": subscripts.contracted,
    }
    return Case(program=program, summary=summary, **(usual | fields))
