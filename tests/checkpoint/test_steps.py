"""A folder of steps: what counts, who writes it, what is deleted, and what a failure leaves."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.checkpoint import steps
from pyreactant.arrays.checkpoint import write as writing
from pyreactant.arrays.checkpoint.commit import writer_of
from pyreactant.arrays.checkpoint.folder import list_steps, steps_in
from pyreactant.arrays.checkpoint.inspect import verify
from tests import harness
from tests.checkpoint.loops import fill, loops, tree

pytestmark = pytest.mark.usefixtures("backend")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_the_latest_step_that_is_there_now(tmp_path: Path) -> None:
    with pr.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(like=tree(0)) is None
        for step in (3, 7):
            assert checkpoints.save(step, tree(step))
        assert checkpoints.restore()["step"] == 7  # it was being written
        writer_of(tmp_path).delete(tmp_path / "7")
        assert checkpoints.restore()["step"] == 3
    (tmp_path / "9.orbax-checkpoint-tmp").mkdir()
    (tmp_path / "11").mkdir()
    with pr.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(like={"step": 0}) == {"step": 3}
    assert names(tmp_path) == ["11", "3", "9.orbax-checkpoint-tmp"]


def test_only_as_many_as_asked_for_stay(tmp_path: Path) -> None:
    fill(tmp_path, range(5), keep=2)
    assert names(tmp_path) == ["3", "4"]
    fill(tmp_path, range(5, 20), keep=1, every_steps=7)
    assert names(tmp_path) == ["14"]


def test_a_step_is_deleted_only_after_a_newer_one_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, [1])
    write = steps.write

    def damages(agreement: Any, writer: Any, target: Path, *rest: Any, **more: Any) -> None:
        write(agreement, writer, target, *rest, **more)
        for file in (target / "state").glob("ocdbt.process_0/d/*"):
            file.write_bytes(bytes(file.stat().st_size))

    monkeypatch.setattr(steps, "write", damages)
    with pytest.raises(pr.MismatchError, match=r"2/state: the checkpoint is damaged: array w"):
        fill(tmp_path, [2], keep=1)
    assert names(tmp_path) == ["1", "2"]


def test_after_an_older_step_the_newer_ones_are_moved_away(tmp_path: Path) -> None:
    fill(tmp_path, [1, 2, 3])
    with pr.Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(pr.FileError, match="has no step 4, but 1, 2, 3"):
            checkpoints.restore(step=4)
        with pytest.raises(pr.InvalidArgumentError, match="a whole number from 0, got '1'"):
            checkpoints.restore(step="1")
        assert checkpoints.restore(step=1)["step"] == 1
        assert names(tmp_path) == ["1", "2", "3"]
        checkpoints.save(2, tree(20))
    assert names(tmp_path) == ["1", "2", "2.superseded", "3.superseded"]
    assert pr.restore(tmp_path / "2")["step"] == 20


def test_a_step_is_greater_than_the_last(tmp_path: Path) -> None:
    fill(tmp_path, [5])
    with pr.Checkpoints(tmp_path) as checkpoints:
        for step in (5, 4):
            with pytest.raises(pr.InvalidArgumentError, match=f"greater than 5, .*, got {step};"):
                checkpoints.save(step, tree(step))
        wrong: Any
        for wrong in ("x", -1):  # a folder -1 would never be found again
            with pytest.raises(pr.InvalidArgumentError, match=f"number from 0, got {wrong!r}"):
                checkpoints.save(wrong, tree(1))
        assert checkpoints.save(np.int64(6), tree(6))
    assert names(tmp_path) == ["5", "6"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": 0}, "keep must be a whole number from 1, or None, got 0"),
        ({"every_steps": 2.5}, "every_steps must be a whole number from 1, or None, got 2.5"),
        ({"every_seconds": -1}, "every_seconds must be a positive number, got -1"),
        ({"every_seconds": "5"}, "every_seconds must be a positive number, got '5'"),
        ({"every_seconds": True}, "every_seconds must be a positive number, got True"),
        ({"keep": True}, "keep must be a whole number from 1, or None, got True"),
        ({"every_steps": True}, "every_steps must be a whole number from 1, or None, got True"),
        ({"item": "a/b"}, "item must be a name such as \"state\", got 'a/b'"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        pr.Checkpoints(tmp_path, **options)
    assert words in str(caught.value)


def test_it_is_used_in_a_with_statement(tmp_path: Path) -> None:
    checkpoints = pr.Checkpoints(tmp_path)
    with pytest.raises(pr.StateError, match="use them in a with statement"):
        checkpoints.save(1, tree(1))
    with pytest.raises(pr.StateError, match="use them in a with statement"):
        checkpoints.restore()


@pytest.mark.only("jax")
def test_a_donated_array_is_saved_as_it_was(tmp_path: Path) -> None:
    import jax

    sharding = pr.NamedSharding(pr.Mesh((8,), ("d",)), ("d",))
    add = jax.jit(lambda w: w + 1, donate_argnums=0)
    ours = pr.compile(lambda w: w + 1, pr.Aval((1 << 20,), np.dtype("float32"), sharding), donate=0)
    w = jax.device_put(np.zeros(1 << 20, np.float32), sharding.to_jax())
    v = pr.device_put(np.zeros(1 << 20, np.float32), sharding)
    with pr.Checkpoints(tmp_path) as checkpoints:
        for step in range(4):
            checkpoints.save(step, {"w": w, "v": v})
            for _ in range(3):
                w, v = add(w), ours(v)
    for step in range(4):
        found = pr.restore(tmp_path / str(step))
        assert set(found["w"].tolist()) == set(found["v"].tolist()) == {3.0 * step}


def test_time_is_what_process_0_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    saved = []
    with pr.Checkpoints(tmp_path, every_seconds=10) as checkpoints:
        for step in range(100):
            now[0] += 0.25
            if checkpoints.save(step, tree(step), now=step == 77):
                saved.append(step)
            checkpoints._finish()
    assert saved == [39, 77]
    with pr.Checkpoints(tmp_path / "never", every_seconds=float("inf")) as checkpoints:
        assert not any(checkpoints.save(step, tree(step)) for step in range(3))


def test_a_failure_is_raised_at_the_next_save_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise pr.FileError("no room")

    monkeypatch.setattr(steps, "write", fails)
    with pr.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree(1))
        with pytest.raises(pr.FileError, match="no room"):
            checkpoints.save(2, tree(2))
    with pytest.raises(pr.FileError, match="no room"), pr.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, tree(1))
    # The error of the loop itself is the one that its user sees.
    with pytest.raises(pr.InvalidArgumentError, match="step must be a whole number"):
        fill(tmp_path, [1, [2]])
    monkeypatch.undo()
    with checkpoints:  # a failure of the with statement before is none of this one
        assert checkpoints.restore() is None
    fill(tmp_path, [1])  # nobody holds the folder
    assert names(tmp_path) == ["1"]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Any]:
    with loops(tmp_path, size=10**6) as start:
        yield start


@pytest.mark.only("jax")
def test_another_run_writes_the_folder(tmp_path: Path, loop: Any) -> None:
    other = loop(waits=True)
    with pytest.raises(pr.FileError) as caught:
        fill(tmp_path, [5])
    host = os.uname().nodename
    assert f"is written by another run (process {other.pid} on {host}, since" in str(caught.value)
    assert pr.restore(tmp_path / "1")["step"] == 1  # whoever reads needs no lock
    with pr.Checkpoints(tmp_path / "other") as checkpoints:
        with pytest.raises(pr.FileError, match="by this process already"):
            fill(tmp_path / "other", [5])
        checkpoints.save(1, tree(1))
    other.send_signal(signal.SIGKILL)
    other.wait()
    fill(tmp_path, [50])
    assert names(tmp_path)[-2:] == ["50", "other"]


@pytest.mark.only("jax")
def test_a_killed_writer_leaves_whole_steps(tmp_path: Path, loop: Any) -> None:
    for _ in range(2):
        other = loop()
        harness.until(lambda: len(names(tmp_path)) >= 8)
        other.send_signal(signal.SIGKILL)
        other.wait()
        for step in steps_in(tmp_path):
            found = pr.restore(tmp_path / str(step))
            assert found["step"] == step
            assert set(found["w"].tolist()) == {step}
        latest = steps_in(tmp_path)[-1]
        with pr.Checkpoints(tmp_path) as checkpoints:
            assert checkpoints.restore()["step"] == latest
        assert all(name.isdigit() for name in names(tmp_path))
        for step in steps_in(tmp_path):
            writer_of(tmp_path).delete(tmp_path / str(step))


def command(*words: str) -> Any:
    done = harness.run([sys.executable, "-m", "pyreactant", "checkpoints", *words])
    return done.returncode, done.stdout, done.stderr


def test_the_commands(tmp_path: Path) -> None:
    fill(tmp_path, [1, 20])
    code, out, _ = command("list", str(tmp_path))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["1", "20"]
    listed = json.loads(command("list", str(tmp_path), "--json")[1])
    assert [(row["step"], row["leaves"]) for row in listed] == [(1, 2), (20, 2)]
    with pr.Checkpoints(tmp_path / "one") as checkpoints:
        checkpoints.save(1, {"w": tree(0)["w"]})
    assert command("list", str(tmp_path / "one"))[1].endswith("  1 leaf\n")
    metadata = tmp_path / "20" / "state" / "_METADATA"
    text = metadata.read_bytes()
    metadata.write_bytes(b"")
    listed = json.loads(command("list", str(tmp_path), "--json")[1])
    assert [row["leaves"] for row in listed] == [2, None]
    metadata.write_bytes(text)
    code, out, _ = command("show", str(tmp_path / "20"))
    assert code == 0
    assert out.splitlines() == [
        "['step']  int64[] in chunks of []",
        "['w']  float32[1000] in chunks of [1000]",
        "2 leaves, 4.0 kB, with checksums",
    ]
    code, out, err = command("verify", str(tmp_path))
    assert (code, err, out.count("whole, 4.0 kB")) == (0, "", 2)
    for file in (tmp_path / "1" / "state").glob("ocdbt.process_0/d/*"):
        file.write_bytes(bytes(file.stat().st_size))
    code, out, err = command("verify", str(tmp_path))
    assert code == 5
    assert "1/state: the checkpoint is damaged: array w, block [0:1000]: " in out
    assert "1 damaged; restore another step" in err
    for words in (("list", str(tmp_path / "1")), ("show", str(tmp_path)), ("verify", "absent")):
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert "checkpoint" in err


def test_a_list_of_steps_does_not_wait_for_numpy(tmp_path: Path) -> None:
    fill(tmp_path, [1])
    argv = [sys.executable, "-X", "importtime", "-m", "pyreactant", "checkpoints", "list"]
    done = harness.run([*argv, str(tmp_path)])
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyreactant.arrays.checkpoint.folder" in imported
    assert not {"numpy", "tensorstore", "jax"} & imported


def test_steps_of_another_tool_with_zeros_before_them(tmp_path: Path) -> None:
    """The commands read them; a loop, which would not find them again, refuses them."""
    pr.save(tmp_path / "00000005", {"n": 5})
    assert [step.number for step in list_steps(tmp_path)] == [5]
    assert [verdict.damage for verdict in verify(tmp_path)] == [""]
    with (
        pytest.raises(pr.FileError, match="steps without leading zeros, got '00000005'"),
        pr.Checkpoints(tmp_path),
    ):
        pass


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "3" / "other").mkdir(parents=True)
    with (
        pr.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(pr.FileError, match="3 exists and is no whole step; move it away"),
    ):
        checkpoints.save(3, {"n": 3})


def test_an_error_of_the_loop_does_not_hide_that_a_step_was_not_saved(tmp_path: Path) -> None:
    def loop() -> None:
        with pr.Checkpoints(tmp_path / "run") as checkpoints:
            (tmp_path / "run").rename(tmp_path / "gone")
            checkpoints.save(1, {"n": 1})
            raise KeyError("of the loop")

    with pytest.raises((KeyError, pr.FileError)) as caught:
        loop()
    said = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("run" in words for words in said), said


def test_ctrl_c_while_a_save_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that is being written becomes whole, and the folder stays locked until then."""
    going_on, waits = writing.write_arrays, threading.Event()

    def slow(*args: Any, **options: Any) -> Any:
        waits.wait()
        return going_on(*args, **options)

    monkeypatch.setattr(writing, "write_arrays", slow)
    timers = [
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)),
        threading.Timer(1.5, waits.set),
    ]

    def loop() -> None:
        with pr.Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, {"n": 1})
            for timer in timers:
                timer.start()
            checkpoints.save(2, {"n": 2})

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".pyreactant-writer", "1"]
