"""Ordinary NumPy expressions, as oracles use them, by family.

`x`, `y`, `z` are matrices, `p` a positive one, `v`, `w` vectors, `t` an array with three
dimensions, `u` a matrix with elements in (-1, 1), `i` a vector of indices, and `b` is `x > y`.
"""

from typing import Any

import numpy as np

FAMILIES: dict[str, str] = {
    "arithmetic": """
        x + y; x - y; x * y; x / p; -x; +x; abs(x); x + 1; 2 * x; 1 / p; x ** 2; x ** 3
        p ** 0.5; p ** -1; x ** -2 + 0 * y; p ** -0.5; p ** 1.5; p ** y; 2.0 ** x; x ** 0
        x ** 5; p // y; p % 0.7; x % p; np.fmod(x, p); np.square(x); np.reciprocal(p)
        np.power(p, 0.3); np.float32(0.1) * x + y / 3; np.add.outer(v, w)
        np.multiply.outer(v, w); np.negative(x); np.positive(x); np.fabs(x)
        np.divmod(p, 0.3)[1]; np.modf(x)[0]; np.deg2rad(x); np.degrees(x); np.diff(x)
        np.diff(x, n=2, axis=0); np.diff(v, prepend=0.0); np.gradient(v)
        np.gradient(x, 0.5)[1]; np.cross(x[:, :3], y[:, :3]); np.subtract.outer(v, v)""",
    "functions": """
        np.exp(x); np.exp2(x); np.expm1(x); np.log(p); np.log2(p); np.log10(p); np.log1p(p)
        np.sqrt(p); np.cbrt(x); np.sin(x); np.cos(x); np.tan(u); np.arcsin(u); np.arccos(u)
        np.arctan(x); np.arctan2(x, p); np.sinh(x); np.cosh(x); np.tanh(x); np.arcsinh(x)
        np.arccosh(p + 1.5); np.arctanh(u); np.hypot(x, y); np.logaddexp(x, y)
        np.logaddexp2(x, y); np.sinc(x); np.angle(x + 1j * p); np.exp(1j * x); np.exp(x @ y)
        np.tanh(x @ y); 1 / (1 + np.exp(-x)); np.log(1 + np.exp(x))
        x * 0.5 * (1 + np.tanh(0.8 * (x + 0.04 * x**3)))""",
    "order": """
        np.maximum(x, y); np.minimum(x, 0); np.fmax(x, y); np.fmin(x, y); np.clip(x, -1, 1)
        x.clip(0, None); np.clip(x, a_min=-1, a_max=y + 9); np.clip(x, min=0.5); np.sign(x)
        np.floor(x); np.ceil(x); np.trunc(x); np.rint(x); np.round(x, 1); x.round()
        np.heaviside(x, 0.5); np.copysign(p, x); x > y; x >= 0; x < y; x <= y; x == y; x != y
        (x > 0) & (y > 0); (x > 0) | (y > 0); ~(x > y); (x > 0) ^ (y > 0)
        np.logical_and(x, y > 0); np.logical_or(x > 1, y > 1); np.logical_not(x > 0)
        np.isnan(x); np.isfinite(x); np.isinf(x); np.signbit(x); np.where(x > 0, x, 0)
        np.where(b, x, y); np.select([x > 1, x < -1], [x, y], 0); np.nan_to_num(x); x.max()
        np.max(x, axis=1); x.min(axis=0, keepdims=True); np.amax(x, 0); np.nanmax(x, axis=1)
        np.ptp(x, axis=1); x.any(); np.any(x > 0, axis=1); (x > 0).all(axis=0)
        np.count_nonzero(x > 0, axis=0); np.sort(x); np.sort(x, axis=None); np.argsort(v)
        np.argmax(x); x.argmax(axis=1); np.argmin(x, axis=0); np.median(x)
        np.median(x, axis=1); np.quantile(x, 0.3, axis=1); np.percentile(x, 70); (x > 0).sum()
        np.maximum.reduce(x)""",
    "moves": """
        x.T; np.transpose(t, (2, 0, 1)); t.transpose(1, 0, 2); x.reshape(4, 9)
        np.reshape(x, -1); x.ravel(); x.flatten(); np.swapaxes(t, 0, 2); np.moveaxis(t, 0, -1)
        np.expand_dims(x, 1); np.squeeze(x[None]); x[:, None]; x[1:-1, ::2]; x[i]; x[b]
        x[..., -1]; np.broadcast_to(v, (4, 6)); np.roll(x, 1, axis=0); np.flip(x)
        np.flipud(x); np.fliplr(x); np.rot90(x); np.tile(x, 2); np.repeat(x, 2, axis=1)
        np.concatenate([x, y]); np.stack([x, y], axis=-1); np.vstack([x, y])
        np.hstack([x, y]); np.dstack([x, y]); np.column_stack([v, w]); np.append(v, w)
        np.pad(x, 1); np.pad(x, 1, mode="edge")
        np.pad(x, ((0, 1), (2, 0)), constant_values=0.1); np.split(x, 2)[1]
        np.array_split(v, 4)[0]; np.hsplit(x, 3)[2]; np.vsplit(x, 2)[0]; np.take(x, i, axis=0)
        x.take(i); np.take_along_axis(x, np.argsort(x, axis=1), axis=1); np.triu(x)
        np.tril(x, -1); np.diag(v); np.diag(x); np.diagonal(x); np.trace(x); x.trace()
        np.delete(x, 1, axis=0); np.meshgrid(v, w)[0]; np.broadcast_arrays(x, v)[1]
        np.atleast_2d(v); np.unstack(x)[2]; x.copy(); np.copy(x); x.astype(np.float32)
        x.astype("float16"); x.astype(int); (x > 0).astype(np.float32); x.astype(complex)
        (x + 1j * y).real; np.imag(x + 1j * y); np.zeros_like(x) + v; np.full_like(x, 0.1)
        np.ones_like(x, dtype=np.float32) * x; x.mT; np.resize(v, (3, 4))
        np.compress([1, 0, 1], x, axis=0)""",
    "reductions": """
        x.sum(); np.sum(x, axis=1); x.sum(axis=(0, 1)); np.sum(x, 0, keepdims=True)
        x.sum(axis=1, dtype=np.float32); np.add.reduce(x); x.mean(); np.mean(t, axis=(1, 2))
        x.var(); np.var(x, axis=1, ddof=1); x.std(axis=0, ddof=1); np.std(x)
        np.average(x, axis=1); np.average(v, weights=p[0])
        np.average(x, axis=1, weights=p[0]); x.prod(axis=1); np.prod(p, axis=0)
        np.cumsum(x, axis=1); x.cumsum(); np.cumprod(x, axis=1); np.add.accumulate(x)
        np.nansum(x, axis=0); np.nanmean(x, axis=1); np.linalg.norm(x)
        np.linalg.norm(x, axis=1); np.linalg.norm(x, ord=1); np.linalg.norm(v, np.inf)
        np.linalg.norm(v, 3); np.linalg.norm(x, np.inf); np.linalg.vector_norm(x, axis=1)
        np.trapezoid(v); np.trapezoid(x, dx=0.1); np.cov(x); np.corrcoef(x)
        np.exp(x) / np.exp(x).sum(axis=1, keepdims=True); (x - x.mean(0)) / x.std(0)
        np.log(np.exp(x).sum(1)); -np.sum(p / p.sum() * np.log(p / p.sum()))
        np.mean((x - y) ** 2); np.mean(np.abs(x - y))""",
    "products": """
        x @ y; x @ v; v @ w; np.dot(x, y); x.dot(v); np.matmul(t, t.swapaxes(1, 2))
        np.outer(v, w); np.inner(x, y); np.vdot(x, y); np.tensordot(x, y)
        np.tensordot(x, t, axes=([0], [2])) if x.shape[0] == t.shape[2] else x
        np.tensordot(x, y, axes=1); np.kron(x[:2, :2], y); np.einsum("ij,jk->ik", x, y)
        np.einsum("ij,jk", x, y); np.einsum("ii->i", x); np.einsum("ii", x)
        np.einsum("...ij,...kj->...ik", t, t); np.einsum("ij,jk,kl->il", x, y, z)
        np.einsum("i,j,k->ijk", v, w, v); np.linalg.multi_dot([x, y, z])
        np.linalg.matrix_power(x, 3); np.convolve(v, w); np.convolve(v, w[:3], mode="same")
        np.correlate(v, w, "full"); np.polyval(w, v); np.vander(v, 4); np.linalg.outer(v, w)
        np.linalg.vecdot(x, y); np.einsum("ij->j", x)""",
    "transforms": """
        np.fft.fft(x); np.fft.fft(x, 4); np.fft.fft(x, 9, 0)
        np.fft.fft(x, axis=0, norm="ortho"); np.fft.ifft(x); np.fft.rfft(x); np.fft.rfft(v, 5)
        np.fft.irfft(np.fft.rfft(x)); np.fft.irfft(x + 1j * y, 7); np.fft.fft2(x)
        np.fft.ifft2(x, norm="forward"); np.fft.rfft2(x); np.fft.irfft2(np.fft.rfft2(x))
        np.fft.fftn(t); np.fft.fftn(t, (3, 5), (0, 2)); np.fft.ifftn(t); np.fft.rfftn(t)
        np.fft.fftshift(x); np.fft.ifftshift(x, axes=0); np.abs(np.fft.fft(x)) ** 2
        np.real(np.fft.ifft(np.fft.fft(v) * np.fft.fft(w)))""",
}


