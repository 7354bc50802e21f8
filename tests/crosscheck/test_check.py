"""The checks of one process: which arrays are compared, and the verdicts."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import as_dtype
from pyreactant.arrays.sharding import Index, Shard
from pyreactant.arrays.source import RandomSource, Source
from pyreactant.base.errors import MismatchError
from pyreactant.check import check, execute
from pyreactant.check.bounds import compare as comparison
from pyreactant.check.bounds.compare import compare, compare_copies
from pyreactant.check.bounds.expected import Expected
from pyreactant.check.bounds.model import ulp
from pyreactant.check.bounds.rules import products
from pyreactant.check.bounds.sight import Sight
from pyreactant.check.bounds.verdict import BY_FLOAT32, Verdict, join
from pyreactant.check.check import PlacedSource, check_blocks, check_inputs
from pyreactant.check.execute import CaseRun, digest, run_case
from pyreactant.check.oracle import oracle
from pyreactant.check.oracle.oracle import cut, merge
from pyreactant.check.programs import Layout, find_case
from pyreactant.check.records.verdict import BlockVerdict, Kind
from pyreactant.check.regions import around, elements_of

from .broken import broken
from .changes import all_blocks
from .mutants import Altered, mutants
from .trials import attempt

pytestmark = pytest.mark.usefixtures("backend")

MESH = pr.Mesh((2, 4), ("x", "y"))


@pytest.fixture(scope="module")
def product(backend: str) -> CaseRun:
    return run_case(find_case("matmul"), size=32, mesh=MESH, calls=2)


def test_every_device_has_a_verdict_for_every_array(product: CaseRun) -> None:
    inputs, outputs = check_inputs(product), check_blocks(product)
    names = [verdict.array for verdict in (*inputs, *outputs)]
    assert names == ["input 0"] * 8 + ["input 1"] * 8 + ["output 0"] * 8
    assert all(v.passed and v.index == v.expected_index for v in (*inputs, *outputs))
    assert {verdict.values.method for verdict in inputs} == {"digest"}
    assert {verdict.values.method for verdict in outputs} == {"oracle"}
    values = [verdict.values for verdict in outputs]
    assert all(0 < one.ratio <= 1 and one.ulps > 0 for one in values)


def test_inputs_are_a_function_of_the_seed_alone(product: CaseRun) -> None:
    case = find_case("matmul")
    layout = Layout((("y", "x"), (None, "x")), ((None, "y"),))
    other = run_case(case, size=32, mesh=MESH, layout=layout, calls=1)
    for name in product.named("input"):
        np.testing.assert_array_equal(product.arrays[name].gather(), other.arrays[name].gather())
    seeded = run_case(case, size=32, mesh=MESH, seed=1, calls=1)
    assert seeded.digests["input 0"] != product.digests["input 0"]
    before = [source.read((slice(0, 4), slice(0, 4))) for source in product.sources(before=True)]
    assert not np.array_equal(before[0], product.arrays["input 0"].gather()[:4, :4])


def test_times_and_plans_are_told(product: CaseRun) -> None:
    assert set(product.seconds) == {"place", "compile", "call", "calls"}
    assert len(product.seconds["calls"]) == 2
    assert product.plans["output 0"].shape == (32, 32)


def a_verdict() -> BlockVerdict:
    values = Verdict(
        "oracle",
        error=1.0,
        ratio=float("inf"),
        ulps=2.0,
        error_squares=float("nan"),
        value_squares=4.0,
        wrong=3,
        worst={"element": [1], "got": "1.0", "expected": "2.0", "allowed": 0.0},
        sight=Sight({0: 4}, 4.0, 4),
        places=np.array([[1, 0, 1, 1]]),
    )
    kinds = (Kind.TRANSPOSED, Kind.PERMUTED)
    return BlockVerdict("output 0", 3, 1, [[0, 4]], [[4, 8]], values, kinds, [[[4, 8]]], "why")


def without_places_and_nan(verdict: BlockVerdict) -> BlockVerdict:
    return replace(verdict, values=replace(verdict.values, error_squares=0.0, places=None))


def test_verdicts_survive_json() -> None:
    verdict = a_verdict()
    back = BlockVerdict.from_dict(json.loads(json.dumps(verdict.to_dict())))
    assert np.isnan(back.values.relative_norm)
    np.testing.assert_array_equal(back.values.places, verdict.values.places)
    assert without_places_and_nan(back) == without_places_and_nan(verdict)


def test_the_json_of_a_verdict_has_one_level() -> None:
    """Readers of records and reports find its numbers beside the place of the block."""
    data = a_verdict().to_dict()
    keys = (
        "array device process index expected_index passed method error allowed ratio ulps "
        "relative_norm wrong non_finite worst kinds reasons matches text estimated digest sight "
        "places"
    )
    assert {*keys.split()} <= {*data}
    assert (data["method"], data["ratio"], data["passed"]) == ("oracle", "inf", False)


def test_a_verdict_of_an_earlier_record_is_read() -> None:
    """It has the relative norm alone, and no sight of an input."""
    data = json.loads(json.dumps(a_verdict().to_dict()))
    for name in ("elements", "error_squares", "value_squares", "wrong_patterns", "usual", "note"):
        del data[name]
    data |= {"relative_norm": 0.25, "sight": None, "places": None}
    back = BlockVerdict.from_dict(data)
    assert back.values.relative_norm == 0.25
    assert (back.values.ratio, back.values.sight) == (float("inf"), Sight())
    assert BlockVerdict.from_dict(data | {"relative_norm": "inf"}).values.relative_norm == float(
        "inf"
    )


def test_a_wrong_input_is_found_bit_by_bit(product: CaseRun) -> None:
    case = find_case("transpose")
    run = run_case(case, size=32, mesh=MESH, calls=1)
    array = run.arrays["input 0"]
    right = array.addressable_shards

    class Flipped:
        sharding = array.sharding

        @property
        def addressable_shards(self) -> list[Shard]:
            bad = right[3].data.copy()
            bad.view(np.uint32)[1, 2] ^= 1
            return [*right[:3], Shard(right[3].device, right[3].index, lambda: bad), *right[4:]]

    arrays: dict[str, Any] = {**run.arrays, "input 0": Flipped()}
    changed = replace(run, arrays=arrays)
    verdicts = check_inputs(changed)
    assert [verdict.passed for verdict in verdicts] == [True] * 3 + [False] + [True] * 4
    wrong = verdicts[3]
    assert wrong.values.wrong == 1
    assert wrong.values.worst is not None
    start = right[3].index
    assert wrong.values.worst["element"] == [start[0].start + 1, start[1].start + 2]
    assert np.argwhere(wrong.values.places).tolist() == [[1, 2]]  # of 16 x 8
    assert [verdict.values.places for verdict in verdicts if verdict.passed] == [None] * 7
    assert wrong.kind == Kind.ROUNDING


def test_outputs_must_be_those_of_the_oracle() -> None:
    case = find_case("matmul")
    other = replace(case, program=replace(case.program, jax="jax.numpy:outer"))
    with pytest.raises(MismatchError, match=r"must be float32\[8, 8\].*got float32\[64, 64\]"):
        run_case(other, size=8, mesh=pr.Mesh((1,), ("x",), [0]), calls=1)


def test_a_program_without_an_oracle_passes_where_its_blocks_lie_rightly() -> None:
    run = run_case(replace(find_case("softmax"), oracle=None), size=16, mesh=MESH, calls=1)
    verdicts = check_blocks(run)
    assert {verdict.values.method for verdict in verdicts} == {"none"}
    assert all(verdict.passed for verdict in verdicts)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_large_products_take_freivalds_and_a_sample(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_WORK", 1000)
    for name in ("matmul", "matmul_transposed", "gram"):
        case = find_case(name)
        for layout in case.layouts(MESH)[:3]:
            run = run_case(case, size=64, mesh=MESH, layout=layout, dtype=dtype, calls=1)
            verdicts = check_blocks(run, run.named("input"))
            assert {verdict.values.method for verdict in verdicts} == {"Freivalds"}
            assert all(verdict.passed for verdict in verdicts)


@pytest.mark.parametrize("wrong", ["element", "row", "bfloat16"])
def test_large_products_that_are_wrong_are_named_by_the_oracle(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_WORK", 1000)

    def change(block: np.ndarray) -> np.ndarray:
        if wrong == "bfloat16":
            return block.astype(as_dtype("bfloat16")).astype(block.dtype)
        changed = block.copy()
        changed[(5, 7) if wrong == "element" else 0] += 1
        return changed

    case = find_case("matmul")
    with broken(case, Altered(wrong, None, all_blocks(change))):
        run = run_case(case, size=64, mesh=MESH, calls=1)
        verdicts = check_blocks(run, run.named("input"))
    assert not any(verdict.passed for verdict in verdicts)
    if wrong == "element":
        assert [verdict.values.wrong for verdict in verdicts] == [1] * 8
        assert verdicts[0].values.worst is not None
        assert verdicts[0].values.worst["element"] == [5, 7]
    places = [np.array(verdict.values.places) for verdict in verdicts]  # blocks of 32 x 16
    assert [int(found.sum()) for found in places] == [verdict.values.wrong for verdict in verdicts]
    if wrong == "row":
        assert [np.argwhere(found).tolist() for found in places] == [
            [[0, i] for i in range(16)]
        ] * 8


def test_tiles_keep_to_their_limit_and_cover_the_block() -> None:
    block = (slice(3, 67), slice(10, 110))
    tiles = list(cut(block, elements_of, 100))
    covered = np.zeros((200, 200), int)
    for tile in tiles:
        assert elements_of(tile) <= 100
        covered[tile] += 1
    assert covered[block].all()
    assert covered.sum() == 6400
    assert list(cut((), elements_of, 1)) == [()]
    # A block stays whole if no cut makes its check cheaper.
    assert list(cut(block, lambda _: 1000, 10)) == [block]


def test_tiles_are_cut_for_the_dearest_of_them() -> None:
    def so_far(index: Index) -> int:  # a sum of all previous elements
        return (index[0].stop - index[0].start) * index[1].stop

    tiles = list(cut((slice(0, 64), slice(0, 64)), so_far, 512))
    assert tiles[0] == (slice(0, 8), slice(0, 64))
    assert max(map(so_far, tiles)) == 512


def test_blocks_that_need_the_same_are_computed_together() -> None:
    blocks = [
        (slice(8 * row, 8 * row + 8), slice(4 * column, 4 * column + 4))
        for row in range(2)
        for column in range(4)
    ]
    assert merge(blocks, elements_of) == blocks

    def with_rows(index: Index) -> int:
        return elements_of((index[0], slice(0, 16)))

    assert sorted(merge(blocks, with_rows), key=str) == [
        (slice(0, 8), slice(0, 16)),
        (slice(8, 16), slice(0, 16)),
    ]
    assert merge(blocks, lambda _: 1000) == [(slice(0, 16), slice(0, 16))]
    assert merge([()], elements_of) == [()]
    assert merge([], elements_of) == []


def test_a_copy_that_differs_is_compared_for_itself() -> None:
    right, wrong = np.ones(4, np.float32), np.array([1, 1, 2, 1], np.float32)
    found = compare_copies([right, right.copy(), wrong, right], _expected(np.ones(4)), (10,))
    assert [one.wrong for one in found] == [0, 0, 1, 0]
    assert found[2].worst is not None
    assert found[2].worst["element"] == [12]


@pytest.mark.parametrize("fine", [True, False])
def test_products_in_float32_decide_only_where_all_is_right_and_seen(
    fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LARGE", 2**12)
    if not fine:
        monkeypatch.setattr(check, "FINE", 1e-6)
    case = find_case("batched_matmul")
    run = run_case(case, size=64, mesh=MESH, calls=1)
    found = check_blocks(run)
    assert all(verdict.passed for verdict in found)
    assert {verdict.values.method for verdict in found} == {BY_FLOAT32 if fine else "oracle"}
    text = found[0].to_dict()["method"]
    assert ("products of the check in float32" in text) is fine


def test_wrong_results_are_judged_by_products_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same verdicts and names as without products in float32."""
    case, found = find_case("batched_matmul"), []
    healthy = run_case(case, size=64, mesh=MESH, calls=1)
    for least in (2**12, 2**40):
        monkeypatch.setattr(products, "LARGE", least)
        trials = [attempt(case, healthy, mutant) for mutant in mutants()[::3]]
        shown = [trial for trial in trials if trial is not None and trial.changed]
        assert all(trial.right and not trial.diagnosis.passed for trial in shown)
        values = [trial for trial in shown if " must be " in trial.diagnosis.text]
        found.append({trial.mutant: trial.diagnosis.text for trial in values})
    assert found[0] == found[1]
    assert len(found[0]) > 2


