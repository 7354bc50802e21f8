"""What moves or chooses elements and rounds nothing: the same is done to value and bound."""

from typing import Any

import numpy as np

from ._tracked import FUNCTIONS, Tracked, _numpy, as_tracked


def _moved(function: Any) -> Any:
    """A function of one array that only moves its elements."""

    def rule(x: Tracked, *args: Any, **options: Any) -> Tracked:
        return Tracked(
            function(x.value, *args, **options), function(x.bound, *args, **options), x.model
        )

    return rule


def _joined(function: Any) -> Any:
    """A function of a sequence of arrays that puts them together."""

    def rule(arrays: Any, *args: Any, **options: Any) -> Tracked:
        model = next(x.model for x in arrays if isinstance(x, Tracked))
        parts = [as_tracked(x, model) for x in arrays]
        return Tracked(
            function([x.value for x in parts], *args, **options),
            function([x.bound for x in parts], *args, **options),
            model,
        )

    return rule


def _extreme(function: Any) -> Any:
    """Maximum or minimum: it moves by no more than the operand that moves most."""

    def rule(x: Tracked, axis: Any = None, *, keepdims: bool = False) -> Tracked:
        value = function(x.value, axis=axis, keepdims=keepdims)
        return Tracked(value, _numpy.max(x.bound, axis=axis, keepdims=keepdims), x.model)

    return rule


def _sort(x: Tracked, axis: int = -1) -> Tracked:
    bound = np.broadcast_to(np.max(x.bound, axis=axis, keepdims=True), x.shape)
    return Tracked(np.sort(x.value, axis=axis), bound, x.model)


def _where(condition: Any, x: Any, y: Any) -> Tracked:
    model = next(a.model for a in (condition, x, y) if isinstance(a, Tracked))
    x, y = as_tracked(x, model), as_tracked(y, model)
    if not isinstance(condition, Tracked):
        return Tracked(
            np.where(condition, x.value, y.value), np.where(condition, x.bound, y.bound), model
        )
    truth = condition.value != 0
    # Where the comparison is open, the other operand may stand there.
    other = np.abs(x.value - y.value) + np.maximum(x.bound, y.bound)
    bound = np.where(condition.bound > 0, other, np.where(truth, x.bound, y.bound))
    return Tracked(np.where(truth, x.value, y.value), bound, model)


def _pad(x: Tracked, widths: Any, mode: str = "constant") -> Tracked:
    return _moved(np.pad)(x, widths, mode=mode)


def _part(function: Any) -> Any:
    """Real or imaginary part: in error by no more than the whole."""
    return lambda x: Tracked(function(x.value), x.bound, x.model)


def _like(function: Any) -> Any:
    """Constants of an array's shape; they are plain arrays."""
    return lambda x, *args, **options: function(x.value, *args, **options)


FUNCTIONS |= {
    f: _moved(f)
    for f in (
        np.transpose,
        np.swapaxes,
        np.moveaxis,
        np.reshape,
        np.ravel,
        np.squeeze,
        np.expand_dims,
        np.broadcast_to,
        np.roll,
        np.flip,
        np.take,
        np.tile,
        np.repeat,
        np.triu,
        np.tril,
        np.diagonal,
        np.rot90,
    )
}
FUNCTIONS |= {f: _joined(f) for f in (np.concatenate, np.stack, np.vstack, np.hstack)}
FUNCTIONS |= {f: _extreme(f) for f in (np.max, np.min)}
FUNCTIONS |= {f: _like(f) for f in (np.zeros_like, np.ones_like, np.full_like)}
FUNCTIONS |= {f: lambda x, f=f: f(x.value) for f in (np.shape, np.ndim, np.size)}
FUNCTIONS |= {np.sort: _sort, np.where: _where, np.pad: _pad}
FUNCTIONS |= {f: _part(f) for f in (_numpy.real, _numpy.imag)}
