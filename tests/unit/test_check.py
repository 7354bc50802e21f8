"""The check of a product: right products pass, and each kind of error is found and named."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import FLOAT8, as_dtype
from pyreactant.arrays.source import ArraySource, RandomSource
from pyreactant.check.bounds.compare import Verdict
from pyreactant.check.bounds.model import Model, product_tolerance
from pyreactant.check.product import check
from pyreactant.check.product.check import check_product
from pyreactant.check.product.report import check_to_dict

pytestmark = pytest.mark.usefixtures("backend")

MESH = pr.Mesh((2, 4), ("x", "y"))
XY = pr.NamedSharding(MESH, ("x", "y"))


@pytest.fixture
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose the method through the size above which Freivalds' check runs."""
    if request.param == "Freivalds":
        monkeypatch.setattr(check, "FULL_CHECK_WORK", -1)
    return str(request.param)


def _check_of(x: Any, y: Any, c: np.ndarray, sharding: pr.NamedSharding = XY) -> Verdict:
    sources = [a if hasattr(a, "read") else ArraySource(a) for a in (x, y)]
    placed = pr.device_put(c, sharding)
    return check_product(sources[0], sources[1], placed, (XY, XY), None)


def _random(seed: int = 0, n: int = 64, dtype: str = "float32") -> tuple[Any, Any, np.ndarray]:
    sources = [RandomSource((n, n), dtype, seed, stream) for stream in (0, 1)]
    x, y = (s.read((slice(0, n), slice(0, n))) for s in sources)
    return *sources, x @ y


def _swap_blocks(c: np.ndarray) -> None:
    c[:32, :16], c[32:, 16:32] = c[32:, 16:32].copy(), c[:32, :16].copy()


WRONG: dict[str, Callable[[np.ndarray], None]] = {
    "one element": lambda c: c.__setitem__((40, 17), c[40, 17] + 0.01),
    "transposed": lambda c: c.__setitem__(..., c.T.copy()),
    "swapped blocks": _swap_blocks,
    "a missing reduction": lambda c: c.__setitem__(..., c / 4),
    "a stale block": lambda c: c.__setitem__((slice(0, 32), slice(0, 16)), 0),
    "a NaN": lambda c: c.__setitem__((5, 6), np.nan),
    "an infinity": lambda c: c.__setitem__((5, 6), np.inf),
    "columns rolled": lambda c: c.__setitem__(..., np.roll(c, 1, axis=1)),
}


@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
@pytest.mark.parametrize("name", [*WRONG, "nothing"])
def test_kinds_of_wrong(name: str, method: str) -> None:
    x, y, c = _random()
    WRONG.get(name, lambda c: None)(c)
    check = _check_of(x, y, c)
    assert check.method == method
    assert check.passed is (name == "nothing")
    if name == "one element" and method != "Freivalds":
        assert check.worst is not None
        assert check.worst["element"] == [40, 17]
        assert check.worst["device"] == "cpu:5"
        assert check.worst["block"] == "[32:64, 16:32]"
        assert check.wrong == 1


@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
def test_lower_precision_than_asked_is_found(method: str) -> None:
    """A product of operands rounded to bfloat16 or to TF32's 11 bits fails for float32."""
    sources = [RandomSource((256, 256), "float32", 0, stream) for stream in (0, 1)]
    x, y = (s.read((slice(0, 256), slice(0, 256))) for s in sources)
    for bits in (8, 11):
        rounded = [np.round(a * 2**bits) / 2**bits for a in (x, y)]
        check = _check_of(*sources, (rounded[0] @ rounded[1]).astype(np.float32))
        assert not check.passed, bits
    assert _check_of(*sources, x @ y).passed


def test_lower_precision_of_any_operands_is_noted() -> None:
    x = 2 + np.random.default_rng(0).random((64, 4096), np.float32)
    y = np.ascontiguousarray(x.T)
    short = [a.astype(as_dtype("bfloat16")).astype(np.float32) for a in (x, y)]
    right, wrong = (_check_of(x, y, a @ b) for a, b in ((x, y), short))
    assert right.passed
    assert right.note == ""
    assert not wrong.passed or "lower precision than requested" in wrong.note


@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
def test_every_copy_is_checked(method: str) -> None:
    """A block is wrong on one device only, and other devices hold a right copy."""
    x, y, c = _random()
    replicated = pr.NamedSharding(MESH, (None, "y"))
    calls = iter(range(4))

    def block(index: Any) -> np.ndarray:
        next(calls)
        return c[index]

    array = pr.from_callback(c.shape, c.dtype, replicated, block)
    import jax

    parts = [s.data for s in sorted(array.value.addressable_shards, key=lambda s: s.device.id)]
    parts[6] = jax.device_put(np.asarray(parts[6]) + np.float32(1), parts[6].device)
    value = jax.make_array_from_single_device_arrays(c.shape, array.value.sharding, parts)
    spoiled = pr.ShardedArray(value, array.aval, array._backend)
    assert check_product(x, y, array, (XY, XY), None).passed
    check = check_product(x, y, spoiled, (XY, XY), None)
    assert not check.passed
    if method != "Freivalds":
        assert check.worst is not None
        assert check.worst["device"] == "cpu:6"