@pytest.mark.parametrize("name", ["fft2", "full_sum", "perceptron"])
def test_large_inputs_are_read_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_case(find_case(name), size=256, mesh=MESH, calls=1)
    assert all(verdict.passed for verdict in check_blocks(run))
    monkeypatch.setattr(oracle, "STREAM_BYTES", 2**20)
    largest = []
    real = RandomSource.read

    def read(source: RandomSource, index: Index) -> np.ndarray:
        largest.append(elements_of(index))
        return real(source, index)

    monkeypatch.setattr(RandomSource, "read", read)
    assert all(verdict.passed for verdict in check_blocks(run))
    assert max(largest) <= 256 * 128
    for zeroed in (0, 3):
        values = run.arrays["output 0"].addressable_shards
        shards = list(values)
        bad = shards[zeroed].data.copy()
        bad[...] = 0
        shards[zeroed] = replace(shards[zeroed], _read=partial(np.copy, bad))
        arrays: Any = {**run.arrays, "output 0": SimpleNamespace(addressable_shards=shards)}
        verdicts = check_blocks(replace(run, arrays=arrays))
        assert [v.device for v in verdicts if not v.passed] == [shards[zeroed].device.position]


def test_a_tile_around_an_element_stays_in_its_block() -> None:
    block = (slice(8, 16), slice(0, 100))
    assert around(block, [8, 99], 16) == (slice(8, 16), slice(84, 100))
    assert around(block, [15, 50], 4) == (slice(12, 16), slice(48, 52))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_ulp_is_the_distance_of_neighbours(dtype: str) -> None:
    found = as_dtype(dtype)
    values = np.array([1.0, 1.5, 0.75, 3e-2, 1000.0, 0.0]).astype(found)
    up = np.nextafter(values, np.array(np.inf, found))
    gaps = up.astype(float) - values.astype(float)
    right = ulp(np.abs(values.astype(float)), found)
    np.testing.assert_array_equal(right[:-1], gaps[:-1])
    assert right[-1] >= gaps[-1]  # at zero, the spacing of the smallest normal number


