"""Whether a block was computed in a shorter type than its own.

Other faults are small, too. So errors are compared with those of shorter inputs: either they are
the same ones, or they are about as large and have random signs.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..._core.dtypes import as_dtype, finfo, is_float, wide
from .._oracle.altered import Rounded
from .._oracle.oracle import OutputOracle
from .._records.verdict import Kind
from .subject import Reason, Wrong

_SHORTER = {"bfloat16": 8, "float16": 11, "float32": 24}
"""Shorter types and the bits of their significands; TF32 has those of float16."""

_SAME = 0.9
"""Least correlation of errors that have one cause."""

_AS_LARGE = 8.0
"""Most times that errors exceed those of bfloat16 inputs; a program rounds more than its inputs."""

_RANDOM = 4.0
"""Standard deviations of a mean of errors with random signs."""


def lower_precision(wrong: Wrong) -> Iterator[Reason]:
    got, value = wrong.values, wide(np.asarray(wrong.right.value))
    if not is_float(got.dtype) or wrong.got.size < 2:  # one element shows no precision
        return
    with np.errstate(all="ignore"):
        error, sizes = wide(got) - value, np.abs(value)
        small = np.abs(error).max() <= 2.0**-4 * sizes.max()
        spread = (np.abs(error) > 2 * float(finfo(got.dtype).eps) * sizes).mean() >= 0.25
    if not (small and spread):
        return
    held = next((name for name in _shorter(got.dtype) if _representable(got, name)), None)
    text = f"its elements are rounded to {held}" if held else _of_inputs(wrong, error, value)
    if text:
        yield Kind.LOWER_PRECISION, text


def _of_inputs(wrong: Wrong, error: np.ndarray, value: np.ndarray) -> str:
    """How the errors of a tile resemble those of shorter inputs; "" if they do not."""
    shorter = _shorter(wrong.values.dtype)
    moved = {name: _moved(wrong, value, _SHORTER[name]) for name in shorter}
    for name, by in moved.items():
        if np.abs(np.vdot(error, by)) > _SAME * _norm(error) * _norm(by) > 0:
            return f"it is what inputs rounded to {name} give{_or_tf32(name)}"
    bits = 1 - round(np.log2(finfo(wrong.values.dtype).eps))
    usual = moved[shorter[0]] if shorter else _moved(wrong, value, bits - 1)
    one_sided = max(abs(np.mean(error)), abs(np.mean(error * np.conj(np.sign(value)))))
    if not 0 < _norm(error) <= _AS_LARGE * _norm(usual):
        return ""
    if one_sided * error.size > _RANDOM * _norm(error):
        return ""
    worst = np.abs(error).max() / np.abs(value).max()
    return f"it is accurate to about {-np.log2(worst):.0f} bits"


def _moved(wrong: Wrong, value: np.ndarray, bits: int) -> np.ndarray:
    """How far shorter inputs move the right values; nowhere if the program has none."""
    if not isinstance(wrong.oracle, OutputOracle):
        return np.zeros_like(value)
    sources = tuple(Rounded(source, bits) for source in wrong.oracle.sources)
    with np.errstate(all="ignore"):
        moved = wide(np.asarray(replace(wrong.oracle, sources=sources).block(wrong.tile).value))
    return moved - value


def _norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(x.ravel()))


def _or_tf32(name: str) -> str:
    return ", or to TF32" if _SHORTER[name] == _SHORTER["float16"] else ""


def _shorter(dtype: np.dtype[np.generic]) -> list[str]:
    part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return [name for name in _SHORTER if as_dtype(name).itemsize < part]


def _representable(got: np.ndarray, name: str) -> bool:
    parts = [got.real, got.imag] if got.dtype.kind == "c" else [got]
    with np.errstate(all="ignore"):
        return all((part.astype(as_dtype(name)).astype(part.dtype) == part).all() for part in parts)
