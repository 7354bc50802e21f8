"""Numbers that programs log: one value for each name and step in the run's folder."""

import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.process.events import Event, Metrics, read
from pyreactant.runs.supervisor import RunOptions
from pyreactant.runs.supervisor import metrics as metrics
from tests.harness import require
from tests.launch.runs import Run, run_local, run_tasks, script

PROGRAM = """
import math, os, sys
import numpy as np
import pyreactant as pr

assert "jax" not in sys.modules
index = int(os.environ["PYREACTANT_PROCESS_INDEX"])
pr.log(0, loss=index + 1.0, peak=[5, 7][index], own=index, reduce={"loss": "mean", "peak": "max"})
assert "numpy" in sys.modules and "jax" not in sys.modules
import jax.numpy as jnp

x = jnp.asarray(1.5) + index
pr.log(np.int32(1), loss=x * 2, half=jnp.bfloat16(2.5), rate=np.float32(0.25), count=jnp.int8(-3),
       flag=np.True_, reduce={"loss": "mean"})
pr.log(2, **{"a/b c\\n": math.nan, "up": math.inf, "big": 2**53 + 1, "many": 0})
pr.log(2, many=1)
if index == 0:
    pr.log(3, partly=4.0, reduce={"partly": "mean"})
gone = jnp.asarray(3.0) + 1
gone.delete()
pr.log(4, gone=gone, stays=1.0)
if len(sys.argv) > 1:
    raise ValueError("broken")
"""


EACH = """
import atexit, os, pathlib, sys, time
import pyreactant as pr

index, again = int(os.environ["PYREACTANT_PROCESS_INDEX"]), os.environ["PYREACTANT_RESTART_COUNT"]
ended = pathlib.Path("ended")
pr.log(0, where=index, attempt=int(again), reduce={"where": "mean"})
if index:
    if again == "0":
        pr.log(1, only=1.0, reduce={"only": "max"})
    atexit.register(ended.touch)  # all is sent before the exit hooks run
elif again == "0":
    while not ended.exists():
        time.sleep(0.02)
    sys.exit(3)
"""


def test_one_supervisor_per_process_and_a_restart(tmp_path: Path) -> None:
    program = script(tmp_path, EACH)
    run = run_tasks(tmp_path, "--max-restarts", "1", "--", program, timeout=240)
    assert run.code == 0, run
    found = {m.name: m for m in metrics.read_metrics(run.folder)}
    assert (found["where"].value, found["where"].processes) == (0.5, 2)
    assert found["attempt"].value == 1
    assert (found["only"].value, found["only"].processes) == (1.0, 1)


TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
OPTIONS = ["--tensorboard"] if TENSORBOARD else []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("metrics")
    return run_local(folder, "-n", "2", *OPTIONS, "--", script(folder, PROGRAM), timeout=240)


def test_a_run_of_two_processes(run: Run) -> None:
    assert run.code == 0, run
    found = {(m.step, m.name): m for m in metrics.read_metrics(run.folder)}
    values = {key: metric.value for key, metric in found.items()}
    assert math.isnan(values.pop((2, "a/b c\n")))
    assert values == {
        (0, "loss"): 1.5,
        (0, "peak"): 7,
        (0, "own"): 0,
        (1, "loss"): 4.0,
        (1, "half"): 2.5,
        (1, "rate"): 0.25,
        (1, "count"): -3,
        (1, "flag"): 1,
        (2, "up"): math.inf,
        (2, "big"): 2**53 + 1,
        (2, "many"): 1,
        (3, "partly"): 4.0,
        (4, "stays"): 1.0,
    }
    assert (found[0, "loss"].reduce, found[0, "loss"].processes) == ("mean", 2)
    assert (found[3, "partly"].reduce, found[3, "partly"].processes) == ("mean", 1)
    assert (found[0, "own"].reduce, found[0, "own"].processes) == (None, 1)
    times = [found[step, name].time for step, name in ((0, "own"), (2, "up"), (4, "stays"))]
    assert times == sorted(times)
    began = datetime.fromisoformat(run.report["started"]).timestamp()
    assert began <= times[0] <= began + run.report["seconds"]
    assert b"gone of step 4 is not recorded: RuntimeError: Array has been deleted" in run.log(0)


def test_the_file_is_strict_json(run: Run) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert {row["value"] for row in rows if row["step"] == 2} >= {"inf", "nan"}


def test_tensorboard_reads_the_same_numbers(run: Run) -> None:
    require(TENSORBOARD, "tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (file,) = (run.folder / "tensorboard").iterdir()
    found = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            found[event.step, value.tag] = (value.tensor.float_val[0], event.wall_time)
    for metric in metrics.read_metrics(run.folder):
        value, at = found.pop((metric.step, metric.name))
        assert value == np.float32(metric.value) or math.isnan(metric.value)
        assert at == metric.time
    assert not found


def test_without_tensorboard_the_run_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "tensorboard.summary", raising=False)
    with pytest.raises(pr.RequirementError, match=r"pip install 'pyreactant\[metrics\]'") as raised:
        RunOptions(["-m", "x"], tensorboard=True)
    assert raised.value.exit_code == 3


