"""Case: a program with everything that its check needs, independent of any runtime."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...arrays.domain import Domain
from ...arrays.dtypes import as_dtype, wide
from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import Axes, Index, NamedSharding, as_spec, plain_spec
from ...arrays.source import Source
from ...base.errors import ShardingError
from ..bounds.model import Model
from ..bounds.rules.products import Float32Products
from ..bounds.runs import Runs
from ..bounds.tracked import Tracked, track
from ..regions import elements_of, whole_index

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
        kind: "uniform" (in [-1, 1), integers from -8 to 7) or "indices" (integers from low to
            high - 1). "chooses": uniform, but its elements only say what becomes of others.
            "compared": uniform, but their order decides which elements become results. "ranged":
            uniform from low to high, on all sets of inputs.
        scale: Factor of uniform numbers, a power of two.
        high: Exclusive limit of a range.
        low: Its lowest number.
    """

    name: str
    shape: Shape
    dtype: str
    kind: str = "uniform"
    scale: float = 1.0
    high: float = 0
    low: float = 0

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


class Inputs:
    """The inputs of an oracle, of which it reads the parts that it needs.

    Args:
        sources: Their sources.
        model: Rounding model of the runtime; None for exact results.
        oracle: The oracle that reads them.
        in_full: Whether to read exact numbers in float64 or complex128.

    Attributes:
        shapes: Their shapes.
        model: Rounding model of the runtime; None for exact results.
    """

    def __init__(
        self, sources: tuple[Source, ...], model: Model | None, oracle: "Oracle", in_full: bool
    ) -> None:
        self._sources, self.model, self._oracle = sources, model, oracle
        self._in_full = in_full
        self.shapes = tuple(source.shape for source in sources)

    def read(self, number: int, part: Index) -> Any:
        """A part of an input by its number: a Tracked array, or a NumPy array if it is exact."""
        array = self._sources[number].read(part)
        # Indices and other integers are not rounded.
        if array.dtype.kind in "biu":
            return array
        if self.model is not None:
            return track(array, self.model)
        return wide(array) if self._in_full else array

    def read_all(self) -> tuple[Any, ...]:
        """All inputs as a whole."""
        return tuple(self.read(i, whole_index(shape)) for i, shape in enumerate(self.shapes))

    @cached_property
    def shared(self) -> Any:
        """What the oracle computes first, once for all blocks of these inputs."""
        first, products = self._oracle.first, Float32Products.current()
        assert first is not None
        source, *others = self._sources
        key = (first, others, self.model, self._in_full, products is None)
        with _keeping:
            kept = _kept.pop(source, None)
            if kept is None or kept.key != key:
                kept = None  # its memory is free before the next one is computed
                before = 0 if products is None else products.formed
                value = first(self)
                more = 0 if products is None else products.formed - before
                kept = _Kept(key, value, more)
            elif products is not None:
                products.formed += kept.formed
            _kept[source] = kept
        return kept.value


class _Kept(NamedTuple):
    """What an oracle computed first of what `key` has, with so many products in float32."""

    key: tuple[Any, ...]
    value: Any
    formed: int


_kept: WeakKeyDictionary[Source, _Kept] = WeakKeyDictionary()
"""By the source of the first input."""

_keeping = Lock()


@dataclass(frozen=True, slots=True)
class Oracle:
    """Computes blocks of a program's results with NumPy.

    Attributes:
        block: Computes the block ``index`` of output number ``output``:
            ``block(output, index, inputs)``.
        elements: Number of elements in memory at once, without those that `first` keeps:
            ``elements(output, index, shapes)`` with the shapes of the inputs. None: those of the
            block and of the parts that `Case.needs` names.
        first: Computes from the inputs what all blocks of all results need, which they find as
            ``inputs.shared``. None if they share nothing.
    """

    block: Callable[[int, Index, Inputs], Any]
    elements: Callable[[int, Index, tuple[Shape, ...]], int] | None = None
    first: Callable[[Inputs], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program with its inputs, layouts and oracle, and facts about its sums.

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
        oracle: Computes that block, with bounds if results are rounded. None if there is no oracle.
        runs: Computes all results on whole inputs with random roundings (`bounds.runs`). None if
            there is only `oracle`.
        of_class: Computes all results on whole inputs with NumPy arrays of a given class. None if
            there is only `oracle`.
        seconds: How long a call of a user's oracle takes, in seconds; None if it is fast.
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
        arguments: The arguments of the bodies, which may be trees, made of the inputs' arrays.
    """

    program: Program
    summary: str
    dtypes: tuple[str, ...]
    default_size: int
    inputs: Callable[[int, str], tuple[Input, ...]]
    outputs: Callable[[int, str], tuple[Output, ...]] | None
    candidates: Callable[[Mesh, int], Iterable[Layout]]
    needs: Callable[[int, Index, tuple[Shape, ...]], tuple[Index, ...]]
    oracle: Oracle | None
    runs: Callable[[Sequence[np.ndarray], Model], tuple[Runs, ...]] | None = None
    of_class: Callable[[Sequence[np.ndarray], type], tuple[np.ndarray, ...]] | None = None
    seconds: Callable[[], float] | None = None
    static: Callable[[int], Mapping[str, Any]] = lambda size: {}
    exact: bool = False
    random: bool = False
    contracted: Callable[[int], tuple[tuple[int, int], ...]] = lambda output: ()
    factors: tuple[tuple[int, bool], ...] = ()
    domain: Domain = ASSUMED
    lost_bits: int = 0
    tried: Callable[[int, str], tuple[int, int]] | None = None
    arguments: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple

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
        shapes, specs = self.shapes(size, dtype), [*layout.in_specs]
        if self.outputs is not None:
            specs += layout.out_specs
        if len(shapes) != len(specs):
            return False
        return all(map(lambda spec, shape: cuts_evenly(mesh, spec, shape), specs, shapes))

    def shapes(self, size: int, dtype: str | None = None) -> list[Shape]:
        """The shapes of inputs and outputs that are known before a run."""
        dtype = dtype or self.dtypes[0]
        shapes = [what.shape for what in self.inputs(size, dtype)]
        return shapes + [
            output.shape for output in (self.outputs(size, dtype) if self.outputs else ())
        ]

    def sums(self, size: int, dtype: str) -> tuple[int, int]:
        """How many times larger a result may be than a product of elements, and its lost bits.

        The former is the largest number of terms over which a result sums, with their weights.
        """
        if self.tried is not None:
            return self.tried(size, dtype)
        shapes = [what.shape for what in self.inputs(size, dtype)]
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
        model: Model | None,
        *,
        in_full: bool = False,
    ) -> Tracked | np.ndarray:
        """Compute one block of an output by the oracle from the needed parts of the inputs.

        Args:
            output: Number of the output.
            index: Index of the block.
            sources: Sources of the inputs.
            model: Rounding model of the runtime; None for exact results.
            in_full: Whether to compute exact results in float64 or complex128.
        """
        if self.oracle is None:
            raise NotImplementedError(f"program {self.name!r} has no oracle")
        inputs = Inputs(sources, model, self.oracle, in_full)
        block: Tracked | np.ndarray = self.oracle.block(output, index, inputs)
        return block

    def elements(self, output: int, index: Index, shapes: tuple[Shape, ...]) -> int:
        """Number of elements in memory while `expected` computes a block."""
        if self.oracle is not None and self.oracle.elements is not None:
            return self.oracle.elements(output, index, shapes)
        return sum(map(elements_of, (index, *self.needs(output, index, shapes))))
