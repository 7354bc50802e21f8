"""Case: a program with all that a check of it must know, and nothing that a runtime says."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.dtypes import as_dtype
from .._core.mesh import Mesh
from .._core.program import Program
from .._core.sharding import Axes, Index, NamedSharding, as_spec, plain_spec
from .._core.source import Source
from .._errors import ShardingError

if TYPE_CHECKING:
    from .._bounds.model import Model
    from .._bounds.tracked import Tracked

Spec = tuple[Axes, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a program.

    Attributes:
        name: For messages.
        shape: Global shape.
        dtype: Name of the element type.
        kind: "uniform" (in [-1, 1), integers from -8 to 7) or "indices" (0 to high - 1).
        scale: A power of two by which uniform numbers are multiplied.
        high: The limit of indices.
    """

    name: str
    shape: Shape
    dtype: str
    kind: str = "uniform"
    scale: float = 1.0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """One result of a program.

    Attributes:
        shape: Global shape.
        dtype: Name of the element type; None where NumPy's rules for it are not the runtimes'.
    """

    shape: Shape
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """How a program's arrays lie on a mesh: one partition spec each.

    Attributes:
        in_specs: Of the arguments.
        out_specs: Of the results; () where their number is known only to the runtime, and then
            `default_spec` is taken for each.
    """

    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_dict` reads it back."""
        return {
            "in_specs": list(map(plain_spec, self.in_specs)),
            "out_specs": list(map(plain_spec, self.out_specs)),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Layout":
        """The layout that `to_dict` described."""
        return cls(tuple(map(as_spec, data["in_specs"])), tuple(map(as_spec, data["out_specs"])))


def default_spec(mesh: Mesh, shape: Shape) -> Spec:
    """One mesh axis for each dimension in turn, where it cuts the dimension evenly."""
    entries: list[Axes] = []
    left = list(mesh.axis_names)
    for size in shape:
        fits = bool(left) and size % mesh.axis_size(left[0]) == 0
        entries.append(left.pop(0) if fits else None)
    return tuple(entries)


def cuts_evenly(mesh: Mesh, spec: Spec, shape: Shape) -> bool:
    """Whether a spec cuts an array of this shape into equal blocks."""
    try:
        NamedSharding(mesh, spec).shard_shape(shape)
    except ShardingError:
        return False
    return True


def no_static(size: int) -> Mapping[str, Any]:
    """A program without static arguments."""
    return {}


def no_contraction(output: int) -> tuple[tuple[int, int], ...]:
    """A program that sums over no dimension of its inputs."""
    return ()


def no_count(mesh: Mesh, layout: Layout, size: int, dtype: str) -> int | None:
    """A program without a closed form of what it communicates."""
    return None


Read = Callable[[int, Index], Any]
"""A part of an input by its number, as oracles take it: an array, or a Tracked one."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An oracle that reads its inputs piece by piece, for blocks that depend on very much.

    Attributes:
        block: As `Case.oracle`, but with `Read` in place of the parts:
            ``block(output, index, read, shapes)``.
        elements: How many numbers it holds at once: ``elements(index, shapes)``.
    """

    block: Callable[[int, Index, Read, tuple[Shape, ...]], Any]
    elements: Callable[[Index, tuple[Shape, ...]], int]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program with its inputs, layouts, oracle and what is known of its sums and traffic.

    Attributes:
        program: What runs, with a body for each runtime.
        summary: One line.
        dtypes: Element types it is checked with, the default first.
        default_size: The "n" of its shapes where nothing is said.
        inputs: Its arguments, from size and dtype.
        outputs: Shape and dtype of its results, from size and dtype; None where only the runtime
            knows them.
        candidates: Specs it takes on a mesh, the default first; `layouts` drops those whose
            blocks would not be equal.
        static: Keyword arguments of the bodies, from the size.
        needs: Which part of each input the block ``index`` of output number ``output`` depends
            on: ``needs(output, index, shapes)`` with the shapes of the inputs.
        oracle: That block from exactly those parts: ``oracle(output, index, parts, shapes)``. It
            takes NumPy arrays, or Tracked ones where results are rounded. None: no oracle.
        stream: The same for large inputs, if it can be done.
        exact: Whether results must be equal bit by bit in every dtype.
        random: Whether all sums run over data without structure (see `Model.random`).
        contracted: The (input, dimension) of which each element of an output needs all, as it
            sums over it, sorts it or divides by its sum.
        factors: The two matrices whose product the program is: for each the number of the input,
            and whether it is transposed. () for what is no such product. Large ones are checked
            by Freivalds' method.
        communicated: Bytes that a device receives, at most, by the algorithm that the program's
            module names: ``communicated(mesh, layout, size, dtype)``, or None.
    """

    program: Program
    summary: str
    dtypes: tuple[str, ...]
    default_size: int
    inputs: Callable[[int, str], tuple[Input, ...]]
    outputs: Callable[[int, str], tuple[Output, ...]] | None
    candidates: Callable[[Mesh, int], Iterable[Layout]]
    needs: Callable[[int, Index, tuple[Shape, ...]], tuple[Index, ...]]
    oracle: Callable[[int, Index, tuple[Any, ...], tuple[Shape, ...]], Any] | None
    stream: Stream | None = None
    static: Callable[[int], Mapping[str, Any]] = no_static
    exact: bool = False
    random: bool = False
    contracted: Callable[[int], tuple[tuple[int, int], ...]] = no_contraction
    factors: tuple[tuple[int, bool], ...] = ()
    communicated: Callable[[Mesh, Layout, int, str], int | None] = no_count

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    def size_for(self, mesh: Mesh) -> int:
        """The default size, or the next above it that every way to cut over this mesh divides."""
        unit = 4 * mesh.size  # some dimensions are a quarter of n
        return -(-self.default_size // unit) * unit

    def layouts(self, mesh: Mesh, size: int | None = None) -> tuple[Layout, ...]:
        """The layouts of this mesh that cut all arrays into equal blocks, the default first.

        Args:
            mesh: The devices.
            size: None is the default size.
        """
        size = self.default_size if size is None else size
        return tuple(
            layout
            for layout in dict.fromkeys(self.candidates(mesh, size))
            if self.fits(mesh, layout, size)
        )

    def fits(self, mesh: Mesh, layout: Layout, size: int) -> bool:
        """Whether a layout cuts all arrays into equal blocks."""
        dtype = self.dtypes[0]
        shapes = [one.shape for one in self.inputs(size, dtype)]
        specs = [*layout.in_specs]
        if self.outputs is not None:
            shapes += [one.shape for one in self.outputs(size, dtype)]
            specs += layout.out_specs
        if len(shapes) != len(specs):
            return False
        return all(map(lambda spec, shape: cuts_evenly(mesh, spec, shape), specs, shapes))

    def is_exact(self, dtype: str) -> bool:
        """Whether results in this dtype must be equal to the oracle's bit by bit."""
        return self.exact or as_dtype(dtype).kind in "biu"

    def expected(
        self,
        output: int,
        index: Index,
        sources: tuple[Source, ...],
        model: "Model | None",
        *,
        streamed: bool = False,
    ) -> "Tracked | np.ndarray":
        """One block of an output by the oracle, from the parts of the inputs that it needs.

        An `Estimated` block is one whose error bound is not derived but estimated.

        Args:
            output: Number of the output.
            index: The block.
            sources: Of the inputs.
            model: How the runtime rounds; None for exact results.
            streamed: By `stream`.
        """
        if self.oracle is None:
            raise NotImplementedError(f"program {self.name!r} has no oracle")
        shapes = tuple(one.shape for one in sources)
        read = _reader(sources, model)
        if streamed and self.stream is not None:
            return self.stream.block(output, index, read, shapes)
        needs = self.needs(output, index, shapes)
        return self.oracle(output, index, tuple(map(read, range(len(needs)), needs)), shapes)


def _reader(sources: tuple[Source, ...], model: "Model | None") -> Read:
    from .._bounds.tracked import track

    def read(number: int, part: Index) -> Any:
        array = sources[number].read(part)
        # Indices and other whole numbers choose; they are not rounded.
        return array if model is None or array.dtype.kind in "biu" else track(array, model)

    return read


def pieces(n: int, of: int) -> list[slice]:
    """The range of n in slices of some length."""
    return [slice(start, min(start + of, n)) for start in range(0, n, of)]
