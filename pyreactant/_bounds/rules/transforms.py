"""Fourier transforms, with normwise bounds."""

import math
from typing import Any

import numpy as np

from ..rounding import bounded
from ..tracked import FUNCTIONS, Tracked
from .products import squares


def _along(transform: Any, x: Tracked, n: int | None, axis: int, norm: str | None) -> Tracked:
    """One dimension: ``norm(error) <= factor * log2(n) u norm(result)`` (Higham, theorem 24.2).

    The factor covers algorithms of any radix, and Bluestein's, which uses three transforms of at
    least twice the length. A transform multiplies Euclidean norms by sqrt(n), before it is scaled.
    """
    z = transform(x.value, n, axis, norm)
    inverse = transform in (np.fft.ifft, np.fft.irfft)
    length = z.shape[axis] if transform is not np.fft.rfft else (n or x.shape[axis])
    # What is beyond the length is not read; half a spectrum stands for all of it.
    read = [slice(None)] * x.ndim
    read[axis] = slice(0, length // 2 + 1 if transform is np.fft.irfft else length)
    half = 2.0 if transform is np.fft.irfft else 1.0
    backward = norm in (None, "backward")
    scale = {"ortho": 1.0}.get(norm or "", math.sqrt(length))
    if inverse is backward and norm != "ortho":
        scale = 1 / scale
    size, grown = (
        scale * np.expand_dims(np.sqrt(half * squares(part[tuple(read)], axis)), axis)
        for part in (x.value, x.bound)
    )
    steps = math.ceil(math.log2(max(length, 2))) + 2
    u = x.model.roundoff + x.model.operand_roundoff
    bound = grown + 16 * steps * u * (size + grown) + length * x.model.tiny
    return bounded(z, np.broadcast_to(bound, z.shape), x.model)


def _one(transform: Any) -> Any:
    def rule(a: Tracked, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracked:
        return _along(transform, a, n, axis, norm)

    return rule


def _several(transform: Any, first: Any, default: tuple[int, ...] | None) -> Any:
    """The rule of a transform along several dimensions, the last one with `first`."""

    def rule(a: Tracked, s: Any = None, axes: Any = default, norm: str | None = None) -> Tracked:
        if axes is None:
            axes = tuple(range(a.ndim)) if s is None else tuple(range(-len(s), 0))
        lengths = [None] * len(axes) if s is None else [*s]
        order = [*zip(axes, lengths, strict=True)]
        kinds = [transform] * (len(order) - 1) + [first]
        steps = [*zip(kinds, order, strict=True)]
        # A real transform comes first, and its inverse last.
        for one, (axis, n) in steps if first is np.fft.irfft else steps[::-1]:
            a = _along(one, a, n, axis, norm)
        return a

    return rule


_FFT, _IFFT, _RFFT, _IRFFT = np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft

FUNCTIONS |= {one: _one(one) for one in (_FFT, _IFFT, _RFFT, _IRFFT)}
FUNCTIONS |= {
    np.fft.fft2: _several(_FFT, _FFT, (-2, -1)),
    np.fft.ifft2: _several(_IFFT, _IFFT, (-2, -1)),
    np.fft.rfft2: _several(_FFT, _RFFT, (-2, -1)),
    np.fft.irfft2: _several(_IFFT, _IRFFT, (-2, -1)),
    np.fft.fftn: _several(_FFT, _FFT, None),
    np.fft.ifftn: _several(_IFFT, _IFFT, None),
    np.fft.rfftn: _several(_FFT, _RFFT, None),
    np.fft.irfftn: _several(_IFFT, _IRFFT, None),
}
