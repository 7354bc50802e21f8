"""Faults of one operation of a program: each has a right name, or none."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from pyreactant.arrays.dtypes import as_dtype
from pyreactant.check.check import check_all
from pyreactant.check.records.verdict import Kind

from .faults import every, instead, scene_of
from .trials import diagnosis_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("backend")]


def softmax(x: Any, of: Any, axis: int = -1, over: Any = None) -> Any:
    e = of.exp(x - x.max(axis=axis, keepdims=True))
    total = e if over is None else e[:, over]
    return e / total.sum(axis=axis, keepdims=True)


def normalised(x: Any, of: Any, less: int = 0, over: Any = None, under: float = 1e-5) -> Any:
    part = x if over is None else x[:, over]
    apart = x - part.mean(axis=1, keepdims=True)
    own = apart if over is None else apart[:, over]
    square = (own * own).sum(axis=1, keepdims=True) / (own.shape[1] - less)
    return apart / of.sqrt(square + under)


def windowed(x: Any, of: Any, width: int = 4, ahead: int = 0, strict: bool = False) -> Any:
    rows, columns = of.arange(x.shape[0])[:, None], of.arange(x.shape[0])[None, :]
    near = (rows - columns < width) if strict else (rows - columns <= width)
    seen = near & (columns <= rows + ahead)
    return of.where(seen, x @ x.T, 0.0) @ x


def mlp(x: Any, of: Any, lost: Any = None, twice: bool = False, turned: bool = False) -> Any:
    h = of.tanh(x @ (x.T if turned else x) / x.shape[1])
    hidden = h if lost is None else h * (of.arange(h.shape[1]) // (h.shape[1] // 4) != lost)
    return of.tanh(hidden @ x) * (2 if twice else 1)


def moments(x: Any, of: Any, beside: bool = False, epsilon: float = 1e-3) -> Any:
    """A step of Adam."""
    v = 0.001 * x * x
    return 0.1 * x / (of.sqrt(v) + epsilon if beside else of.sqrt(v + epsilon))


def halved(x: Any, of: Any, by: float = 0.5) -> Any:
    return of.tanh(x * by) + x


def padded(x: Any, of: Any, length: int = 20, back: int = 0) -> Any:
    seen = of.arange(x.shape[1]) < length - back
    return of.tanh((x * seen).sum(axis=1, keepdims=True)) + x


def rolled(x: Any, of: Any, by: int = 2) -> Any:
    return of.tanh(x) * of.roll(x, by, axis=1)


def entropy(x: Any, of: Any, count: int = 0) -> Any:
    p = softmax(x, of)
    losses = -(p * of.log(p)).sum(axis=1)
    return x * (losses.sum() / (len(x) - count))


def heads(x: Any, of: Any, turned: str = "", shorter: Any = None) -> Any:
    """Two products whose factors and result are square."""
    own = x if shorter is None else x.astype(shorter).astype(x.dtype)
    s = of.einsum("ji,jk->ik" if turned == "first" else "ij,jk->ik", own, own)
    s = of.swapaxes(s, 0, 1) if turned == "result" else s
    return of.einsum("ij,kj->ik", of.tanh(s / x.shape[1]), x)


def steps(
    x: Any, of: Any, parts: int = 1, mode: str = "edge", only: int = -1, ahead: float = 0.25
) -> Any:
    """Two steps of a stencil, each of which needs a padded array."""
    for step in range(2):
        cut = of.split(x, parts if only in (-1, step) else 1, axis=1)
        rows = []
        for part in cut:
            p = of.pad(part, ((0, 0), (1, 1)), mode=mode if only in (-1, step) else "edge")
            rows.append(of.tanh(0.25 * p[:, :-2] + 0.5 * p[:, 1:-1] + ahead * p[:, 2:]))
        x = of.concatenate(rows, axis=1)
    return x


def joined(x: Any, of: Any, parts: int = 1, first: float = 1.0) -> Any:
    """A step against the wind, whose first element stays."""
    rows = [of.concatenate([y[:, :1] * first, y[:, :-1]], axis=1) for y in of.split(x, parts, 1)]
    return x - 0.3 * (x * x - of.concatenate(rows, axis=1))


def inside(x: Any, of: Any, parts: int = 1) -> Any:
    """A second difference of the rows inside; the body pads each part with its own ends."""
    padded = [of.pad(y, ((1, 1), (0, 0)), mode="edge") for y in of.split(x, parts, 0)]
    differences = of.concatenate([p[2:] - 2 * p[1:-1] + p[:-2] for p in padded], axis=0)
    at = of.arange(len(x))[:, None]
    return x + 0.1 * of.where((at > 0) & (at < len(x) - 1), differences, 0.0)


def inside_by_slices(x: Any, of: Any) -> Any:
    whole = of.zeros_like(x)
    whole[1:-1] = x[2:] - 2 * x[1:-1] + x[:-2]
    return x + 0.1 * whole


def below(x: Any, of: Any, parts: int = 1, weight: float = 1.0, other: bool = False) -> Any:
    """A product of which devices have parts, below a function that is not linear."""
    pieces = [y @ z for y, z in zip(of.split(x, parts, 1), of.split(x, parts, 0), strict=True)]
    if other:  # each device goes on with another part of the columns
        size = x.shape[1] // parts
        own = [p[:, k * size : (k + 1) * size] for k, p in enumerate(pieces)]
        return of.tanh(of.concatenate(own, axis=1)) @ x
    return sum(of.tanh(weight * p) @ x for p in pieces) / parts


def ring(x: Any, of: Any, skipped: int = -1, again: int = -1) -> Any:
    """The rows of device d miss the part that comes to it in step `skipped`."""
    if skipped == again:
        return x @ x
    rows = []
    for d, own in enumerate(of.split(x, 8, 0)):
        parts = list(zip(of.split(own, 8, 1), of.split(x, 8, 0), strict=True))
        some = [parts[(d - step) % 8] for step in range(8) if step != skipped]
        more = [parts[(d - again) % 8]] if again >= 0 else []
        rows.append(sum(y @ z for y, z in some + more))
    return of.concatenate(rows, axis=0)


def locally(x: Any, of: Any, parts: int = 1, less: int = 0) -> Any:
    """A norm of each part by itself, whose parts are added after it."""
    own = [y / of.sqrt((y * y).mean(axis=1, keepdims=True) + 1e-3) for y in of.split(x, parts, 1)]
    return of.concatenate(own, axis=1) @ x


def by_var(x: Any, of: Any, ddof: int = 0, epsilon: float = 5e-3) -> Any:
    return (x - of.mean(x, axis=1, keepdims=True)) / of.sqrt(
        of.var(x, axis=1, keepdims=True, ddof=ddof) + epsilon
    )


def corrected(x: Any, of: Any, times: int = 32, less: int = 1) -> Any:
    """The variances of a sample."""
    squares = ((x - x.mean(axis=0)) ** 2).mean(axis=0)
    return x + 0.5 * squares * times / (32 - less)


def tripled(x: Any, of: Any, times: int = 3) -> Any:
    return of.tanh(x * x * times)


def annealed(x: Any, of: Any, warmth: float = 0.7) -> Any:
    return of.tanh(x @ x / warmth) @ x


def summed(x: Any, of: Any, axis: int = 0, parts: int = 1) -> Any:
    return of.concatenate([of.cumsum(y, axis=axis) for y in of.split(x, parts, 0)], axis=0)


def loss(x: Any, of: Any, mean: bool = True) -> Any:
    """A single number."""
    squares = of.log(1 + x * x)
    return squares.mean() if mean else squares.sum()


FAULTS: list[tuple[Callable[..., Any], dict[str, Any], set[Kind]]] = [
    (softmax, {"axis": 0}, {Kind.DIMENSION}),
    (softmax, {"over": slice(0, 8)}, {Kind.MISSING_REDUCTION}),
    (softmax, {"over": slice(8, None)}, {Kind.PARTS}),
    (normalised, {"less": 1}, {Kind.VARIANCE}),
    (normalised, {"over": slice(16, 24)}, {Kind.MISSING_REDUCTION}),
    (normalised, {"under": 1e-3}, {Kind.EPSILON}),
    (windowed, {"ahead": 1}, {Kind.MASK}),
    (windowed, {"ahead": -1}, {Kind.MASK}),
    (windowed, {"strict": True}, {Kind.MASK}),
    (mlp, {"lost": 2}, {Kind.PARTS}),
    (mlp, {"turned": True}, {Kind.TRANSPOSED}),
    (mlp, {"twice": True}, {Kind.FACTOR, Kind.MISSING_REDUCTION}),
    (moments, {"beside": True}, {Kind.EPSILON}),
    (moments, {"epsilon": 1e-5}, {Kind.EPSILON}),
    (halved, {"by": 1.0}, {Kind.FACTOR}),
    (halved, {"by": 2.0}, {Kind.FACTOR}),
    (padded, {"back": 1}, {Kind.MASK}),
    (padded, {"length": 32}, {Kind.MASK}),
    (rolled, {"by": 3}, {Kind.SHIFTED}),
    (rolled, {"by": -2}, {Kind.SHIFTED}),
    (entropy, {"count": 1}, {Kind.VARIANCE, Kind.FACTOR}),
    (heads, {"turned": "first"}, {Kind.TRANSPOSED}),
    (heads, {"turned": "result"}, {Kind.TRANSPOSED, Kind.UNKNOWN}),
    (steps, {"mode": "constant"}, {Kind.HALO}),
    (steps, {"mode": "wrap"}, {Kind.HALO}),
    (steps, {"parts": 4}, {Kind.HALO}),
    (steps, {"parts": 4, "mode": "constant", "only": 1}, {Kind.HALO}),
    (steps, {"parts": 8, "mode": "wrap", "only": 0}, {Kind.HALO}),
    (steps, {"ahead": -0.25}, {Kind.FACTOR}),
    (joined, {"parts": 4}, {Kind.HALO}),
    (joined, {"first": 0.0}, {Kind.HALO}),
    (below, {"parts": 4}, {Kind.MISSING_REDUCTION}),
    (below, {"parts": 4, "other": True}, {Kind.MISSING_REDUCTION}),
    (below, {"weight": 0.25}, {Kind.FACTOR}),
    (ring, {"skipped": 3}, {Kind.PARTS}),
    (ring, {"skipped": 0, "again": 3}, {Kind.UNKNOWN}),
    (ring, {"again": 0}, {Kind.PARTS}),
    (locally, {"parts": 4}, {Kind.MISSING_REDUCTION}),
    (by_var, {"ddof": 1}, {Kind.VARIANCE}),
    (by_var, {"epsilon": 2e-2}, {Kind.EPSILON}),
    (corrected, {"times": 31}, {Kind.VARIANCE}),
    (corrected, {"less": 0}, {Kind.VARIANCE}),
    (corrected, {"less": 2}, {Kind.VARIANCE}),
    (corrected, {"times": 16}, {Kind.FACTOR}),
    (tripled, {"times": 2}, {Kind.FACTOR}),
    (annealed, {"warmth": 0.9}, {Kind.FACTOR}),
    (summed, {"axis": 1}, {Kind.DIMENSION}),
    (summed, {"parts": 8}, {Kind.MISSING_REDUCTION}),
    (loss, {"mean": False}, {Kind.FACTOR}),
]


def branched(x: Any, of: Any, scale: float = 0.5, more: float = 3.0) -> Any:
    """What follows an altered operation may take another branch, with other operations."""
    h = x * scale
    if float(abs(h).max()) > 0.6:
        h = h * h * 0.25
    return of.tanh(h * more) * x


@pytest.mark.parametrize(
    ("changed", "factor"),
    [
        ({"scale": 1.0}, "without its multiplication by 0.5"),
        ({"more": 1.0}, "without its multiplication by 3"),
    ],
)
def test_an_oracle_may_branch_on_values(changed: dict[str, float], factor: str) -> None:
    scene = scene_of(branched, lambda x, of: of.tanh(x * 1.5) * x)
    found = diagnosis_of(scene.with_blocks(instead(partial(branched, of=np, **changed))(scene)))
    assert found.kind == Kind.FACTOR, found.text
    line = branched.__code__.co_firstlineno + (2 if "scale" in changed else 5)
    assert f"{factor} (tests/crosscheck/test_operations.py, line {line})" in found.text


@pytest.mark.parametrize(("function", "changed", "kinds"), FAULTS)
def test_the_operation_is_named(function: Any, changed: dict[str, Any], kinds: set[Kind]) -> None:
    scene = scene_of(function)
    found = diagnosis_of(scene.with_blocks(instead(partial(function, of=np, **changed))(scene)))
    assert found.kind in kinds, found.text


def test_rows_inside_have_halos() -> None:
    scene = scene_of(inside_by_slices, inside)
    assert diagnosis_of(scene.run).passed
    found = diagnosis_of(scene.with_blocks(instead(partial(inside, of=np, parts=2))(scene)))
    assert found.kind == Kind.HALO, found.text


def test_shorter_factors_are_lower_precision() -> None:
    """Of a product inside, whose errors are no rounding of the inputs of the program."""

    def of_tanh(x: Any, of: Any, shorter: Any = None) -> Any:
        return heads(of.tanh(x), of, shorter=shorter)

    scene = scene_of(of_tanh)
    shorter = partial(of_tanh, of=np, shorter=as_dtype("bfloat16"))
    found = diagnosis_of(scene.with_blocks(instead(shorter)(scene)))
    assert found.kind == Kind.LOWER_PRECISION, found.text
    assert "the factors of a product rounded to bfloat16" in found.text


def test_a_number_without_a_name_leaves_it_to_another_output() -> None:
    """One number shows no dimension; the diagnosis is about the output that does."""

    def losses(x: Any, of: Any, axis: int = 1) -> Any:
        each = of.log(of.exp(x).sum(axis=axis))
        return each.mean(), each

    found = diagnosis_of(scene_of(losses, partial(losses, axis=0)).run)
    assert (found.array, found.kind) == ("output 1", Kind.DIMENSION), found.text


def test_a_fault_within_the_derived_bound_has_a_name() -> None:
    """In bfloat16 most faults are: the typical limit finds them, and operations name them."""
    scene = scene_of(heads, dtype="bfloat16", typical=8.0)
    assert diagnosis_of(scene.run).passed
    blocks = scene.with_blocks(instead(partial(heads, of=np, turned="first"))(scene))
    assert all(v.values.typical is not None for v in check_all(blocks) if v.array == "output 0")
    found = diagnosis_of(blocks)
    assert found.kind == Kind.TRANSPOSED, found.text


@pytest.mark.parametrize("dtype", ["int32", "int8", "bool"])
def test_rounded_results_of_integers_have_a_bound(dtype: str) -> None:
    def products(x: Any, of: Any) -> Any:
        return of.tanh(x @ x), x @ x

    scene = scene_of(products, dtype=dtype)
    assert diagnosis_of(scene.run).passed
    assert scene.run.model(1) is None, "whole numbers are compared as they are"
    assert not scene.run.exact, "two runtimes may round differently"
    found = diagnosis_of(scene.with_blocks(every(lambda block: block * 1.001)(scene)))
    assert not found.passed


def test_the_map_has_the_elements_that_are_counted() -> None:
    """Of a result far beyond its bound, elements beyond the typical limit alone are not wrong."""
    scene = scene_of(softmax, typical=8.0)
    factors = 1 + 2e-6 * (np.arange(32) % 8)
    blocks = instead(lambda x: softmax(x, np) * factors)(scene)
    wrong = [verdict for verdict in check_all(scene.with_blocks(blocks)) if not verdict.passed]
    assert any(0 < verdict.values.wrong < verdict.values.elements for verdict in wrong)
    for verdict in wrong:
        if verdict.values.places is not None:
            assert int(np.sum(verdict.values.places)) == verdict.values.wrong
