"""Profiles of steps: what is recorded, and what is said of the rest."""

from pathlib import Path

import jax
import pytest

import pyreactant as pr
from pyreactant.process.events import Profiled
from pyreactant.process.supervised.profiling import Planned, Steps, steps_of

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize(("text", "steps"), [("20:5", Steps(20, 5)), ("0:1", Steps(0, 1))])
def test_steps(text: str, steps: Steps) -> None:
    assert steps_of(text) == steps
    assert str(steps) == text


@pytest.mark.parametrize("text", ["", "20", "20:", ":5", "20:0", "-1:5", "a:5", "1:2:3", "1:²"])
def test_texts_that_name_no_steps(text: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match="--profile must be STEP:COUNT, such as 20:5"):
        steps_of(text)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def told() -> list[Profiled]:
    return []


def planned(folder: Path, told: list[Profiled], text: str = "2:2") -> Planned:
    return Planned(steps_of(text), folder, told.append)


def test_a_block_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYREACTANT_PROCESS_INDEX", "3")
    for _ in range(2):
        with pr.profile(tmp_path):
            jax.jit(lambda x: x + 1)(1.0)
    found = files(tmp_path)
    assert len(found) == 4
    for path in found[1::2]:
        assert path.startswith("plugins/profile/")
        assert path.endswith("-process-3.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(tmp_path / path)).planes
        assert "Task Environment" in [plane.name for plane in planes]


def test_a_profile_in_a_profile_is_refused(tmp_path: Path) -> None:
    second = pr.profile(tmp_path / "b")
    with pr.profile(tmp_path / "a"), pytest.raises(pr.StateError, match="no second profile"):
        second.__enter__()
    assert len(files(tmp_path / "a")) == 2
    assert files(tmp_path / "b") == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(pr.FileError, match="cannot be written"), pr.profile(tmp_path / "file"):
        pass


def test_the_exception_of_the_block_is_kept(tmp_path: Path) -> None:
    def fails() -> None:
        with pr.profile(tmp_path):
            jax.profiler.stop_trace()  # so that there is nothing to write at the end
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        fails()
    (note,) = caught.value.__notes__
    assert note.startswith("the profile of the block is missing: ")


def test_the_steps_are_recorded(tmp_path: Path, told: list[Profiled]) -> None:
    plan = planned(tmp_path, told)
    for step in range(6):
        plan.step(step)
        assert len(told) == (0 if step < 2 else 1 if step < 4 else 2)
    plan.end()
    assert told[0] == Profiled("", "the process ended while it recorded")
    assert told[1].note == ""
    assert told[1].began_ns > 0
    assert Path(told[1].file).parent == tmp_path / "plugins" / "profile" / "steps-2"
    assert len(files(tmp_path)) == 3  # with the collectives


def test_a_program_that_ends_while_it_is_recorded(tmp_path: Path, told: list[Profiled]) -> None:
    plan = planned(tmp_path, told)
    plan.step(3)
    plan.end()
    assert told[1].note == "it ends at step 3, with the program"
    assert Path(told[1].file).exists()


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        ([], "no step was counted: the program calls none of pr.log, pr.reached_preemption and"),
        ([0, 1], "step 2 was not reached; the last one was 1"),
        ([0, 7], "the program did not begin one of the steps 2:2; its first one from there was 7"),
    ],
)
def test_steps_that_are_never_begun(
    tmp_path: Path, told: list[Profiled], steps: list[int], note: str
) -> None:
    plan = planned(tmp_path, told)
    for step in steps:
        plan.step(step)
    plan.end()
    plan.end()
    (only,) = told
    assert only.file == ""
    assert only.note.startswith(note)


def test_a_program_that_begins_its_own(tmp_path: Path, told: list[Profiled]) -> None:
    start = jax.profiler.start_trace
    plan = planned(tmp_path / "ours", told)
    plan.step(2)
    with jax.profiler.trace(tmp_path / "own"):
        pass
    plan.step(3)
    plan.end()
    assert told[1].note == "it ends at step 2, where the program began a profile of its own"
    assert (len(files(tmp_path / "ours")), len(files(tmp_path / "own"))) == (3, 2)
    assert jax.profiler.start_trace is start


def test_a_program_that_is_in_its_own(tmp_path: Path, told: list[Profiled]) -> None:
    plan = planned(tmp_path / "ours", told)
    with jax.profiler.trace(tmp_path / "own"):
        for step in range(5):
            plan.step(step)
    plan.end()
    (only,) = told
    assert only.note.startswith("JAX records no second profile: ")
    assert len(files(tmp_path / "own")) == 2


def test_a_jax_whose_profiles_cannot_be_read(
    tmp_path: Path, told: list[Profiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(jax.profiler, "ProfileData")
    plan = planned(tmp_path, told)
    plan.step(2)
    plan.step(4)
    assert told[1].note.startswith("without its collectives (AttributeError: ")
    assert (Path(told[1].file).exists(), told[1].began_ns) == (True, 0)


def test_full_disk(tmp_path: Path, told: list[Profiled], monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA raises an error of its own; the program goes on."""
    stop = jax.profiler.stop_trace

    def fails() -> None:
        stop()
        raise RuntimeError("RESOURCE_EXHAUSTED: No space left on device")

    plan = planned(tmp_path, told)
    plan.step(2)
    monkeypatch.setattr(jax.profiler, "stop_trace", fails)
    plan.step(4)
    why = "JAX did not write the profile: RESOURCE_EXHAUSTED: No space left on device"
    assert told[1] == Profiled("", why)
    assert files(tmp_path) == []
