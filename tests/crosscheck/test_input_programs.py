"""Trees and ranges as inputs, and bad oracles beside good ones."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.base.errors import DeadlineError
from pyreactant.base.steps import told_to
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import UnknownOperationError
from pyreactant.check.check import check_all
from pyreactant.check.faults import subject
from pyreactant.check.programs import find_case, user
from pyreactant.check.records.verdict import Kind
from pyreactant.check.request import CheckRequest, check_request
from tests.harness import environment, run

from .faults import Scene, every
from .input_programs import HERE, adds_in_any_order, entropy, loss, of_exits
from .runs import small
from .trials import diagnosis_of


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_programs_of_trees_and_ranges_are_right(dtype: str) -> None:
    report = small([loss, entropy], size=16, dtype=dtype, coverage="usual")
    assert report.passed, report.to_text()
    assert [len(row.plans) for row in report.rows] == [6, 2]


def test_bad_oracles_do_not_end_the_command(tmp_path: Path) -> None:
    names = ["random", "a_file", "a_changed", "no_numbers", "exits", "raises", "prints"]
    argv = [sys.executable, "-m", "pyreactant", "crosscheck", "--json", "--platform", "cpu"]
    argv += ["--processes", "2", "--devices-per-process", "2", "--backends", "jax", "--size", "8"]
    argv += ["--quick", "--out", str(tmp_path / "out"), *(f"{HERE}:of_{name}" for name in names)]
    done = run(argv, env=environment(), timeout=300)
    assert done.returncode == 5, done.stderr
    rows = {row["program"]: row["results"][0] for row in json.loads(done.stdout)["rows"]}
    found = {name: rows[f"{HERE}:of_{name}"] for name in names}
    assert {name: result["outcome"] for name, result in found.items()} == {
        "random": "raised",
        "a_file": "raised",
        "a_changed": "right",
        "no_numbers": "wrong",
        "exits": "raised",
        "raises": "raised",
        "prints": "right",
    }
    assert "Program 'random': its oracle" in found["random"]["text"]
    assert "must return the same numbers for the same arguments" in found["random"]["text"]
    assert "FileNotFoundError" in found["a_file"]["text"]
    path = HERE.replace(".", "/") + ".py"
    assert f"it raised SystemExit: 3 ({path}, line" in found["exits"]["text"]
    assert "must be nan" in found["no_numbers"]["text"]
    assert "the oracle speaks" in done.stderr


def test_an_oracle_may_add_in_any_order_and_is_announced() -> None:
    program = pr.Program("sums", jax=f"{HERE}:double", oracle=adds_in_any_order, inputs=((8, 99),))
    told: list[str] = []
    with told_to(told.append):
        check_request(CheckRequest((program,)), 4, ["jax"])
    assert told == [
        "running the oracle of sums, the first call",
        "running the oracle of sums, the same call again",
        "trying what is stated of sums",
    ]


def slow(x: np.ndarray) -> np.ndarray:
    time.sleep(0.05)
    return np.tanh(x) * 2


def test_a_slow_oracle_is_called_for_its_bounds_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(type(x).__name__)
        return slow(x)

    monkeypatch.setattr(user, "_PATIENCE", 0.01)
    case = find_case(pr.Program("slow", jax=f"{HERE}:double", oracle=counted, inputs=((8, 8),)))
    assert case.outputs is not None
    assert case.runs is not None
    case.outputs(8, "float32")
    assert calls == ["ndarray"]
    assert "the oracle of slow took 0." in capsys.readouterr().err
    with pytest.raises(UnknownOperationError, match="a call of the oracle takes 0"):
        case.runs([np.ones((8, 8), np.float32)], Model.of("float32"))
    assert calls == ["ndarray"], "the measured time decides"


@pytest.mark.usefixtures("backend")
def test_the_kind_of_fault_is_not_searched_by_a_slow_oracle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.tanh(x) * 2

    program = pr.Program("slow", jax=body, oracle=slow, inputs=(("n", "n"),))
    scene = Scene.of(program, 16)
    blocks = every(lambda block: block + np.arange(block.size).reshape(block.shape))(scene)
    monkeypatch.setattr(subject, "_PATIENCE", 0.4)  # less than ten calls
    found = diagnosis_of(scene.with_blocks(blocks))
    assert found.kind == Kind.UNKNOWN
    assert "the search for its kind was given up, because the oracle is slow" in found.text
    nothing = every(np.zeros_like)(scene)  # needs no oracle
    assert diagnosis_of(scene.with_blocks(nothing)).kind == Kind.UNINITIALISED


def branches(x: np.ndarray) -> np.ndarray:
    return np.tanh(x) if x.sum() > 0 else np.tanh(x) * 2


def needs_memory(x: np.ndarray) -> np.ndarray:
    if type(x).__name__ == "Runs":
        raise MemoryError
    return np.tanh(x)


@pytest.mark.parametrize(
    ("oracle", "why"),
    [
        (branches, "an oracle's array became a plain NumPy array, number or branch"),
        (needs_memory, "the runs of the oracle do not fit into memory"),
    ],
)
@pytest.mark.usefixtures("backend")
def test_without_a_typical_limit_the_reason_is_told(oracle: Any, why: str) -> None:
    def body(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.where((x.sum() > 0) | (oracle is needs_memory), 1, 2) * jnp.tanh(x)

    program = pr.Program("few", jax=body, oracle=oracle, inputs=(("n", "n"),))
    blocks = check_all(Scene.of(program, 16, typical=8.0).run)
    missing = [b.values.typical.missing for b in blocks if b.values.typical is not None]
    assert all(block.passed for block in blocks)
    assert len(missing) == 8
    assert all(text.startswith(why) for text in missing)


def test_an_oracle_without_end_is_an_error_that_names_it() -> None:
    ended = threading.Event()

    def waits(x: np.ndarray) -> np.ndarray:
        ended.wait()
        return x

    program = pr.Program("endless", jax=f"{HERE}:double", oracle=waits, inputs=((8, 8),))
    with pytest.raises(DeadlineError, match=r"'endless': its oracle .* within timeout of 0.1 s"):
        check_request(CheckRequest((program,)), 4, ["jax"], timeout=0.1)
    ended.set()


@pytest.mark.slow
def test_the_end_by_a_time_limit_says_what_ran(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pyreactant", "crosscheck", "--platform", "cpu", "--timeout"]
    argv += ["15", "--processes", "1", "--devices-per-process", "2", "--backends", "jax"]
    argv += ["--quick", "--out", str(tmp_path / "out"), f"{HERE}:of_endless_in_runs"]
    done = run(argv, env=environment(), timeout=300)
    assert done.returncode == 7, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "it was running the oracle of endless_in_runs, the first call" in text


def test_a_bad_oracle_alone_is_an_error_before_anything_starts() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"'exits': its oracle .*SystemExit"):
        small(of_exits, size=8)