@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
def test_nan_operands(method: str) -> None:
    x = np.full((8, 8), np.nan, np.float32)
    check = _check_of(x, x, x)
    assert check.passed
    assert check.non_finite == 64
    count = "64 elements are" if method == "Freivalds" else "every element is"
    assert f"{count} NaN or infinite" in check.note
    assert not _check_of(x, x, np.ones_like(x)).passed


@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
def test_some_nan_and_infinity(method: str) -> None:
    x = np.random.default_rng(0).random((8, 8), np.float32)
    y = x.copy()
    x[3, 2], y[1, 6], y[2, 2] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        right = x @ y
    assert _check_of(x, y, right).passed
    for at in ((0, 0), (3, 3), (5, 6)):
        wrong = right.copy()
        wrong[at] = 0.0 if not np.isfinite(right[at]) else np.nan
        assert not _check_of(x, y, wrong).passed, at


def test_infinity_of_the_other_sign_is_wrong() -> None:
    x = np.random.default_rng(0).random((8, 8), np.float32)
    y = x.copy()
    y[1, 6] = np.inf
    with np.errstate(all="ignore"):
        c = x @ y
    assert _check_of(x, y, c).passed
    c[5, 6] = -np.inf
    assert not _check_of(x, y, c).passed


def test_overflow_of_the_result_is_right() -> None:
    x = np.full((8, 8), 200, np.float16)
    with np.errstate(over="ignore"):
        c = x @ x
    assert np.isinf(c).all()
    assert _check_of(x, x, c).passed
    assert not _check_of(x / 100, x / 100, c).passed


@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_are_exact(dtype: str, method: str) -> None:
    info = np.iinfo(dtype)
    random = np.random.default_rng(0)
    x, y = (random.integers(info.min, info.max, (16, 16), dtype, True) for _ in range(2))
    with np.errstate(over="ignore"):
        c = x @ y  # overflow wraps, as in the runtimes
    assert _check_of(x, y, c).passed
    c[3, 4] ^= 1
    check = _check_of(x, y, c)
    assert not check.passed
    assert check.wrong == 1


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", *FLOAT8]
)
@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
def test_the_runtime_is_right_in_every_dtype(dtype: str, method: str) -> None:
    sources = [RandomSource((64, 64), dtype, 3, stream) for stream in (0, 1)]
    x, y = (s.read((slice(0, 64), slice(0, 64))) for s in sources)
    c = pr.matmul_sharded(x, y, mesh=MESH)
    assert c.dtype == x.dtype
    check = check_product(*sources, c, (XY, XY), None)
    assert check.passed, check
    assert check.ratio < 1


@pytest.mark.parametrize("shape", [(0, 8, 8), (8, 8, 0), (8, 0, 8)])
@pytest.mark.parametrize("method", ["float64 product", "Freivalds"], indirect=True)
def test_zero_sized(shape: tuple[int, int, int], method: str) -> None:
    m, k, n = shape
    x, y = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    c = pr.matmul_sharded(x, y, mesh=MESH)
    assert np.asarray(c).shape == (m, n)
    assert (np.asarray(c) == 0).all()
    assert check_product(ArraySource(x), ArraySource(y), c, (XY, XY), None).passed


def test_tolerance_grows_with_what_rounds() -> None:
    def relative(dtype: str, k: int = 100, by_vector: bool = False, **options: Any) -> float:
        return product_tolerance(Model.of(dtype, **options), k, by_vector).relative

    assert relative("float32") == pytest.approx(100 * 2**-24, rel=1e-4)
    assert relative("float64") == pytest.approx(2 * 100 * 2**-53, rel=1e-4)
    assert relative("float32", platform="tpu", precision=None) > 2**-7
    assert relative("float32", platform="gpu", precision=None) > 2**-10
    assert relative("float32", platform="gpu", precision="highest") == relative("float32")
    assert relative("bfloat16") > relative("float32") + 2**-8
    assert relative("bfloat16", partials=4) > 3 * relative("bfloat16")
    assert relative("float32", k=4096, random=True) == pytest.approx(32 * 2**-24)
    assert relative("float32", k=2**25) == math.inf
    assert product_tolerance(Model.of("float16"), 9).largest == 65504
    on_gpu = {"platform": "gpu", "k": 4}
    assert relative("bfloat16", by_vector=True, **on_gpu) > 1.9 * relative("bfloat16", **on_gpu)
    assert relative("float32", by_vector=True, **on_gpu) == relative("float32", **on_gpu)


def test_verdict_is_plain_data() -> None:
    x, y, c = _random()
    check = _check_of(x, y, c)
    found = json.loads(json.dumps(check_to_dict(check), allow_nan=False))
    assert set(found) == {
        "method",
        "passed",
        "error",
        "tolerance",
        "ratio",
        "wrong",
        "non_finite",
        "usual",
        "note",
        "worst",
    }
    assert found["passed"] is True
    assert found["tolerance"] == check.allowed > 0
    assert found["ratio"] == check.ratio
    assert found["worst"] is None
    c[3, 3] = np.nan
    check = _check_of(x, y, c)
    assert check.ratio == np.inf
    found = json.loads(json.dumps(check_to_dict(check), allow_nan=False))
    assert (found["passed"], found["wrong"]) == (False, 1)
    assert found["ratio"] is None
    assert found["tolerance"] == 0.0  # a NaN must stay a NaN
    assert found["worst"]["element"] == [3, 3]
    assert found["worst"]["got"] == "nan"
