"""Folders of finished runs that are damaged, incomplete or inconsistent."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyreactant import FileError, InvalidArgumentError, __version__
from pyreactant.check.records.records import ShardWriter, read_run
from pyreactant.check.records.verdict import ProgramRecord
from pyreactant.check.run import compare
from tests.crosscheck.runs import change_blocks, change_record, copy


def test_a_whole_run(runs: Path) -> None:
    run = read_run(runs / "jax")
    assert [record.process for record in run.records] == [0, 1]
    assert run.exit_code == 0
    record = run.records[1].program("matmul")
    assert record is not None
    block = next(b for b in record.blocks if b.array == "output 0")
    assert run.block("matmul", block).shape == (8, 8)
    assert record.problem["size"] == 16
    assert set(record.inputs) == {"input 0", "input 1"}


def test_numbers_that_are_not_finite_are_text() -> None:
    record = ProgramRecord(program="any", problem={"seed": math.nan}, seconds={"call": math.inf})
    assert json.loads(json.dumps(record.to_dict(), allow_nan=False))["problem"] == {"seed": "nan"}


def _cut(run: Path) -> None:
    path = run / "process-1.json"
    path.write_text(path.read_text()[:-200])


def _cut_blocks(run: Path) -> None:
    path = run / "shards-1.npz"
    path.write_bytes(path.read_bytes()[:-200])


def _flip_a_bit(run: Path) -> None:
    path = run / "shards-1.npz"
    data = bytearray(path.read_bytes())
    data[300] ^= 1  # within the first block
    path.write_bytes(data)


def _flip_a_bit_of_the_record(run: Path) -> None:
    path = run / "process-1.json"
    text = path.read_text()
    assert '"passed": true' in text
    path.write_text(text.replace('"ulps": 0.0', '"ulps": 0.5', 1))


def _blocks_of_another_run(run: Path) -> None:
    path = run / "shards-1.npz"
    with np.load(path) as found:
        blocks = dict(found)
    writer = ShardWriter(path)
    for key, block in blocks.items():
        writer.add(key, block + 1)
    writer.close()


def _swap_blocks(run: Path) -> None:
    one, two = run / "shards-0.npz", run / "shards-1.npz"
    one.rename(run / "kept")
    two.rename(one)
    (run / "kept").rename(two)


def _swap_records(run: Path) -> None:
    one, two = run / "process-0.json", run / "process-1.json"
    one.rename(run / "kept")
    two.rename(one)
    (run / "kept").rename(two)


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (_cut, "process-1.json: truncated or damaged, so not a record of pyreactant crosscheck"),
    (_cut_blocks, "shards-1.npz: truncated or damaged"),
    (_flip_a_bit, "shards-1.npz: truncated or damaged"),
    (_flip_a_bit_of_the_record, "process-1.json: damaged or edited, because its contents do not"),
    (_blocks_of_another_run, "is not the one that was checked; copy this file and the process's"),
    (_swap_blocks, "shards-0.npz: has no block 'full_sum/output 0/0'; copy it again"),
    (_swap_records, "is the record of process 1; rename it to process-1.json"),
    (lambda run: (run / "shards-0.npz").unlink(), "shards-0.npz: missing; copy shards-*.npz of"),
    (lambda run: (run / "process-1.json").unlink(), "process 1 of 2 is missing; copy process-*.js"),
    (lambda run: (run / "process-0.json").unlink(), "process 0 of 2 is missing"),
    (lambda run: (run / "process-0.json").write_text("[]"), "process-0.json: not a record of"),
    (lambda run: (run / "process-0.json").write_text('{"schema": 1}'), "got None (format 1)"),
    (
        lambda run: change_record(run, 0, lambda r: r.update(schema=9)),
        f"got {__version__} (format 9)",
    ),
    (
        lambda run: change_record(run, 0, lambda r: r.update(pyreactant="0.0.9")),
        f"written by pyreactant {__version__} (format 2), got 0.0.9 (format 2); run the cross-che",
    ),
    (lambda run: change_record(run, 1, lambda r: r.pop("devices")), "(KeyError('devices'))"),
    (
        lambda run: change_record(run, 1, lambda r: r["request"].update(id="other")),
        "process-1.json: belongs to another run than process 0; copy each run into its own folder",
    ),
    (
        lambda run: change_record(run, 1, lambda r: r.update(process=0)),
        "is the record of process 0; rename it to process-0.json",
    ),
    (
        lambda run: change_record(run, 1, lambda r: r.update(finished=False, running="row_sum")),
        "process 1 has not finished (row_sum was running); wait for the end of the run",
    ),
    (
        lambda run: change_blocks(run, 1, lambda b: b.pop("matmul/output 0/2")),
        "shards-1.npz: has no block 'matmul/output 0/2'; copy it again",
    ),
    (lambda run: (run / "report.json").write_text("{"), "report.json: truncated or damaged"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[m for _, m in DAMAGES])
def test_damage(damage: Callable[[Path], object], message: str, runs: Path, tmp_path: Path) -> None:
    folder = copy(runs, tmp_path)
    damage(folder / "standin")
    with pytest.raises(FileError) as caught:
        compare(folder / "jax", folder / "standin")
    assert message in str(caught.value)


OF_BLOCKS = [(damage, message) for damage, message in DAMAGES if "shards" in message]


@pytest.mark.parametrize(("damage", "message"), OF_BLOCKS, ids=[m for _, m in OF_BLOCKS])
def test_damaged_blocks_of_a_single_run(
    damage: Callable[[Path], object], message: str, runs: Path, tmp_path: Path
) -> None:
    folder = copy(runs, tmp_path)
    assert compare(folder / "standin").passed
    damage(folder / "standin")
    with pytest.raises(FileError) as caught:
        compare(folder / "standin")
    assert message in str(caught.value)


@pytest.mark.parametrize("count", [10**9, 0, "2", True])
def test_a_record_with_an_absurd_number_of_processes(
    count: object, runs: Path, tmp_path: Path
) -> None:
    run = copy(runs, tmp_path) / "jax"
    change_record(run, 0, lambda record: record.update(num_processes=count))
    with pytest.raises(FileError, match=f"process 0 of {count!r}"):
        compare(run)


def test_the_last_start_of_a_job_that_was_requeued(runs: Path, tmp_path: Path) -> None:
    run = copy(runs, tmp_path) / "jax"
    preempted = {"cause": "preempted", "exit_code": 6, "summary": "told to stop"}
    (run / "restart-2").mkdir()
    (run / "report.json").rename(run / "restart-2" / "report.json")
    (run / "process-0.log").rename(run / "restart-2" / "process-0.log")
    for folder in (run, run / "restart-1"):
        folder.mkdir(exist_ok=True)
        (folder / "report.json").write_text(json.dumps(preempted))
    assert read_run(run).exit_code == 0
    assert compare(run).passed
    assert "crosscheck: matmul" in compare(run).runs[0].logs["0"]


def test_folders_that_hold_no_run(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder; give the folder of a run, such as OUT/ja"):
        compare(tmp_path / "none")
    with pytest.raises(FileError, match="contains no run of pyreactant crosscheck"):
        compare(runs / "jax", tmp_path)
    with pytest.raises(InvalidArgumentError, match="name each folder only once"):
        compare(runs / "jax", runs / "standin" / ".." / "jax")
    with pytest.raises(InvalidArgumentError, match="name the folders of finished runs"):
        compare()


def test_bytes_of_types_that_numpy_does_not_know(tmp_path: Path) -> None:
    import ml_dtypes

    block = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    writer = ShardWriter(tmp_path / "shards-0.npz")
    writer.add("p/output 0/0", block)
    writer.add("p/output 0/1", block[:0])
    writer.add("p/output 0/2", np.asarray(np.float32(3)))
    assert not (tmp_path / "shards-0.npz").exists()
    writer.close()
    with np.load(tmp_path / "shards-0.npz") as found:
        np.testing.assert_array_equal(found["p/output 0/0"].view(ml_dtypes.bfloat16), block)
        assert found["p/output 0/1"].shape == (0, 3)
        assert found["p/output 0/2"] == 3
        assert found["p/output 0/2"].shape == ()


def test_records_are_json_that_anything_reads(runs: Path) -> None:
    def refuse(text: str) -> Any:
        raise AssertionError(f"{text} is no JSON")

    records = list(runs.rglob("*.json"))
    assert len(records) >= 4, "two runs of two processes"
    for path in records:
        json.loads(path.read_text(), parse_constant=refuse)
