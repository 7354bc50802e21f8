"""What a user states of his program, tried on its oracle before a check relies on it.

A check that relies on a wrong statement calls a right program wrong. So such a statement is an
error, which names it.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from .._core.domain import Domain
from .._core.dtypes import EXTENDED, as_dtype, is_float, wide
from .._core.source import RandomSource
from .._errors import InvalidArgumentError
from ._case import Input, whole_index

Inputs = Callable[[int, str], tuple[Input, ...]]
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
        inputs: Inputs,
    ) -> None:
        self._name, self._domain, self._inputs = name, domain, inputs
        self._oracle, self._function = oracle, function

    def inputs(self, n: int, dtype: str) -> tuple[Input, ...]:
        """The arguments. If no element of one becomes a result, it says which of others do.

        Raises:
            InvalidArgumentError: A program that moves elements has other results than these.
        """
        inputs = self._inputs(n, dtype)
        if not self._domain.moves or as_dtype(dtype).kind == "b":
            return inputs
        (one, found), (two, others) = (self._moved(inputs, run) for run in range(2))
        for number, result in enumerate(found):
            if result.dtype.kind == "b" or is_float(result.dtype) != is_float(as_dtype(dtype)):
                self._deny_move(f"output {number} of its oracle has the type {result.dtype}")
            strange = ~(np.isin(result, _joined(one)) | (result != result))
            constant = others[number][~np.isin(others[number], _joined(two))]
            wrong = np.argwhere(strange & ~np.isin(result, constant))
            if len(wrong):
                place = tuple(map(int, wrong[0]))
                where = f"element {list(place)} of " if place else ""
                self._deny_move(
                    f"{where}output {number} of its oracle is {result[place]}, which is none"
                )
        everything = _joined(found)
        return tuple(
            what if np.isin(array, everything).any() else replace(what, kind="chooses")
            for what, array in zip(inputs, one, strict=True)
        )

    def _moved(
        self, inputs: tuple[Input, ...], run: int
    ) -> tuple[list[np.ndarray], tuple[np.ndarray, ...]]:
        arrays = _arrays(inputs, lambda what, number: _distinct(what, number, run))
        return arrays, self._run(arrays)

    def _deny_move(self, why: str) -> NoReturn:
        raise InvalidArgumentError(
            f"Program {self._name!r}: domain=Domain(moves=True) means that results are elements of "
            f"the arguments, unchanged, or constants, but {why}; correct the oracle, or leave "
            "moves= away"
        )

    def sums(self, n: int, dtype: str) -> tuple[int, int]:
        """See `Case.sums`.

        Raises:
            InvalidArgumentError: The results are no sums of products, have more factors or other
                weights.
        """
        inputs = self._inputs(n, dtype)
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
        differences of order d + 1 of such a polynomial are zero.
        """
        degree = self._domain.degree
        values = self._growth(inputs, dtype, degree + 1)
        parts = np.concatenate([np.zeros(1), *map(_parts, values[1])])
        fine = (not (np.ldexp(parts, bits) % 1 != 0).any() for bits in range(_FINEST + 1))
        lost = next((bits for bits, whole in enumerate(fine) if whole), None)
        if lost is None:
            strange = parts[np.ldexp(parts, _FINEST) % 1 != 0]
            self._deny_sum(f"one on whole numbers is {strange[0]}")
        if _vanishes(values, degree + 1):
            return lost
        more = self._growth(inputs, dtype, _HIGHEST + 1)
        fits = [d for d in range(degree + 1, _HIGHEST + 1) if _vanishes(more[: d + 2], d + 1)]
        hint = f", and do as those of degree={fits[0]}" if fits else ""
        self._deny_sum(f"they grow otherwise when all elements grow{hint}")

    def _growth(self, inputs: tuple[Input, ...], dtype: str, most: int) -> list[list[np.ndarray]]:
        """The results on whole numbers times 0, 1, 2, ..., most; those of the run's kind."""
        runs = [
            self._run(_arrays(inputs, functools.partial(_whole, times=k))) for k in range(most + 1)
        ]
        kinds = "fc" if is_float(as_dtype(dtype)) else "iufc"
        return [[one for one in run if one.dtype.kind in kinds] for run in runs]

    def _largest(self, inputs: tuple[Input, ...]) -> float:
        """The largest result for elements of size one: the sum of the sizes of the weights.

        It is the bound on the error of results for elements that are 0 with an error up to 1. If
        the oracle has a function without a rule, one has as many terms as an input has elements,
        or as large a result as for ones.
        """
        from .._bounds.estimate import tracked_results
        from .._bounds.model import Model
        from .._bounds.tracked import Tracked

        model = Model.of("float64")
        # Both parts of a complex number are at most 1, and all four products add up.
        size = 2.0 if any(as_dtype(what.dtype).kind == "c" for what in inputs) else 1.0
        zeros = _arrays(inputs, lambda what, number: Tracked(0 * _whole(what, number), size, model))
        with np.errstate(all="ignore"):
            found = tracked_results(self._function, tuple(zeros), model)
        if not isinstance(found, str):
            most = max(float(np.max(np.abs(x.value) + x.bound, initial=0.0)) for x in found)
            if math.isfinite(most):
                return most
        ones = _arrays(inputs, lambda what, number: size + 0 * _whole(what, number))
        most = max(float(np.max(np.abs(wide(x)), initial=0.0)) for x in self._run(ones))
        return max([most, *(size * math.prod(what.shape) for what in inputs)])

    def _run(self, arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        from .._bounds.estimate import outputs

        with np.errstate(all="ignore"):
            return outputs(self._oracle(*map(np.asarray, arrays)))

    def _deny_sum(self, why: str) -> NoReturn:
        degree = self._domain.degree
        factors = "elements" if degree == 1 else f"products of at most {degree} elements"
        raise InvalidArgumentError(
            f"Program {self._name!r}: domain=Domain(sums=True, degree={degree}) means that results "
            f"are sums of {factors} of the arguments, with weights that are whole numbers or those "
            f"over a power of two up to 2^{_FINEST}, but those of its oracle are not: {why}; "
            "correct the oracle or degree=, or leave sums= away"
        )


def _arrays(inputs: tuple[Input, ...], make: Callable[[Input, int], Any]) -> list[Any]:
    """Arguments of an oracle: data by `make`, and others as always."""
    return [
        make(what, number)
        if what.kind == "uniform" and what.dtype != "bool"
        else RandomSource(what.shape, what.dtype, 0, number).read(whole_index(what.shape))
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
        kind = np.dtype(np.float64 if kind.name in EXTENDED else np.float32)
    found = signs * np.ldexp(1 + random.random(what.shape), -1 - number)
    return np.asarray(found + 1j * random.random(what.shape) if kind.kind == "c" else found, kind)


def _whole(what: Input, number: int, times: int = 1) -> np.ndarray:
    """Small whole numbers times another; in float64 or complex128, as in a check."""
    kind, random = as_dtype(what.dtype), np.random.default_rng(number)
    some = np.array([1, 2, 3] if kind.kind == "u" else [-3, -2, -1, 1, 2, 3])
    found = times * random.choice(some, what.shape)
    if kind.kind == "c":
        return np.asarray(found + 1j * times * random.choice(some, what.shape))
    return np.asarray(found, kind if kind.kind in "iu" else np.float64)


def in_full(array: np.ndarray) -> np.ndarray:
    """Convert types that NumPy lacks, such as bfloat16, to float64 for the oracle."""
    return array.astype(np.float64) if array.dtype.kind not in "biufc" else array


def _joined(arrays: Any) -> np.ndarray:
    return np.concatenate([np.reshape(a, -1) for a in arrays])


def _parts(values: np.ndarray) -> np.ndarray:
    """Real and imaginary parts of all elements."""
    return np.stack([values.real, values.imag]).reshape(-1).astype(np.float64)


def _vanishes(values: list[list[np.ndarray]], order: int) -> bool:
    """Whether the differences of an order are zero; True if float64 does not hold them."""
    for results in zip(*([wide(one) for one in run] for run in values), strict=True):
        if max(float(np.max(np.abs(one), initial=0.0)) for one in results) * 2**order >= 2.0**52:
            continue
        weights = [(-1) ** k * math.comb(order, k) for k in range(order + 1)]
        if np.any(sum(w * one for w, one in zip(weights, results, strict=True))):
            return False
    return True