def expressions(family: str) -> list[str]:
    """The expressions of a family."""
    lines = FAMILIES[family].split("\n")
    return [one.strip() for line in lines for one in line.split(";") if one.strip()]


def in_place(x: Any, y: Any) -> Any:
    x += 1
    x *= y
    x[0] = y[1]
    x[1:, 2] -= 0.5
    x[x < 0] = 0.0
    np.add(x, y, out=x)
    np.clip(x, None, 2, out=x)
    return x


def stencil(x: Any, y: Any) -> Any:
    out = np.zeros_like(x)
    out[1:-1] = (x[2:] - x[:-2]) / 2
    rows = out[1]
    rows += y[0]
    out[:, 0] /= 3
    return out


def through_a_view(x: Any, y: Any) -> Any:
    turned = x.T
    turned[0] = y[0]
    x[2] += 0.1
    return turned * x


STATEMENTS = (in_place, stencil, through_a_view)

WITHOUT_RULE = """
        np.linalg.inv(x); np.linalg.solve(x, v); np.linalg.det(x); np.linalg.eigvalsh(x)
        np.linalg.svd(x)[1]; np.interp(v, w, w); np.unique(v); np.bincount(i, v)
        np.histogram(v)[0]; np.searchsorted(v, w); np.i0(v); np.apply_along_axis(np.sum, 0, x)
        np.nonzero(x)[0]; np.allclose(x, y); np.unwrap(v); np.linalg.pinv(x)"""


def arrays(seed: int, dtype: Any = np.float32) -> dict[str, Any]:
    """The arrays of the expressions."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {name: 2 * rng.normal(size=(6, 6)) for name in "xyz"}
    found["p"] = rng.uniform(0.1, 3, (6, 6))
    found["u"] = rng.uniform(-0.95, 0.95, (6, 6))
    found |= {name: rng.normal(size=6) for name in "vw"}
    found["t"] = rng.normal(size=(2, 3, 4))
    found = {name: array.astype(np.float32).astype(dtype) for name, array in found.items()}
    found["i"] = np.array([3, 0, 5])
    return found | {"b": found["x"] > found["y"]}