def test_the_neighbour_of_a_right_element_is_right_too() -> None:
    for value in (1.0, np.nextafter(np.float32(2.0), np.float32(0)), 1e-30, 0.0):
        held = np.float32(value)
        expected = Expected(np.array([float(held)]), np.zeros(1))
        for towards in (np.inf, -np.inf):
            neighbour = np.nextafter(held, np.float32(towards))
            assert compare(np.array([neighbour]), expected).wrong == 0
        assert compare(np.array([np.float32(value + 1e-3)]), expected).wrong == 1


@pytest.mark.parametrize(
    ("got", "value", "wrong"),
    [
        (np.nan, 1.0, 1),
        (1.0, np.nan, 1),
        (np.nan, np.nan, 0),
        (np.inf, np.inf, 0),
        (-np.inf, np.inf, 1),
        (np.inf, 1e39, 0),  # beyond the largest float32
        (np.inf, 1.0, 1),
    ],
)
def test_nan_and_infinity_must_stand_where_the_oracle_has_them(
    got: float, value: float, wrong: int
) -> None:
    numbers = compare(np.array([got, 1.0], np.float32), _expected([value, 1.0]))
    assert numbers.wrong == wrong
    assert numbers.wrong_patterns == wrong
    assert numbers.non_finite == (1 - wrong if not np.isfinite(got) else 0)


