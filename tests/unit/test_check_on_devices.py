"""The check of a product on the devices: no false alarm, and what is wrong is found and named."""

import math
from typing import Any

import jax
import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.arrays.source import ArraySource, RandomSource
from pyreactant.base.errors import InvalidArgumentError, RequirementError
from pyreactant.check import check as crosscheck
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.verdict import ON_DEVICES, Verdict
from pyreactant.check.check import check_blocks
from pyreactant.check.execute import run_case
from pyreactant.check.product import check, on_devices
from pyreactant.check.product.check import check_product
from pyreactant.check.product.on_devices import is_on_devices
from pyreactant.check.programs import find_case

pytestmark = pytest.mark.usefixtures("backend")

MESH = pr.Mesh((2, 4), ("x", "y"))
ROWS, WHOLE = pr.NamedSharding(MESH, (("x", "y"),)), pr.NamedSharding(MESH, ())


def _product(dtype: str, shape: tuple[int, int, int], seed: int, specs: Any) -> tuple[Any, ...]:
    m, k, n = shape
    sources = RandomSource((m, k), dtype, seed, 0), RandomSource((k, n), dtype, seed, 1)
    shardings = tuple(pr.NamedSharding(MESH, spec) for spec in specs[:2])
    placed = tuple(
        pr.from_callback(s.shape, s.dtype, sharding, s.read)
        for s, sharding in zip(sources, shardings, strict=True)
    )
    c = pr.matmul_sharded(*placed, out_spec=specs[2], precision="highest")
    return sources, placed, shardings, c


def _check(sources: Any, placed: Any, shardings: Any, c: Any) -> Verdict:
    return check_product(*sources, c, shardings, "highest", placed)


BOTH = (("x", "y"), ("x", "y"), None)
INNER = ((None, "y"), ("y", None), ("x",))
OUTER = ((("x", "y"),), (), None)
COPIES = (("x",), (None, "y"), (None, None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "shape", "specs"),
    [
        ("float32", (264, 40, 520), BOTH),
        ("float32", (8, 264, 136), COPIES),
        ("bfloat16", (136, 264, 264), INNER),
        ("bfloat16", (64, 520, 264), OUTER),
        ("float16", (64, 128, 264), BOTH),
        ("float64", (8, 136, 264), COPIES),
        ("complex64", (64, 136, 264), INNER),
        ("float8_e5m2", (64, 8, 264), OUTER),
        ("int8", (64, 136, 264), BOTH),
    ],
)
def test_right_products_pass(dtype: str, shape: tuple[int, int, int], specs: Any) -> None:
    """Also where the columns do not divide into groups, and are fewer in the last."""
    ratios = []
    for seed in range(5):
        verdict = _check(*_product(dtype, shape, seed, specs))
        assert verdict.method == ON_DEVICES
        assert verdict.passed, verdict
        ratios.append(verdict.ratio)
    assert max(ratios) < 0.5


@pytest.mark.parametrize(("dtype", "amount"), [("float32", 0.05), ("bfloat16", 0.2)])
def test_one_wrong_element_is_found_and_named(dtype: str, amount: float) -> None:
    sources, placed, shardings, c = _product(dtype, (264, 520, 264), 0, OUTER)
    values = c.gather().astype(np.float64)
    for row, column in ((0, 0), (100, 263), (263, 17)):
        wrong = values.copy()
        wrong[row, column] += amount * np.sqrt(np.mean(values**2))
        spoiled = pr.device_put(wrong.astype(as_dtype(dtype)), c.sharding)
        verdict = _check(sources, placed, shardings, spoiled)
        assert not verdict.passed
        assert verdict.wrong == 1
        first = column // 3 * 3  # 88 groups of 3 columns
        assert verdict.worst == {"row": row, "columns": f"{first}:{first + 3}"}


@pytest.mark.parametrize(
    ("dtype", "n", "amount"),
    [
        ("float32", 8192, 0.03),
        ("float32", 16384, 0.05),
        ("bfloat16", 4096, 0.2),
        ("bfloat16", 8192, 0.3),
        ("bfloat16", 16384, 0.45),
    ],
)
def test_the_limit_of_large_random_products(dtype: str, n: int, amount: float) -> None:
    """A wrong element of this part of the root mean square is above it on one device."""
    model, width = Model.of(dtype, platform="gpu", random=True), n // on_devices.GROUPS
    limit = on_devices.limit_of(model, (n, n, n), width)
    row, group = math.sqrt(n / 3), math.sqrt(n * width / 3)
    rms = math.sqrt(n) / 3
    allowed = row * (limit.of_both + limit.of_sketch) * group + limit.of_largest * group
    allowed += limit.of_result * rms * math.sqrt(width) + limit.absolute
    assert on_devices._OF_NORMS * allowed < amount * rms


