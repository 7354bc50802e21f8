"""Faults that resemble another one: they have their own name or none."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.records.verdict import Kind

from .faults import Scene, instead, scene_of
from .trials import diagnosis_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("backend")]


def weights(x: Any, of: Any, mask: int = 0, scaled: bool = True) -> Any:
    """The weights of causal attention."""
    s = x @ x.T / (x.shape[1] ** 0.5 if scaled else 1.0)
    s = of.where(of.tril(of.ones(s.shape), mask) > 0, s, -1e30)
    e = of.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x: Any, of: Any, mask: int = 0, scaled: bool = True) -> Any:
    return weights(x, of, mask, scaled) @ x


def dropout(x: Any, of: Any, keep: float = 0.8) -> Any:
    return x * (of.arange(x.shape[1]) % 5 != 0) / keep


def root_mean_square(x: Any, of: Any, under: float = 1e-6, beside: float = 0.0) -> Any:
    return x / (of.sqrt((x * x).mean(axis=1, keepdims=True) + under) + beside)


def ridge(x: Any, of: Any, more: float = 1.0) -> Any:
    return x @ of.linalg.inv(x.T @ x + more * of.eye(x.shape[1]))


def quantised(x: Any, of: Any, zero_point: float = 0.0) -> Any:
    return (x + zero_point) @ (x * x)


def waves(x: Any, of: Any, middle: float = 1.0, height: float = 0.0) -> Any:
    """Each row has a factor of its own."""
    return x * (middle + height * of.sin(of.arange(len(x))))[:, None]


def positions(x: Any, of: Any, parts: int = 1) -> Any:
    """Rows that are turned by their positions, which may begin again on each part."""
    at = of.arange(len(x)) % (len(x) // parts)
    return x * of.cos(at)[:, None] + x[:, ::-1] * of.sin(at)[:, None]


def differences(x: Any, of: Any, sign: float = 1.0) -> Any:
    """Each element needs another one: no sum over devices, though linear."""
    return x - sign * of.roll(x, 8, axis=1)


def neighbours(x: Any, of: Any, parts: int = 1) -> Any:
    """Products with the elements before, of each part by itself if there are several."""
    whole = of.split(x, parts, axis=1)
    return of.concatenate([of.tanh(y) * of.roll(y, 2, axis=1) for y in whole], axis=1)


def neighbours_of_both(x: Any, of: Any, rows: int = 1, columns: int = 1) -> Any:
    parts = [of.split(y, columns, axis=1) for y in of.split(x, rows, axis=0)]
    rolled = [[y * (of.roll(y, 1, 0) + of.roll(y, 1, 1)) for y in line] for line in parts]
    return of.concatenate([of.concatenate(line, axis=1) for line in rolled], axis=0)


def open_end(x: Any, of: Any, closed: bool = True) -> Any:
    moved = of.concatenate([x[:, -1:] * closed, x[:, :-1]], axis=1)
    return 2.0 * x + moved


def clipped(x: Any, of: Any, power: float = 0.5) -> Any:
    """A number that is computed from all inputs is no constant, whatever factor it makes."""
    return x * of.minimum(1.0, 1.0 / ((x * x).sum() ** power + 1e-6))


def gated(x: Any, of: Any, gate: bool = True) -> Any:
    """A gate that is left out is 1, and so is the sum of the largest of single probabilities."""
    e = of.exp(x[:, :8])
    p = e / e.sum(axis=1, keepdims=True)
    return of.tanh(x) * (p.max(axis=1, keepdims=True) if gate else 1.0)


def restarted(x: Any, of: Any, parts: int = 1) -> Any:
    """A recurrence that begins again is no halo, though each part lacks what came before."""
    rows, h = [], x[0] * 0
    for t in range(len(x)):
        h = (0 if t % (len(x) // parts) == 0 else 0.5) * h + x[t]
        rows.append(h)
    return of.stack(rows)


def offset(x: Any, of: Any, more: float = 1.0) -> Any:
    """A summand that is another number is named by its line alone."""
    return of.tanh(x @ x + more) @ x


def groups(x: Any, of: Any, under: float = 1e-5, beside: float = 0.0) -> Any:
    z = x.reshape(len(x), 4, -1)
    z = z / (of.sqrt((z * z).mean(axis=2, keepdims=True) + under) + beside)
    return z.reshape(x.shape)


def balanced(x: Any, of: Any, load: float = 0.01) -> Any:
    """A computed number is small, and no epsilon."""
    return x @ x + load * x.max()


def routed(x: Any, of: Any, lost: int = -1) -> Any:
    """Rows without an expert are zeros, and no unwritten memory."""
    expert = of.argmax(x[:, :4], axis=1)
    return of.tanh(x) * (expert != lost)[:, None]


def mean_loss(x: Any, of: Any, less: int = 0) -> Any:
    """A mean of no squares has no variance."""
    return x * (of.exp(x).sum(axis=1, keepdims=True) / (x.shape[1] - less))


def one_hot(x: Any, of: Any, moved: int = 0) -> Any:
    """Labels that are off by one, or a mask."""
    labels = of.arange(len(x)) * 5 % x.shape[1]
    hot = of.arange(x.shape[1])[None, :] == labels[:, None] + moved
    return of.where(hot, of.tanh(x), 0.0) + x


def squares(x: Any, of: Any, least: float = 0.0) -> Any:
    """A branch on values is no mask."""
    return of.where(x > least, x, x * x) @ x


def noisy(x: Any, of: Any, noise: float = 0.0) -> Any:
    """Small errors of random signs are no lower precision."""
    return x @ x + noise * of.sin(1e4 * x)


def skipped(x: Any, of: Any, step: float = 0.3) -> Any:
    """A result that is the input is no unwritten memory."""
    return x - step * of.tanh(x @ x)


def doubled(x: Any, of: Any, least: float = 0.25) -> Any:
    """A threshold that moved is no factor, though all wrong elements have one."""
    return of.where(x > least, 2.0 * x, x)


def decayed(x: Any, of: Any, decay: float = 0.05) -> Any:
    """A term that is left out is no factor, though it is a multiple of the rest."""
    y = of.tanh(x)
    return y + decay * y


FAULTS: list[tuple[Callable[..., Any], dict[str, Any], Kind]] = [
    (weights, {"mask": 1}, Kind.MASK),
    (weights, {"mask": -1}, Kind.MASK),
    (weights, {"scaled": False}, Kind.FACTOR),
    (attention, {"mask": 1}, Kind.MASK),
    (attention, {"mask": -1}, Kind.MASK),
    (attention, {"scaled": False}, Kind.FACTOR),
    (dropout, {"keep": 1.0}, Kind.FACTOR),
    (root_mean_square, {"under": 1e-5}, Kind.EPSILON),
    (root_mean_square, {"under": 1e-2}, Kind.EPSILON),
    (root_mean_square, {"under": 0.0, "beside": 1e-2}, Kind.EPSILON),
    (ridge, {"more": 1.001}, Kind.UNKNOWN),
    (quantised, {"zero_point": 0.002}, Kind.UNKNOWN),
    (waves, {"middle": 1 - 1 / 32, "height": 0.05}, Kind.UNKNOWN),
    (positions, {"parts": 2}, Kind.UNKNOWN),
    (differences, {"sign": -1.0}, Kind.FACTOR),
    (neighbours, {"parts": 4}, Kind.HALO),
    (neighbours_of_both, {"rows": 2, "columns": 4}, Kind.HALO),
    (open_end, {"closed": False}, Kind.HALO),
    (groups, {"under": 0.0, "beside": 1e-2}, Kind.UNKNOWN),
    (balanced, {"load": 0.0}, Kind.UNKNOWN),
    (waves, {"middle": 3.0, "height": 0.5}, Kind.UNKNOWN),
    (waves, {"middle": 1.001}, Kind.UNKNOWN),
    (routed, {"lost": 2}, Kind.UNKNOWN),
    (mean_loss, {"less": 1}, Kind.FACTOR),
    (one_hot, {"moved": 1}, Kind.UNKNOWN),
    (squares, {"least": -9.0}, Kind.UNKNOWN),
    (noisy, {"noise": 1e-3}, Kind.UNKNOWN),
    (skipped, {"step": 0.0}, Kind.UNKNOWN),
    (doubled, {"least": 0.5}, Kind.UNKNOWN),
    (decayed, {"decay": 0.0}, Kind.UNKNOWN),
    (clipped, {"power": 1.0}, Kind.UNKNOWN),
    (gated, {"gate": False}, Kind.UNKNOWN),
    (restarted, {"parts": 2}, Kind.UNKNOWN),
    (offset, {"more": 1.5}, Kind.UNKNOWN),
]


@pytest.mark.parametrize(("function", "changed", "kind"), FAULTS)
def test_no_name_misleads(function: Any, changed: dict[str, Any], kind: Kind) -> None:
    scene = scene_of(function)
    assert diagnosis_of(scene.run).passed
    found = diagnosis_of(scene.with_blocks(instead(partial(function, of=np, **changed))(scene)))
    assert found.kind == kind, found.text


def test_zeros_of_a_lookup_are_no_unwritten_memory() -> None:
    def oracle(table: Any, at: Any) -> Any:
        return table[at] * 2.0

    def none_there(table: Any, at: Any) -> Any:
        return np.zeros((len(at), table.shape[1]), np.float32)

    program = pr.Program(
        "lookup", jax=oracle, oracle=oracle, inputs=(("n", "n"), pr.Integers(0, 8, shape=("n",)))
    )
    scene = Scene.of(program, 32)
    assert diagnosis_of(scene.run).passed
    found = diagnosis_of(scene.with_blocks(instead(none_there)(scene)))
    assert found.kind == Kind.UNKNOWN, found.text


def test_ones_and_zeros_have_no_parts() -> None:
    """A number of elements is equal to twice that of a half of them by chance."""

    def pooled(x: Any, of: Any, count: float = 20.0) -> Any:
        seen = of.abs(x[0]) > 0
        kept = of.arange(len(x)) < 20
        return x * seen / ((seen & kept) * 1.0).sum() * (20.0 / count)

    scene = scene_of(pooled)
    assert diagnosis_of(scene.run).passed
    found = diagnosis_of(scene.with_blocks(instead(partial(pooled, of=np, count=32.0))(scene)))
    assert found.kind in (Kind.UNKNOWN, Kind.FACTOR), found.text


@pytest.mark.parametrize("seed", range(3))
def test_what_is_no_fault_of_one_kind_has_no_name(seed: int) -> None:
    """Two faults at once, and values that no operation gives."""
    draw = np.random.default_rng(seed)

    def two_faults(x: Any) -> Any:
        return attention(x, np, mask=1 + seed, scaled=False) * (1 + 0.3 * x)

    def some_rows(x: Any) -> Any:
        return attention(x, np) * draw.uniform(0.5, 2.0, size=(len(x), 1))

    def everywhere(x: Any) -> Any:
        return attention(x, np) + 0.1 * draw.normal(size=x.shape)

    scene = scene_of(attention)
    for wrong in (two_faults, some_rows, everywhere):
        found = diagnosis_of(scene.with_blocks(instead(wrong)(scene)))
        assert found.kind == Kind.UNKNOWN, found.text