def test_exact_values_are_compared_bit_by_bit() -> None:
    got = np.array([0.0, np.nan, 3.0, 2.0], np.float32)
    same = Expected(got.copy(), None)
    assert compare(got, same).wrong == 0
    assert compare(np.array([-0.0, np.nan, 3.0, 2.0], np.float32), same).wrong == 1
    numbers = compare(np.array([1, 5], np.int8), Expected(np.array([1, 4]), None), (10,))
    assert (numbers.wrong, numbers.worst) == (
        1,
        {"element": [11], "got": "5", "expected": "4", "allowed": 0.0},
    )


def test_a_process_without_blocks_has_nothing_to_compare(product: CaseRun) -> None:
    arrays: Any = {**product.arrays, "output 0": SimpleNamespace(addressable_shards=[])}
    verdicts = check_blocks(replace(product, arrays=arrays))
    assert [verdict.kinds for verdict in verdicts] == [(Kind.FEWER_DEVICES,)] * 8


def test_scalars_and_empty_blocks_are_compared() -> None:
    assert compare(np.array(1.0, np.float32), _expected(1.0)).wrong == 0
    assert compare(np.array(2.0, np.float32), _expected(1.0)).wrong == 1
    assert compare(np.array(7), Expected(np.array(6), None)).wrong == 1
    assert compare(np.empty((0, 4), np.float32), _expected(np.empty((0, 4)))).wrong == 0
    assert join([]).wrong == 0


