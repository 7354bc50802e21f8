"""Case: a program with everything that its check needs, independent of any runtime."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ...arrays.domain import Domain
from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import Axes, Index, NamedSharding, as_spec, plain_spec
from ...arrays.source import Source
from ...base.errors import ShardingError

if TYPE_CHECKING:
    from ..bounds.model import Model
    from ..bounds.tracked import Tracked

ASSUMED = Domain()
"""Of a program that states nothing: wide inputs lie in [-1, 1), as ordinary ones do."""

PRODUCT = Domain(sums=True, degree=2, special={0: ("nan",)})
"""Infinities are left out: where a float32 is split into several bfloat16, they become NaN."""


Spec = tuple[Axes, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a program.

    Attributes:
        name: Name in messages.
        shape: Global shape.
        dtype: Name of the element type.
        kind: "uniform" (in [-1, 1), integers from -8 to 7) or "indices" (0 to high - 1). "chooses":
            uniform, but its elements only say what becomes of others. "compared": uniform, but
            their order decides which elements become results.
        scale: Factor of uniform numbers, a power of two.
        high: Exclusive limit of indices.
    """

    name: str
    shape: Shape
    dtype: str
    kind: str = "uniform"
    scale: float = 1.0
    high: int = 0

    @property
    def is_data(self) -> bool:
        """Whether results hold its elements, or are computed from them."""
        return self.kind in ("uniform", "compared")