def collected(folder: Path, processes: int, *records: tuple[int, Any]) -> list[metrics.Metric]:
    collection = metrics.MetricsFile(folder, processes)
    for process, record in records:
        collection.take(process, [record])
    assert collection.close() is None
    return metrics.read_metrics(folder)


def test_a_name_that_is_logged_twice_in_a_step_is_reduced_in_pairs(tmp_path: Path) -> None:
    first, second = (5, 1.0, "loss", 1.0, "mean"), (5, 2.0, "loss", 3.0, "mean")
    records = [(0, first), (0, second), (1, first), (1, second)]
    (found,) = collected(tmp_path, 2, *records)
    assert found == metrics.Metric(5, "loss", 3.0, 2.0, "mean", 2)


@pytest.mark.parametrize(
    ("values", "how", "expected"),
    [
        ((1e308, 1e308, 1e308), "mean", 1e308),
        ((0.1,) * 10, "mean", 0.1),
        (("inf", 1.0), "mean", math.inf),
        (("inf", "-inf"), "mean", math.nan),
        (("nan", 1.0), "max", math.nan),
        ((1.0, "nan"), "max", math.nan),
        ((2**60 + 1, 3), "max", 2**60 + 1),
    ],
)
def test_reductions(values: tuple[Any, ...], how: str, expected: float, tmp_path: Path) -> None:
    records = [(i, (0, 0.0, "x", value, how)) for i, value in enumerate(values)]
    (found,) = collected(tmp_path, len(values), *records)
    assert found.value == expected or (math.isnan(found.value) and math.isnan(expected))
    assert found.processes == len(values)


def test_reading_skips_what_is_damaged_or_not_complete(tmp_path: Path) -> None:
    assert metrics.read_metrics(tmp_path) == []
    good = metrics.Metric(1, "x", 0.5, 9.0)
    damaged = ["", "{", "[]", "null", '{"step": "1"}', '{"step": true, "name": "", "value": 1}']
    text = "\n".join([*damaged, good.to_line(), '{"step": 2, "name": "x", "val'])
    (tmp_path / "metrics.jsonl").write_text(text)
    assert metrics.read_metrics(tmp_path) == [good]
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(pr.FileError, match=r"metrics\.jsonl: cannot be read \(Is a directory\)"):
        metrics.read_metrics(tmp_path)


def test_malformed_records_are_ignored() -> None:
    wrong: list[Any] = [None, 3, [1], [(1, 2)], [(1, 0.0, "x", None, "")], [(1, 0, "x", "y", "")]]
    for records in [*wrong, [(1, 0, "x", True, "")], [("1", 0, "x", 1, "")]]:
        assert read(Event, {"type": "Metrics", "records": records}) is None
    good = read(Event, {"type": "Metrics", "records": [[1, 0, "x", "nan", ""]]})
    assert good == Metrics(((1, 0.0, "x", "nan", ""),))


class _Array:
    def __init__(self, shape: Any, dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)


class _Traced(_Array):
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("traced here\nand more")


def _wrong() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any], str]]:
    yield "none", (0,), {}, "log needs at least one number"
    yield "step", (0.5,), {"x": 1}, r"step must be a whole number, got 0\.5"
    yield "bool", (True,), {"x": 1}, "step must be a whole number, got True"
    yield "negative", (-1,), {"x": 1}, r"step must be from 0 to 2\*\*63 - 1, got -1"
    yield "text", (0,), {"x": "1"}, "x: it must be one real number, .* got str"
    yield "list", (0,), {"x": [1]}, "x: it must be one real number, .* got list"
    yield "complex", (0,), {"x": np.complex64(1)}, "x: .* got an array of complex64"
    yield "shape", (0,), {"x": np.ones((2, 3))}, r"x: .* got shape \(2, 3\)"
    yield "one", (0,), {"x": np.ones(1)}, r"x: .* got shape \(1,\)"
    yield "time", (0,), {"x": _Array((), "M8[s]")}, r"x: .* got an array of datetime64\[s\]"
    yield "huge", (0,), {"x": 1 << 64}, "x must fit in 64 bits, or be a float"
    yield "name", (0,), {"": 1}, "a name must have from 1 to 200 characters, got 0"
    yield "long", (0,), {"x" * 201: 1}, "a name must have from 1 to 200 characters, got 201"
    yield "sum", (0,), {"x": 1, "reduce": {"x": "sum"}}, "reduce must map names to 'mean' or 'max'"
    yield "other", (0,), {"x": 1, "reduce": {"y": "max"}}, "reduce names 'y', .* it logs x"
    yield "how", (0,), {"x": 1, "reduce": "mean"}, 'reduce must be a dict such as {"loss": "mean"}'
    yield "traced", (0,), {"x": _Traced((), "f4")}, "x: .* got one without a value: traced here"


@pytest.mark.parametrize(
    ("step", "scalars", "words"), [pytest.param(*rest, id=name) for name, *rest in _wrong()]
)
def test_what_cannot_be_logged(step: tuple[Any, ...], scalars: dict[str, Any], words: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=words):
        pr.log(*step, **scalars)


def test_without_a_supervisor_the_last_numbers_are_kept(tmp_path: Path) -> None:
    from pyreactant.process.supervised import metrics as supervised

    pr.log(7, loss=np.float32(0.5), n=3)
    assert supervised.last() == (7, {"loss": 0.5, "n": 3})
