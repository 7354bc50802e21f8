"""What a user states of his program, tried on its oracle before a check relies on it.

A check that relies on a wrong statement calls a right program wrong. So such a statement is an
error, which names it.
"""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ...arrays.domain import Domain
from ...arrays.dtypes import as_dtype, is_float, wide
from ...base.errors import InvalidArgumentError
from ..bounds.estimate import outputs_of, tracked_results
from ..bounds.model import Model
from ..bounds.tracked import Tracked
from ..regions import read_whole
from .case import Input
from .ordinary import source

ArgumentsOf = Callable[[int, str], tuple[Input, ...]]
"""The arguments of a program, as a function of size and dtype."""

_FINEST = 20
"""Weights of sums are whole numbers over at most this power of two."""

_HIGHEST = 4
"""The degrees that an error proposes."""


class Trial:
    """The statement about a program, tried on its oracle.

    Args:
        name: Name of the program.
        domain: What is stated.
        oracle: The user's oracle on NumPy arrays; its errors name the program.
        function: The user's function itself, which also takes Tracked arrays.
        inputs: The arguments. Those that are not "uniform" hold no data.
    """

    def __init__(
        self,
        name: str,
        domain: Domain,
        *,
        oracle: Callable[..., Any],
        function: Callable[..., Any],
        inputs: ArgumentsOf,
    ) -> None:
        self._name, self._domain, self._inputs = name, domain, inputs
        self._oracle, self._function = oracle, function

    @np.errstate(all="ignore")  # NaN and overflow are results, which are denied by name
    def inputs(self, n: int, dtype: str) -> tuple[Input, ...]:
        """The arguments; of a program that moves elements, what it does with them.

        If no element of one becomes a result, it says which of others do. If the same element
        comes from another place for other numbers, elements are compared, as in a sort.

        Raises:
            InvalidArgumentError: A program that moves elements has other results than these.
        """
        inputs = self._inputs(n, dtype)
        if not self._domain.moves or not any(map(_is_data, inputs)):
            return inputs
        arrays = _arrays(inputs, lambda what, number: _distinct(what, number, 0))
        results = self._run(arrays)
        everything = _joined(results)
        moved = [
            _is_data(what) and bool(np.isin(array, everything).any())
            for what, array in zip(inputs, arrays, strict=True)
        ]
        if not any(moved):
            self._deny_move("no result of its oracle is an element of an argument")
        # What chooses stays as it is, so that elements come from the same places.
        others = _arrays(inputs, lambda what, number: _distinct(what, number, int(moved[number])))
        data, other_data = ([*itertools.compress(some, moved)] for some in (arrays, others))
        fixed = self._compare_moves(results, data, self._run(others), other_data)
        kind = "uniform" if fixed else "compared"
        return tuple(
            replace(what, kind=kind if is_moved else "chooses") if _is_data(what) else what
            for what, is_moved in zip(inputs, moved, strict=True)
        )

    def _compare_moves(
        self,
        results: tuple[np.ndarray, ...],
        data: list[np.ndarray],
        others: tuple[np.ndarray, ...],
        other_data: list[np.ndarray],
    ) -> bool:
        """Whether results for other data hold elements from the same places, and constants."""
        fixed = True
        for number, (result, again) in enumerate(zip(results, others, strict=True)):
            if result.dtype.kind == "b" or is_float(result.dtype) != is_float(data[0].dtype):
                self._deny_move(f"output {number} of its oracle is {result.dtype}")
            origin, other = _origin(result, data), _origin(again, other_data)
            constant = again[other < 0]
            wrong = np.argwhere((origin < 0) & (result == result) & ~np.isin(result, constant))
            if len(wrong):
                place = tuple(map(int, wrong[0]))
                where = f"element {list(place)} of " if place else ""
                self._deny_move(
                    f"{where}output {number} of its oracle is {result[place]}, which is neither"
                )
            fixed = fixed and np.array_equal(origin, other)
        return fixed

    def _deny_move(self, why: str) -> NoReturn:
        raise InvalidArgumentError(
            f"Program {self._name!r}: domain=Domain(moves=True) means that results are elements of "
            f"the arguments, unchanged, or constants, but {why}; correct the oracle, or leave "
            "moves=True away"
        )

    @np.errstate(all="ignore")  # NaN and overflow are results, which are denied by name
    def sums(self, n: int, dtype: str) -> tuple[int, int]:
        """See `Case.sums`.

        Raises:
            InvalidArgumentError: The results are no sums of products, have more factors or other
                weights.
        """
        inputs = self._inputs(n, dtype)
        if self._domain.moves:
            return 1, 0
        if not self._domain.sums:
            return max([1, *(length for what in inputs for length in what.shape)]), 0
        kind = as_dtype(dtype).kind
        if kind == "b":
            return 1, 0
        lost = self._fraction(inputs, dtype)
        largest = 1.0 if kind in "iu" else self._largest(inputs)
        return max(1, math.ceil(largest * (1 - 1e-6))), lost

    def _fraction(self, inputs: tuple[Input, ...], dtype: str) -> int:
        """Bits below the units of the results on whole numbers, which must grow as stated.

        A polynomial of degree d in the elements is one in their common factor, too, and the
        differences of order d + 1 of such a polynomial are zero. A factor below 0 shows functions
        such as a maximum, which grow like sums otherwise.
        """
        degree, lowest = self._domain.degree, _lowest(dtype)
        values = self._growth(inputs, dtype, degree + 1)
        parts = np.concatenate([np.zeros(1), *map(_parts, values[1 - lowest])])
        fine = (not (np.ldexp(parts, bits) % 1 != 0).any() for bits in range(_FINEST + 1))
        lost = next((bits for bits, whole in enumerate(fine) if whole), None)
        if lost is None:
            strange = parts[np.ldexp(parts, _FINEST) % 1 != 0]
            self._deny_sum(f"a result of its oracle for whole numbers is {strange[0]}")
        if _vanishes(values, degree + 1):
            return lost
        more = self._growth(inputs, dtype, _HIGHEST + 1)
        fits = [
            d for d in range(degree + 1, _HIGHEST + 1) if _vanishes(more[: d + 2 - lowest], d + 1)
        ]
        hint = f", as with degree={fits[0]}" if fits else ""
        self._deny_sum(f"those of its oracle grow otherwise with the arguments{hint}")

    def _growth(self, inputs: tuple[Input, ...], dtype: str, most: int) -> list[list[np.ndarray]]:
        """The results for whole numbers times -1, 0, 1, ..., most; of unsigned ones from 0."""
        runs = [
            self._run(_arrays(inputs, functools.partial(_whole, times=k)))
            for k in range(_lowest(dtype), most + 1)
        ]
        floats = is_float(as_dtype(dtype))
        for number, result in enumerate(runs[0]):
            if result.dtype.kind == "b" or (floats and not is_float(result.dtype)):
                self._deny_sum(f"output {number} of its oracle is {result.dtype}")
        return [list(map(wide, run)) for run in runs]

    def _largest(self, inputs: tuple[Input, ...]) -> float:
        """The largest result for elements of size one: the sum of the sizes of the weights.

        It is the bound on the error of results for elements that are 0 with an error up to 1. If
        the oracle has a function without a rule, one has as many terms as an input has elements,
        or as large a result as for ones.
        """
        # Both parts of a complex number are at most 1, and all four products add up.
        parts = 2 if any(as_dtype(what.dtype).kind == "c" for what in inputs) else 1
        model, size = Model.of(f"{'complex' if parts == 2 else 'float'}{64 * parts}"), float(parts)
        zeros = _arrays(inputs, lambda what, number: Tracked(0 * _whole(what, number), size, model))
        results = tracked_results(self._function, tuple(zeros), model)
        if not isinstance(results, str):
            most = max(float(np.max(np.abs(x.value) + x.bound, initial=0.0)) for x in results)
            if math.isfinite(most):
                return most
        ones = _arrays(inputs, lambda what, number: size + 0 * _whole(what, number))
        most = max(float(np.max(np.abs(wide(x)), initial=0.0)) for x in self._run(ones))
        return max([most, *(size * math.prod(what.shape) for what in inputs)])

    def _run(self, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        return outputs_of(self._oracle(*map(np.asarray, arrays)))

    def _deny_sum(self, why: str) -> NoReturn:
        degree = self._domain.degree
        factors = "elements" if degree == 1 else f"products of at most {degree} elements"
        raise InvalidArgumentError(
            f"Program {self._name!r}: domain=Domain(sums=True, degree={degree}) means that results "
            f"are sums of {factors} of the arguments, with weights that are whole numbers or those "
            f"over a power of two, but {why}; correct the oracle or degree=, or leave sums=True "
            "away"
        )


def _is_data(what: Input) -> bool:
    return what.is_data and what.dtype != "bool"


def _arrays(inputs: tuple[Input, ...], make: Callable[[Input, int], Any]) -> list[Any]:
    """Arguments of an oracle: data by `make`, and others as always."""
    return [
        make(what, number) if _is_data(what) else read_whole(source(what, 0, number))
        for number, what in enumerate(inputs)
    ]


def _distinct(what: Input, number: int, run: int) -> np.ndarray:
    """Numbers of random sign from 2^-(number + 1) to 2^-number, which no other argument has."""
    kind, random = as_dtype(what.dtype), np.random.default_rng((run, number))
    signs = random.choice([1, 1 if kind.kind == "u" else -1], what.shape)
    if kind.kind in "iu":
        top = max(2, np.iinfo(kind).max >> number)
        return np.asarray(random.integers(top // 2, top, what.shape, dtype=kind) * signs, kind)
    if kind.itemsize < 4:  # too few numbers to tell elements from others
        kind = np.dtype(np.float32)
    numbers = signs * np.ldexp(1 + random.random(what.shape), -1 - number)
    return np.asarray(
        numbers + 1j * random.random(what.shape) if kind.kind == "c" else numbers, kind
    )


def _whole(what: Input, number: int, times: int = 1) -> np.ndarray:
    """Small whole numbers times another; in the longest type, as a check computes sums."""
    kind, random = as_dtype(what.dtype), np.random.default_rng(number)
    some = np.array([1, 2, 3] if kind.kind == "u" else [-3, -2, -1, 1, 2, 3])
    numbers = times * random.choice(some, what.shape)
    if kind.kind == "c":
        return np.asarray(numbers + 1j * times * random.choice(some, what.shape))
    return np.asarray(numbers, np.int64 if kind.kind in "iu" else np.float64)


def _lowest(dtype: str) -> int:
    """The lowest factor of the whole numbers on which sums are tried."""
    return 0 if as_dtype(dtype).kind == "u" else -1


def in_full(array: np.ndarray) -> np.ndarray:
    """Convert types that NumPy lacks, such as bfloat16, to float64 for the oracle."""
    return array.astype(np.float64) if array.dtype.kind not in "biufc" else array


def _origin(result: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    """The place of each element of a result among those of all arguments; -1 if it is none."""
    every = _joined(arrays)
    order = np.argsort(every)
    place = np.minimum(np.searchsorted(every[order], result), every.size - 1)
    nearest = order[place]
    return np.where(every[nearest] == result, nearest, -1)


def _joined(arrays: Any) -> np.ndarray:
    return np.concatenate([np.reshape(a, -1) for a in arrays])


def _parts(values: np.ndarray) -> np.ndarray:
    """Real and imaginary parts of all elements."""
    return np.stack([values.real, values.imag]).reshape(-1).astype(np.float64)


def _vanishes(values: list[list[np.ndarray]], order: int) -> bool:
    """Whether the differences of an order are zero; True if float64 does not hold them."""
    for results in zip(*values, strict=True):
        largest = max(float(np.max(np.abs(result), initial=0.0)) for result in results)
        if largest * 2**order >= 2.0**52:
            continue
        if np.any(np.diff(np.stack(results), order, axis=0)):
            return False
    return True