def test_numbers_of_tiles_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    value = random.standard_normal((8, 8))
    got = (value + 0.1).astype(np.float32)
    whole = compare(got, _expected(value))
    monkeypatch.setattr(comparison, "AT_ONCE", 20)
    assert compare(got, _expected(value)).worst == whole.worst
    assert compare(got, _expected(value)).wrong == whole.wrong == 64
    parts = [compare(got[:3], _expected(value[:3])), compare(got[3:], _expected(value[3:]), (3, 0))]
    both = join(parts)
    assert (both.wrong, both.error, both.worst) == (whole.wrong, whole.error, whole.worst)
    assert both.relative_norm == pytest.approx(whole.relative_norm)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64"])
def test_digests_tell_order_and_values(dtype: str) -> None:
    block = (np.arange(12) % 2 + np.arange(12)).reshape(3, 4).astype(as_dtype(dtype))
    assert digest(block) == digest(block.copy(order="F"))
    assert digest(block) != digest(block[::-1])
    assert digest(block[:0]) == digest(block[:, :0])


def test_inputs_are_read_from_the_devices_only_where_they_were_right(
    product: CaseRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def watched(source: Source, array: pr.ShardedArray) -> PlacedSource:
        held.append(1)
        return PlacedSource(source, array)

    monkeypatch.setattr(check, "PlacedSource", watched)
    check_blocks(product)
    assert not held
    assert all(block.passed for block in check.check_all(product))
    assert len(held) == 2


def test_results_are_checked_after_a_call_with_other_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    real = execute._call

    def call(compiled: pr.Compiled, args: Any) -> Any:
        seen.append(float(np.array(args[0])[0, 0]))
        return real(compiled, args)

    monkeypatch.setattr(execute, "_call", call)
    run_case(find_case("row_sum"), size=16, mesh=MESH, calls=3)
    assert len(seen) == 5  # with one warm-up call, and the checked call twice
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4]


def _expected(value: Any) -> Expected:
    return Expected(np.asarray(value, float), np.zeros(np.shape(value)))
