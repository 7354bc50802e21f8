"""Empirical error bounds for oracles that use functions without a rule. Not a proof.

The oracle runs again with inputs that are perturbed by one rounding, and once in the runtime's
own dtype. docs/checks.md describes what this detects.
"""

import contextlib
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from .._core.dtypes import EXTENDED, wide
from .._core.tree import data_fields, is_user_dataclass
from .model import Model
from .rounding import bounded
from .tracked import Estimated

_RUNS = 4


def estimate(
    oracle: Callable[..., Any],
    parts: tuple[Any, ...],
    model: Model,
    reason: str = "",
    other: Callable[..., Any] | None = None,
) -> tuple[Any, ...]:
    """The oracle's results with estimated bounds, always as a tuple.

    Args:
        oracle: A plain NumPy function.
        parts: Its arguments in float64 or complex128; integers and booleans are unchanged.
        model: Rounding model of the runtime.
        reason: Why no bound could be derived; the results carry it.
        other: The same oracle with other roundings, such as those of the constants that it
            computes; it is left out if it fails.
    """
    exact = outputs(oracle(*parts))
    others = [outputs(oracle(*_perturbed(parts, model, run))) for run in range(_RUNS)]
    if model.dtype.name not in EXTENDED:
        others.append(outputs(oracle(*(_as(part, model.dtype) for part in parts))))
    if other is not None:
        with contextlib.suppress(Exception):
            others.append(outputs(other(*parts)))
    longest = max((n for part in parts for n in np.shape(part)), default=1)
    return tuple(
        Estimated(
            wide(value), _bound(value, [run[i] for run in others], longest, model), model, reason
        )
        for i, value in enumerate(exact)
    )


def outputs(result: Any) -> tuple[np.ndarray, ...]:
    """The results of an oracle, which may be a tree, as a tuple of arrays."""
    return tuple(map(np.asarray, leaves(result)))


def leaves(tree: Any) -> list[Any]:
    """The leaves of a dict, list, tuple, namedtuple, dataclass or None, or of a nest of these.

    They are in the order in which runtimes flatten trees. An oracle runs where no runtime does too,
    so this needs neither jax nor optree.
    """
    kind: type = type(tree)
    if tree is None:
        return []
    if isinstance(tree, (tuple, list)):
        parts = list(tree)
    elif isinstance(tree, OrderedDict):
        parts = list(tree.values())
    elif kind in (dict, defaultdict):
        parts = [tree[key] for key in sorted(tree)]
    elif is_user_dataclass(kind):
        parts = [getattr(tree, name) for name in data_fields(kind)[0]]
    else:
        return [tree]
    return [leaf for part in parts for leaf in leaves(part)]


def _bound(value: np.ndarray, others: list[np.ndarray], longest: int, model: Model) -> Any:
    if value.dtype.kind in "biu":
        # Indices and comparisons: exact where nothing moves them.
        apart = [np.abs(wide(one) - wide(value)) for one in others]
        return 8 * math.sqrt(longest) * np.max(apart, axis=0, initial=0.0)
    with np.errstate(all="ignore"):
        moved = np.max([np.abs(one - value) for one in others], axis=0, initial=0.0)
        # All runs have the same infinity, or all have NaN.
        same = [(one == value) | (np.isnan(one) & np.isnan(value)) for one in others]
        moved = np.where(np.all(same, axis=0), 0.0, moved)
        finite = moved[np.isfinite(moved)]
        usual = math.sqrt(np.square(finite).mean()) if finite.size else 0.0
        bound = 8 * math.sqrt(longest) * (moved + usual)
        bound += 64 * model.roundoff * np.abs(value)
        bound += longest * model.tiny
        return bounded(value, bound, model, lambda: moved == 0).bound


def _perturbed(parts: tuple[Any, ...], model: Model, run: int) -> list[Any]:
    """The parts with each element rounded once more, randomly up or down."""
    numbers = np.random.Generator(np.random.Philox(key=run))
    u = model.roundoff + model.operand_roundoff
    return [
        part * (1 + u * (2.0 * numbers.integers(0, 2, np.shape(part)) - 1))
        if part.dtype.kind in "fc"
        else part
        for part in parts
    ]


def _as(part: Any, dtype: np.dtype[Any]) -> Any:
    if part.dtype.kind not in "fc":
        return part
    real_of_complex = dtype.kind == "c" and part.dtype.kind != "c"
    return part.astype(np.finfo(dtype).dtype if real_of_complex else dtype)