def test_lower_precision_is_found() -> None:
    sources, placed, shardings, c = _product("float32", (264, 520, 264), 0, OUTER)
    everything = (slice(0, 264), slice(0, 520)), (slice(0, 520), slice(0, 264))
    x, y = (s.read(index) for s, index in zip(sources, everything, strict=True))
    short = [a.astype(as_dtype("bfloat16")).astype(np.float32) for a in (x, y)]
    spoiled = pr.device_put(short[0] @ short[1], c.sharding)
    assert not _check(sources, placed, shardings, spoiled).passed


def _with_part(array: Any, number: int, values: np.ndarray) -> Any:
    """The array with other values on one device only."""
    parts = [s.data for s in sorted(array.value.addressable_shards, key=lambda s: s.device.id)]
    parts[number] = jax.device_put(values, parts[number].device)
    value = jax.make_array_from_single_device_arrays(array.shape, array.value.sharding, parts)
    return pr.ShardedArray(value, array.aval, array._backend)


def test_every_copy_is_checked() -> None:
    sources, placed, shardings, c = _product("float32", (8, 264, 136), 0, COPIES)
    values = c.gather()
    for number in (0, 6):
        wrong = values.copy()
        wrong[3, 5] += 1
        verdict = _check(sources, placed, shardings, _with_part(c, number, wrong))
        assert verdict.worst == {"row": 3, "columns": "4:6"}


def test_a_misplaced_operand_is_named() -> None:
    """The product is that of what the devices hold, so only the digests can tell."""
    sources, placed, shardings, c = _product("float32", (264, 40, 520), 0, BOTH)
    x, y = placed
    block = np.asarray(x.addressable_shards[5].data)
    for wrong in (np.roll(block, 1, axis=0), block + np.eye(*block.shape, dtype=np.float32)):
        operands = _with_part(x, 5, wrong), y
        verdict = _check(sources, operands, shardings, c)
        assert not verdict.passed
        expected = {"operand": "x", "process": 0, "device": "cpu:5", "block": "[132:264, 10:20]"}
        assert verdict.worst == expected


def test_every_copy_of_an_operand_is_compared() -> None:
    sources, (x, y), shardings, c = _product("float32", (8, 264, 136), 0, COPIES)
    block = np.asarray(x.addressable_shards[6].data).copy()
    block[3, 200] += 1
    worst = _check(sources, (_with_part(x, 6, block), y), shardings, c).worst
    assert worst is not None
    assert (worst["device"], worst["block"]) == ("cpu:6", "[4:8, 0:264]")


@pytest.mark.parametrize("value", [np.nan, 1e38])
def test_the_host_checks_what_the_devices_cannot(value: float) -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x[3, 4] = value
    placed = pr.device_put(x, ROWS), pr.device_put(x, WHOLE)
    source = ArraySource(x)
    c = pr.matmul_sharded(*placed, precision="highest")
    verdict = _check((source, source), placed, (ROWS, WHOLE), c)
    assert verdict.passed
    assert verdict.method == "float64 product"
    assert check.ON_HOST in verdict.note


def test_devices_without_sums_in_float32_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*arrays: Any, **options: Any) -> Any:
        *figures, counted = on_devices.sketch(*arrays, **options)
        return *figures, counted // 2  # as sums in bfloat16, which stay at 256

    given = _product("float32", (64, 64, 520), 0, OUTER)
    monkeypatch.setattr(on_devices, "SKETCH", pr.Program("short sums", jax=short))
    with pytest.raises(RequirementError, match=r"needs sums in float32.*give --check host"):
        _check(*given)


def test_the_place() -> None:
    """On CPU the host checks unless the devices are asked for."""
    assert not is_on_devices(None, np.dtype("float32"), large=True)
    assert is_on_devices("device", np.dtype("float32"), large=False)
    assert not is_on_devices("host", np.dtype("float32"), large=True)
    with pytest.raises(InvalidArgumentError, match="must be one of device, host, got 'gpu'"):
        is_on_devices("gpu", np.dtype("float32"), large=True)


def test_a_crosscheck_of_large_products_asks_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "_WORK", 1000)
    for name in ("matmul", "matmul_transposed", "gram"):
        run = run_case(find_case(name), size=64, mesh=MESH, calls=1, check="device")
        for right_inputs, method in ((run.named("input"), ON_DEVICES), ((), "Freivalds")):
            verdicts = check_blocks(run, right_inputs)
            assert {verdict.values.method for verdict in verdicts} == {method}
            assert all(verdict.passed for verdict in verdicts)
