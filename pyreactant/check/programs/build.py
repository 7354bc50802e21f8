"""A built-in program's case from its subscripts and its NumPy oracle.

Subscripts of a program's arrays are as in einsum, such as "mk,kn->mn". They determine the shapes,
the part of each input that a block of the output needs, the summed dimensions, the layouts and, for
many programs, the communicated bytes.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import Index, NamedSharding, as_axes, as_entry
from ..regions import common, elements_of
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
        known: dict[str, tuple[str, ...]] = {}
        arrays = zip(
            (*self.inputs, *self.outputs), (*layout.in_specs, *layout.out_specs), strict=True
        )
        for subscripts, one in arrays:
            padded = (*one, *[None] * (len(subscripts) - len(one)))
            for label, entry in zip(subscripts, padded, strict=True):
                if known.setdefault(label, as_axes(entry)) != as_axes(entry):
                    return None
        used = [axis for axes in known.values() for axis in axes]
        return known if len(used) == len(set(used)) else None

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
        for label, other in itertools.permutations(labels, 2):
            yield {label: first, other: rest}
    for label in labels:
        yield {label: names}
    if rest and labels:
        yield {labels[0]: (*rest, *first)}
        yield {labels[-1]: first}
    yield {}


def spec(subscripts: str, cuts: Assignment) -> Spec:
    """The partition spec of an array with these subscripts."""
    return tuple(as_entry(cuts.get(label, ())) for label in subscripts)


Count = Callable[[Mesh, Layout, int, str], int | None]
"""See `Case.communicated`."""

REALS = ("float32", "float64", "bfloat16", "float16")
NUMBERS = (*REALS, "complex64", "complex128", "int32")


def _unscaled(n: int) -> float:
    return 1.0


def subscript_case(
    body: Callable[..., Any],
    summary: str,
    subscripts: Subscripts,
    reference: Callable[..., Any],
    *,
    scales: Mapping[int, Callable[[int], float]] = MappingProxyType({}),
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
        scales: Functions from n to the power of two that scales an input, by input number.
        extra: Layouts before those of the subscripts; the first is the default.
        fields: Fields of `Case` that are not the usual ones.
    """
    needs = fields.get("needs", subscripts.needs)

    def inputs(n: int, dtype: str) -> tuple[Input, ...]:
        return tuple(
            Input(labels, subscripts.shape(labels, n), dtype, scale=scales.get(i, _unscaled)(n))
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
        "communicated": reduced(subscripts),
    }
    return Case(program=program, summary=summary, **(usual | fields))


# Most bytes that a device receives, in closed form.
#
# The counts are those of ring and pairwise algorithms (Thakur, Rabenseifner and Gropp,
# "Optimization of Collective Communication Operations in MPICH", 2005), as in `pyreactant.fit`:
# each of g devices receives (g-1)/g of the whole, and twice that in an all-reduce.


def all_reduce(whole: int, devices: int) -> int:
    """Bytes received in an all-reduce of `whole` bytes."""
    return 2 * whole * (devices - 1) // devices


def all_to_all(block: int, devices: int) -> int:
    """Bytes received in an all-to-all of blocks of `block` bytes."""
    return block * (devices - 1) // devices


def reduced(subscripts: Subscripts, times: int = 1) -> Count:
    """Count bytes for programs that sum on each device and then over devices.

    The count is None for layouts that shard a label differently in different arrays. Labels in
    `whole` are reduced too, `times` times: a softmax needs a maximum and a sum.
    """

    def count(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
        axes = subscripts.axes(layout)
        if axes is None:
            return None
        total = 0
        for output in subscripts.outputs:
            kept = "".join(label for label in output if label not in subscripts.whole)
            summed = set("".join(subscripts.inputs)) - set(kept)
            devices = math.prod(subscripts.cut_of(label, mesh, axes) for label in summed)
            whole = subscripts.block_elements(kept, mesh, axes, size) * as_dtype(dtype).itemsize
            total += times * all_reduce(whole, devices)
        return total

    return count


def exchanged(subscripts: Subscripts) -> Count:
    """Count bytes for programs that exchange blocks for whole lines and back.

    These are two all-to-alls. The lines go along the labels of `whole`. The count is None if
    several of these are sharded, and for layouts that shard a label differently in different
    arrays.
    """

    def count(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
        axes = subscripts.axes(layout)
        if axes is None or sum(bool(axes[label]) for label in subscripts.whole) > 1:
            return None
        devices = math.prod(subscripts.cut_of(label, mesh, axes) for label in subscripts.whole)
        (output,) = subscripts.outputs
        block = subscripts.block_elements(output, mesh, axes, size) * as_dtype(dtype).itemsize
        return 2 * all_to_all(block, devices)

    return count


def fetched(case: Case, mesh: Mesh, layout: Layout, n: int, dtype: str) -> int:
    """Bytes of the inputs that a device's output blocks need and the device does not hold."""
    inputs = case.inputs(n, dtype)
    outputs = () if case.outputs is None else case.outputs(n, dtype)
    shapes = tuple(one.shape for one in inputs)
    held, wanted = (
        [
            NamedSharding(mesh, spec).devices_indices_map(shape)
            for spec, shape in zip(specs, of_arrays, strict=True)
        ]
        for specs, of_arrays in (
            (layout.in_specs, shapes),
            (layout.out_specs, [one.shape for one in outputs]),
        )
    )
    most = 0
    for device in mesh.device_ids:
        total = 0
        for i, one in enumerate(inputs):
            needs = [case.needs(o, blocks[device], shapes)[i] for o, blocks in enumerate(wanted)]
            need = tuple(
                slice(min(s.start for s in along), max(s.stop for s in along))
                for along in zip(*needs, strict=True)
            )
            own = common(need, held[i][device])
            missing = elements_of(need) - (0 if own is None else elements_of(own))
            total += missing * as_dtype(one.dtype).itemsize
        most = max(most, total)
    return most
