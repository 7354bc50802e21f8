"""ShardedArray: one global array, of which each device holds a block."""

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..base.errors import NotAddressableError, StateError
from ..process import progress
from .backend import AbstractBackend
from .sharding import Aval, NamedSharding, Shard

if TYPE_CHECKING:
    from .draw import Drawing


class ShardedArray:
    """A global array in blocks on the devices of a mesh; made by `device_put` and programs.

    Its elements are read with `gather`, `addressable_shards` or `numpy.asarray`, and computed with
    in programs: operators such as ``==`` and ``+`` raise.

    Attributes:
        aval: Shape, dtype and sharding.

    Examples:
        >>> x.shape, x.dtype, x.sharding.spec
        ((8, 8), dtype('float32'), ('x', 'y'))
        >>> float(x.gather().sum())
        2016.0
    """

    __array_priority__ = 1000  # NumPy leaves its operators, as in A + x, to this class

    __slots__ = ("__weakref__", "_backend", "_number", "_value", "aval")

    def __init__(self, value: Any, aval: Aval, backend: AbstractBackend, number: int = 0) -> None:
        self._value = value
        self._number = number  # the guard's, equal for the same array of every process
        self.aval = aval
        self._backend = backend

    @property
    def value(self) -> Any:
        """The runtime's own array, for JAX a `jax.Array`; nothing is copied.

        Raises:
            DTypeError: It has 64-bit elements, which JAX would truncate because x64 is off.
            StateError: The array was donated.
        """
        return self._backend.expose(self._value)

    def to_jax(self) -> Any:
        """The array as a `jax.Array`, without a copy; raises as `value`.

        Raises:
            StateError: The runtime of this process is not JAX.
        """
        return self._backend.to_jax(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape, the same on every process."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        dtype: np.dtype[Any] = self.aval.dtype
        return dtype

    @property
    def sharding(self) -> NamedSharding:
        """The mesh and the partition spec."""
        return self.aval.sharding

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The blocks on this process's devices, by device position; no communication."""
        return self._backend.addressable_shards(self._value)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can read every block without communication."""
        return self._backend.is_fully_addressable(self.sharding.mesh)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array, so that every process can read it."""
        return all(cut == 1 for cut in self.sharding.cuts(self.ndim))

    def gather(self) -> np.ndarray:
        """The whole array in C order, on every process.

        Collective, unless every device holds the whole array.
        """
        if self.is_fully_addressable or self.is_fully_replicated:
            return self._assemble()
        if progress.gathered is not None:
            progress.gathered(str(self.aval), self._number)
        with progress.collective():
            return self._backend.gather(self._value, self.sharding)

    def block_until_ready(self) -> "ShardedArray":
        """Wait until the blocks on this process's devices are computed."""
        progress.waiting += 1
        try:
            self._backend.block_until_ready(self._value)
        finally:
            progress.waiting -= 1
        return self

    def _assemble(self) -> np.ndarray:
        shards = self.addressable_shards
        whole = np.empty(self.shape, self.dtype)
        seen = set()
        for shard in shards:
            start = tuple(s.start for s in shard.index)
            if start not in seen:
                seen.add(start)
                if shard._read_into is None:
                    whole[shard.index] = shard.data
                else:
                    # The ellipsis gives a view for 0-d arrays too.
                    place: Any = (*shard.index, ...)
                    shard._read_into(whole[place])
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not (self.is_fully_addressable or self.is_fully_replicated):
            raise NotAddressableError(
                f"{self!r} lies partly on devices of other processes, so this process cannot "
                "read all of it; call gather() on every process, or use addressable_shards"
            )
        if copy is False:
            raise ValueError("a ShardedArray cannot become a NumPy array without a copy")
        return self._assemble().astype(dtype or self.dtype, copy=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"{self!r} has no dimensions, and so no len()")
        return self.shape[0]

    def item(self) -> Any:
        """The one element of an array, as Python's number; raises as `numpy.asarray`."""
        return np.asarray(self).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    # Python would compare identities and call every array true, without a word.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        _no_operator("==")

    def __ne__(self, other: object) -> bool:
        _no_operator("!=")

    def __contains__(self, item: object) -> bool:
        _no_operator("in")

    def __bool__(self) -> bool:
        _no_operator("bool()")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a ShardedArray cannot be pickled or copied, because its blocks lie on devices; save "
            "the NumPy array that gather() returns, or compute a copy in a program"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if not name.startswith("_") and hasattr(np.ndarray, name):
                raise AttributeError(_not_defined(f"the attribute {name}"))
            raise AttributeError(f"a ShardedArray has no attribute {name!r}")

    def __repr__(self) -> str:
        return (
            f"ShardedArray(shape={self.shape}, dtype={self.dtype}, mesh={self.sharding.mesh!r}, "
            f"spec={self.sharding.spec}, backend={self._backend.name!r})"
        )

    def _repr_html_(self) -> str:
        from .draw import html

        return html(self.__rich__())

    def __rich__(self) -> "Drawing":
        from .draw import Drawing

        return Drawing(self.sharding, self.shape, self._backend.devices(), title=repr(self))


def _not_defined(name: str) -> str:
    return (
        f"{name} is not defined for a ShardedArray, whose elements lie on devices; use the NumPy "
        "array that gather() returns, or compute in a program (pyreactant.compile) that takes the "
        "array as an argument"
    )


def _no_operator(name: str) -> NoReturn:
    raise TypeError(_not_defined(name))


def _refuse(name: str) -> Any:
    def operator(self: ShardedArray, *other: Any) -> NoReturn:
        _no_operator(name)

    return operator


# A traced array of JAX asks these too, if a program closes over a ShardedArray.
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_OTHERS = ("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem")
for _name in (*_BINARY, *(f"r{_name}" for _name in _BINARY), *_OTHERS):
    setattr(ShardedArray, f"__{_name}__", _refuse(f"the operator __{_name}__"))


class DonatedArray(ShardedArray):
    """An array that a program was given to reuse its memory; only its description is left."""

    __slots__ = ()

    def donate(self, *_: Any, **__: Any) -> NoReturn:
        """Raise the error of a donated array."""
        raise StateError(
            f"{self!r} was donated to program {self._value!r}, which reuses its memory; use the "
            "program's result, or compile it without donate="
        )

    value = addressable_shards = property(donate)
    to_jax = gather = block_until_ready = __array__ = donate


def mark_donated(array: ShardedArray, program: str) -> None:
    """Let every later use of an array raise, without a check in each use of the others."""
    array._value = program
    array.__class__ = DonatedArray
