"""The diagnosis from the verdicts of several processes; the verdicts are samples."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.sharding import Index, as_index, plain_index
from pyreactant.arrays.source import ArraySource
from pyreactant.check.bounds.verdict import Verdict
from pyreactant.check.faults.diagnose import (
    blocks_of,
    diagnose,
    differing,
    must_be_equal,
    orders,
)
from pyreactant.check.faults.explain import matching
from pyreactant.check.faults.reductions import positions_along
from pyreactant.check.faults.subject import Subject
from pyreactant.check.oracle.oracle import InputOracle
from pyreactant.check.records.records import ProcessRecord
from pyreactant.check.records.verdict import ArrayPlan, BlockVerdict, Diagnosis, Kind

MESH = pr.Mesh((2, 4), ("x", "y"))
SHAPE = (8, 8)
PLANS = {
    name: ArrayPlan(SHAPE, "float32", pr.NamedSharding(MESH, ("x", "y")))
    for name in ("input 0", "output 0")
}

Change = Callable[[int, list[list[int]]], dict[str, Any]]


def verdicts(array: str, change: Change) -> list[BlockVerdict]:
    """Verdicts of eight devices on two processes; `change` returns a block's deviations."""
    plan = PLANS[array]
    found = []
    for device, index in plan.sharding.devices_indices_map(SHAPE).items():
        block = plain_index(index)
        right: dict[str, Any] = {"index": block, "expected_index": block}
        found.append(BlockVerdict(array, device, device // 4, **{**right, **change(device, block)}))
    return found


def right(device: int, block: list[list[int]]) -> dict[str, Any]:
    return {}


def diagnosis_of(change: Change, array: str = "output 0") -> Diagnosis:
    found = [v for name in PLANS for v in verdicts(name, change if name == array else right)]
    return diagnose(found, PLANS, program="matmul", runtime="jax", num_processes=2)


def wrong(*kinds: Kind, **more: Any) -> dict[str, Any]:
    return {"values": Verdict(wrong=3), "kinds": kinds, "matches": [], "text": "worst", **more}


def test_right_blocks_pass() -> None:
    found = diagnosis_of(right)
    assert found.passed
    assert found.kind is None


def test_blocks_are_compared_with_each_other_block_computed_once() -> None:
    """Eight blocks have 56 pairs."""
    reads = []

    class Noted(ArraySource):
        def read(self, index: Index) -> np.ndarray:
            reads.append(index)
            return super().read(index)

    values = np.arange(64, dtype=np.float32).reshape(SHAPE)
    plan = PLANS["input 0"]
    subject = Subject("input 0", plan, InputOracle(Noted(values)))
    blocks = [*plan.sharding.devices_indices_map(SHAPE).values()]
    for block in blocks:
        assert matching(subject, np.full((4, 2), -1, np.float32), block) == []
    assert len(reads) == 8
    assert matching(subject, values[blocks[3]], blocks[6]) == [blocks[3]]


def copied(digests: str, host: str, platform: str) -> tuple[list[Any], list[Any]]:
    """Verdicts on copies of one block with these digests, on two processes; their records."""
    index = [[0, 8], [0, 8]]
    blocks = [
        BlockVerdict("output 0", device, device // 4, index, index, digest=digest)
        for device, digest in enumerate(digests)
    ]
    facts: dict[str, Any] = {"num_processes": 2, "backend": "jax", "devices": [], "request": {}}
    records = [
        ProcessRecord(process=p, host=host[p], platform=platform, facts={}, **facts)
        for p in range(2)
    ]
    return blocks, records


@pytest.mark.parametrize(
    ("digests", "host", "platform", "devices"),
    [
        ("aaaaaaaa", "hh", "cpu", ()),
        ("aaabaaaa", "hh", "cpu", (3,)),
        ("aaabaaba", "tt", "tpu", (3, 6)),
        ("aaabaaba", "tu", "tpu", (3, 6)),
        ("aaaabbbb", "hi", "cpu", ()),  # unlike hosts
        ("aaaabbcb", "hi", "cpu", (6,)),
        ("aaabaaaa", "hh", "gpu", ()),
    ],
)
def test_copies_that_differ(
    digests: str, host: str, platform: str, devices: tuple[int, ...]
) -> None:
    blocks, records = copied(digests, host, platform)
    copies = differing(blocks, must_be_equal(records))
    found = diagnose(blocks, PLANS, program="p", runtime="jax", num_processes=2, copies=copies)
    assert found.passed == (not devices)
    assert found.devices == devices
    if devices:
        assert found.kind == Kind.COPIES
        assert "block [0:8, 0:8] of output 0 has other bits on device" in found.text
    assert bool(differing(blocks)) == (len(set(digests)) > 1)


def test_a_wrong_input_is_to_blame_before_the_outputs() -> None:
    def both(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.UNINITIALISED) if device == 5 else {}

    blocks = [*verdicts("output 0", both), *verdicts("input 0", both)]
    found = diagnose(blocks, PLANS, program="p", runtime="jax", num_processes=2)
    assert found.array == "input 0"
    assert (found.processes, found.devices) == ((1,), (5,))


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("number", range(2))
def test_orders_of_devices_are_named(number: int, honest: bool) -> None:
    kind, _, held = orders(PLANS["output 0"].sharding, SHAPE)[number]

    def change(device: int, block: list[list[int]]) -> dict[str, Any]:
        there = plain_index(held[device])
        if there == block:
            return {}
        if honest:
            return {"index": there, "kinds": (Kind.WRONG_DEVICES,)}
        same = [s.stop - s.start for s in held[device]] == [b - a for a, b in block]
        return wrong(Kind.PERMUTED if same else Kind.STRUCTURE, matches=[there])

    found = diagnosis_of(change)
    assert found.kind == kind
    assert found.also == ()
    assert found.processes == (0, 1)


def test_other_orders_are_permuted_blocks_or_wrong_devices() -> None:
    held = list(PLANS["output 0"].sharding.devices_indices_map(SHAPE).values())

    def rotated(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.PERMUTED, matches=[plain_index(held[device - 1])])

    def honest(device: int, block: list[list[int]]) -> dict[str, Any]:
        there = plain_index(held[device - 1])
        return {"index": there, "kinds": (Kind.WRONG_DEVICES,), "text": "lies"}

    assert diagnosis_of(rotated).kind == Kind.PERMUTED
    assert "device 1 holds block [0:4, 0:2]" in diagnosis_of(rotated).text
    assert diagnosis_of(honest).kind == Kind.WRONG_DEVICES
    assert "block [0:4, 0:2] lies on device 1" in diagnosis_of(honest).text


def test_fewer_devices_are_counted() -> None:
    def gone(device: int, block: list[list[int]]) -> dict[str, Any]:
        if device < 4:
            return {"index": [[0, 4], [0, 4]], "kinds": (Kind.WRONG_DEVICES,)}
        return {"index": None, "kinds": (Kind.FEWER_DEVICES,)}

    found = diagnosis_of(gone)
    assert found.kind == Kind.FEWER_DEVICES
    assert "no block on devices 4, 5, 6, 7" in found.text


def test_one_process_that_differs_is_named() -> None:
    def odd(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.UNKNOWN) if device > 3 else {}

    def short(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.LOWER_PRECISION) if device > 3 else {}

    def odd_copy(device: int, block: list[list[int]]) -> dict[str, Any]:
        return {**odd(device, block), "index": [[0, 4], [0, 2]]}

    found = diagnosis_of(odd)  # or a fault of the program, where only process 1 has elements
    assert (found.kind, found.processes) == (Kind.UNKNOWN, (1,))
    assert "unknown; 4 of 8 blocks are wrong, " in found.text
    assert "only process 1 has wrong blocks; the worst is" in found.text
    found = diagnosis_of(odd_copy)
    assert (found.kind, found.processes) == (Kind.ONE_PROCESS, (1,))
    assert "only process 1 has wrong blocks, and others have right copies" in found.text
    found = diagnosis_of(short)
    assert (found.kind, found.processes) == (Kind.LOWER_PRECISION, (1,))
    assert "all blocks of process 1, and of no other" in found.text
    assert "only process 1" not in found.text  # said already
    turned = diagnosis_of(lambda d, _: wrong(Kind.TRANSPOSED) if d > 3 else {})
    assert "only process 1 has wrong blocks" in turned.text


def test_the_sentence_says_nothing_twice() -> None:
    """Which blocks are wrong is said if it is not all, and the array is named once."""
    text = "output 0 on device 5 (process 1), block [4:8, 2:4]: every element is wrong"

    def change(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.MISSING_REDUCTION, text=text)

    assert diagnosis_of(change).text == (
        "matmul on jax: output 0 looks like missing reduction; all 8 blocks are wrong; the worst "
        "is on device 5 (process 1), block [4:8, 2:4]: every element is wrong"
    )
    one = diagnosis_of(lambda d, b: change(d, b) if d == 5 else {})
    assert "1 of 8 blocks is wrong; only process 1 has wrong blocks; the block is on" in one.text


def test_lower_precision_of_one_process_shows_in_all_its_blocks() -> None:
    def short(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.LOWER_PRECISION) if device > 3 else {}

    def one(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.LOWER_PRECISION) if device == 5 else {}

    given: dict[str, Any] = {"program": "p", "runtime": "jax", "hosts": {0: "a", 1: "node-b"}}
    found = diagnose(verdicts("output 0", short), PLANS, num_processes=2, **given)
    assert found.kind == Kind.LOWER_PRECISION
    assert "all blocks of process 1 on node-b, and of no other" in found.text
    found = diagnose(verdicts("output 0", one), PLANS, num_processes=2, **given)
    assert found.kind == Kind.UNKNOWN
    assert "only process 1 on node-b has wrong blocks" in found.text
    found = diagnose(verdicts("output 0", one), PLANS, num_processes=1, **given)
    assert found.kind == Kind.LOWER_PRECISION


def test_lower_precision_shows_in_all_wrong_blocks() -> None:
    found = diagnosis_of(lambda d, _: wrong(Kind.LOWER_PRECISION if d else Kind.UNKNOWN))
    assert found.kind == Kind.UNKNOWN
    assert diagnosis_of(lambda d, _: wrong(Kind.LOWER_PRECISION)).kind == Kind.LOWER_PRECISION


def test_a_kind_of_half_of_the_blocks_has_no_name() -> None:
    found = diagnosis_of(lambda d, _: wrong(Kind.FACTOR if d < 4 else Kind.UNKNOWN))
    assert found.kind == Kind.UNKNOWN
    assert "the values fit wrong factor" in found.text


def test_a_kind_of_most_blocks_has_a_name_if_no_other_one_fits_any() -> None:
    def most(other: Kind) -> Diagnosis:
        return diagnosis_of(lambda d, _: wrong(other if d < 2 else Kind.MASK))

    assert most(Kind.UNKNOWN).kind == Kind.MASK
    assert most(Kind.TRANSPOSED).kind == Kind.UNKNOWN
    assert most(Kind.TRANSPOSED).also == (Kind.MASK, Kind.TRANSPOSED)


def test_a_reason_of_one_block_does_not_speak_for_all() -> None:
    def change(same: bool) -> str:
        return diagnosis_of(
            lambda d, _: wrong(Kind.UNKNOWN, reasons=("it is odd" if same or d == 3 else "",))
        ).text

    assert change(same=True).endswith("it is odd")
    assert "it is odd" not in change(same=False)


def test_two_kinds_that_fit_have_no_name_unless_they_are_one() -> None:
    found = diagnosis_of(lambda d, _: wrong(Kind.SHIFTED, Kind.MASK))
    assert (found.kind, found.also) == (Kind.UNKNOWN, (Kind.SHIFTED, Kind.MASK))
    assert found.text.endswith("the values fit shifted block or wrong mask")
    found = diagnosis_of(lambda d, _: wrong(Kind.MISSING_REDUCTION, Kind.PARTS))
    assert (found.kind, found.also) == (Kind.MISSING_REDUCTION, (Kind.PARTS,))


def test_what_all_wrong_blocks_share_comes_first_and_the_rest_is_told() -> None:
    def change(device: int, block: list[list[int]]) -> dict[str, Any]:
        if device == 1:
            return wrong(Kind.PERMUTED, Kind.TRANSPOSED, matches=[[[4, 8], [0, 2]]])
        return wrong(Kind.TRANSPOSED) if device == 2 else {}

    assert diagnosis_of(change).kind == Kind.TRANSPOSED

    def alone(device: int, block: list[list[int]]) -> dict[str, Any]:
        return change(device, block) if device == 1 else {}

    found = diagnosis_of(alone)
    assert (found.kind, found.also) == (Kind.UNKNOWN, (Kind.PERMUTED, Kind.TRANSPOSED))
    assert "the values fit permuted blocks or transposed block" in found.text


def test_blocks_that_differ_in_kind_give_the_commonest() -> None:
    def change(device: int, block: list[list[int]]) -> dict[str, Any]:
        return wrong(Kind.UNKNOWN if device else Kind.UNINITIALISED)

    found = diagnosis_of(change)
    assert (found.kind, found.also) == (Kind.UNKNOWN, (Kind.UNINITIALISED,))
    assert "output 0 is wrong; the kind of fault is unknown" in found.text
    assert found.text.count("the kind of fault is unknown") == 1


def test_a_diagnosis_names_everything() -> None:
    def change(device: int, block: list[list[int]]) -> dict[str, Any]:
        return (
            wrong(Kind.TRANSPOSED, values=Verdict(wrong=3, ratio=float(device)))
            if device in (2, 6)
            else {}
        )

    found = diagnosis_of(change)
    for part in (
        "matmul",
        "jax",
        "output 0",
        "transposed block",
        "2 of 8 blocks",
        "processes 0, 1",
        "devices 2, 6",
        "worst",
    ):
        assert part in found.text


def test_plans_and_indices_survive_json() -> None:
    plan = PLANS["output 0"]
    assert ArrayPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    index = (slice(0, 4), slice(2, 8))
    assert as_index(plain_index(index)) == index


def test_orders_leave_out_what_changes_nothing() -> None:
    whole = pr.NamedSharding(MESH, ())
    assert orders(whole, SHAPE) == []
    line = pr.NamedSharding(pr.Mesh((8,), ("x",)), ("x",))
    assert orders(line, SHAPE) == []
    square = pr.NamedSharding(pr.Mesh((2, 2), ("x", "y"), range(4)), ("x", "y"))
    kinds = {kind for kind, _, _ in orders(square, SHAPE)}
    assert kinds == {Kind.AXES_SWAPPED, Kind.COLUMN_MAJOR}  # the same on a square mesh
    many = pr.NamedSharding(pr.Mesh((2,) * 5, tuple("abcde"), range(32)), tuple("abcde"))
    assert len(orders(many, (2,) * 5)) < 30


def test_blocks_include_those_of_other_shapes() -> None:
    shapes = {
        tuple(s.stop - s.start for s in index)
        for index in blocks_of(PLANS["output 0"].sharding, SHAPE)
    }
    assert shapes == {(4, 2), (2, 4)}  # and those with the axes exchanged


def test_parts_of_a_sum_follow_the_mesh() -> None:
    sharding = pr.NamedSharding(MESH, (("x", "y"),))
    major = positions_along(16, ("x", "y"), sharding, {"x": 1})
    np.testing.assert_array_equal(np.flatnonzero(major), range(8, 16))
    minor = positions_along(16, ("x", "y"), sharding, {"y": 1})
    np.testing.assert_array_equal(np.flatnonzero(minor), [2, 3, 10, 11])