@dataclass(frozen=True, slots=True)
class Output:
    """One result of a program.

    Attributes:
        shape: Global shape.
        dtype: Name of the element type, or the names of those that it may have.
    """

    shape: Shape
    dtype: str | tuple[str, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types that it may have."""
        return (self.dtype,) if isinstance(self.dtype, str) else self.dtype


@dataclass(frozen=True, slots=True)
class Layout:
    """Partition specs of a program's arrays.

    Attributes:
        in_specs: Specs of the arguments.
        out_specs: Specs of the results; () if only the runtime knows their number, and each
            then gets `default_spec`.
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
    """Assign one mesh axis to each dimension in turn, if its size divides the dimension."""
    entries: list[Axes] = []
    left = list(mesh.axis_names)
    for size in shape:
        fits = bool(left) and size % mesh.axis_size(left[0]) == 0
        entries.append(left.pop(0) if fits else None)
    return tuple(entries)


def cuts_evenly(mesh: Mesh, spec: Spec, shape: Shape) -> bool:
    """Whether a spec shards an array of this shape into equal blocks."""
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
    """A program without a closed form of its communication."""
    return None


Read = Callable[[int, Index], Any]
"""Reads a part of an input by its number: a NumPy array or a Tracked one."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An oracle that reads its inputs piece by piece, for blocks that need large inputs.

    Attributes:
        block: As `Case.oracle`, but with `Read` instead of the parts:
            ``block(output, index, read, shapes)``.
        elements: Number of elements in memory at once: ``elements(index, shapes)``.
    """

    block: Callable[[int, Index, Read, tuple[Shape, ...]], Any]
    elements: Callable[[Index, tuple[Shape, ...]], int]


@dataclass(frozen=True, slots=True)
class Staged:
    """An oracle that computes first, once, what all blocks of all results need.

    Attributes:
        first: Computes that from the inputs: ``first(read, shapes)``.
        block: As `Stream.block`, with the result of `first`:
            ``block(output, index, read, shapes, shared)``.
        elements: Number of elements in memory for a block, without those that `first` keeps:
            ``elements(output, index, shapes)``.
    """

    first: Callable[[Read, tuple[Shape, ...]], Any]
    block: Callable[[int, Index, Read, tuple[Shape, ...], Any], Any]
    elements: Callable[[int, Index, tuple[Shape, ...]], int]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program with its inputs, layouts and oracle, and facts about its sums and communication.

    Attributes:
        program: The program with a body for each runtime.
        summary: Description in one line.
        dtypes: Accepted element types, the default first.
        default_size: Default of the "n" of its shapes.
        inputs: Its arguments, as a function of size and dtype.
        outputs: Shapes and dtypes of its results, as a function of size and dtype; None if only
            the runtime knows them.
        candidates: Possible layouts on a mesh at a size, the default first; `layouts` drops
            those with unequal blocks.
        static: Keyword arguments of the bodies, as a function of the size.
        needs: The part of each input that the block ``index`` of output number ``output``
            depends on: ``needs(output, index, shapes)`` with the shapes of the inputs.
        oracle: Computes that block from exactly those parts: ``oracle(output, index, parts,
            shapes)``. The parts are NumPy arrays, or Tracked ones if results are rounded. None
            if there is no oracle.
        stream: The same for large inputs; None if it is not possible.
        staged: The same for programs whose results share much of the work. `oracle` then computes
            only results without bounds. None for other programs.
        exact: Whether results must be equal bit by bit in every dtype.
        random: Whether all sums run over data without structure (see `Model.random`).
        contracted: The (input, dimension) pairs along which each element of an output needs the
            whole dimension, because the program sums over it, sorts it or divides by its sum.
        factors: The two factors if the program is a matrix product: for each the number of the
            input and whether it is transposed. () for other programs. Freivalds' method checks
            large products.
        domain: The inputs beyond the ordinary ones on which the program is defined.
        lost_bits: Bits below the units that exact results of sums have, and the room that their
            partial sums need.
        tried: Terms and lost bits (see `sums`) of a program whose `contracted` is not known, as a
            function of size and dtype. None for other programs.
        communicated: Most bytes that a device receives with the algorithm in the body's
            docstring: ``communicated(mesh, layout, size, dtype)``; None if unknown.
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
    staged: Staged | None = None
    static: Callable[[int], Mapping[str, Any]] = no_static
    exact: bool = False
    random: bool = False
    contracted: Callable[[int], tuple[tuple[int, int], ...]] = no_contraction
    factors: tuple[tuple[int, bool], ...] = ()
    domain: Domain = ASSUMED
    lost_bits: int = 0
    tried: Callable[[int, str], tuple[int, int]] | None = None
    communicated: Callable[[Mesh, Layout, int, str], int | None] = no_count

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.name

    def size_for(self, mesh: Mesh) -> int:
        """The default size, rounded up so that every layout on this mesh has equal blocks."""
        unit = 4 * mesh.size  # some dimensions are a quarter of n
        return -(-self.default_size // unit) * unit

    def layouts(self, mesh: Mesh, size: int | None = None) -> tuple[Layout, ...]:
        """The layouts on this mesh that shard all arrays into equal blocks, the default first.

        Args:
            mesh: Mesh of the devices.
            size: The "n" of the shapes; None means the default size.
        """
        size = self.default_size if size is None else size
        return tuple(
            layout
            for layout in dict.fromkeys(self.candidates(mesh, size))
            if self.fits(mesh, layout, size)
        )

    def fits(self, mesh: Mesh, layout: Layout, size: int) -> bool:
        """Whether a layout shards all arrays into equal blocks."""
        dtype = self.dtypes[0]
        shapes = [one.shape for one in self.inputs(size, dtype)]
        specs = [*layout.in_specs]
        if self.outputs is not None:
            shapes += [one.shape for one in self.outputs(size, dtype)]
            specs += layout.out_specs
        if len(shapes) != len(specs):
            return False
        return all(map(lambda spec, shape: cuts_evenly(mesh, spec, shape), specs, shapes))

    def sums(self, size: int, dtype: str) -> tuple[int, int]:
        """How many times larger a result may be than a product of elements, and its lost bits.

        The former is the largest number of terms over which a result sums, with their weights.
        """
        if self.tried is not None:
            return self.tried(size, dtype)
        shapes = [one.shape for one in self.inputs(size, dtype)]
        outputs = 1 if self.outputs is None else len(self.outputs(size, dtype))
        most = 1
        for output in range(outputs):
            counts = [1] * len(shapes)
            for number, dimension in self.contracted(output):
                counts[number] *= shapes[number][dimension]
            most = max(most, *counts)
        return most, self.lost_bits

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
        """Compute one block of an output by the oracle from the needed parts of the inputs.

        The error bound of an `Estimated` block is estimated, not derived.

        Args:
            output: Number of the output.
            index: Index of the block.
            sources: Sources of the inputs.
            model: Rounding model of the runtime; None for exact results.
            streamed: Whether to use `stream`.
        """
        if self.oracle is None:
            raise NotImplementedError(f"program {self.name!r} has no oracle")
        shapes = tuple(one.shape for one in sources)
        read = _reader(sources, model)
        if self.staged is not None and model is not None:
            shared = _shared(self.staged, sources, model)
            return self.staged.block(output, index, read, shapes, shared)
        if streamed and self.stream is not None:
            return self.stream.block(output, index, read, shapes)
        needs = self.needs(output, index, shapes)
        return self.oracle(output, index, tuple(map(read, range(len(needs)), needs)), shapes)


_kept: WeakKeyDictionary[Any, tuple[Any, tuple[Source, ...], Any]] = WeakKeyDictionary()
"""What all blocks of a program need, by the source of its first input."""

_keeping = Lock()


def _shared(staged: Staged, sources: tuple[Source, ...], model: "Model") -> Any:
    """The result of the first stage, computed once."""
    key = (staged, [*map(id, sources)], model)
    with _keeping:
        known, _, found = _kept.pop(sources[0], (None, (), None))
        if known != key:
            found = None  # its memory is free before the next one is computed
            found = staged.first(_reader(sources, model), tuple(one.shape for one in sources))
        _kept[sources[0]] = (key, sources[1:], found)
        return found


def whole_index(shape: Shape) -> Index:
    """The index of a whole array."""
    return tuple(slice(0, n) for n in shape)


def _reader(sources: tuple[Source, ...], model: "Model | None") -> Read:
    from ..bounds.tracked import track

    def read(number: int, part: Index) -> Any:
        array = sources[number].read(part)
        # Indices and other integers are not rounded.
        return array if model is None or array.dtype.kind in "biu" else track(array, model)

    return read


def pieces(n: int, of: int) -> list[slice]:
    """Slices of length `of` that cover the range of n."""
    return [slice(start, min(start + of, n)) for start in range(0, n, of)]
