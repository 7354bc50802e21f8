"""A killed setup leaves nothing running, and the next setup finishes it."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from tests.setup.conftest import Here

pytestmark = pytest.mark.slow

# PYREACTANT_TEST_EVERY_STEP=1 also kills before each change of a file, which takes minutes.
EVERY_STEP = os.environ.get("PYREACTANT_TEST_EVERY_STEP") == "1"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_every_step(here: Here) -> None:
    """Kill before each file is put in place and before each process starts."""
    step = 0
    while True:
        killed = subprocess.run(
            here.argv(kill_at=step, every_step=EVERY_STEP),
            env=here.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        at = (here.notes / "killed").read_text()
        finished = here.run()
        assert finished["code"] == 0, (at, finished)
        litter = [p for p in here.project.rglob("*") if "partial" in p.name or p.name == "before"]
        assert not litter, at
        shutil.rmtree(here.project)
        shutil.rmtree(here.prefix / "share")
        step += 1
    assert step >= (60 if EVERY_STEP else 9), step
    assert here.run()["ran"] == []


@pytest.mark.parametrize("stage", ["resolve", "precompile"])
def test_killed_while_julia_works(here: Here, stage: str) -> None:
    environment = here.environment(STAND_IN_DELAY="600", STAND_IN_DELAYED=stage)
    setup = subprocess.Popen(
        here.argv(any_version=True), env=environment, stdout=subprocess.DEVNULL
    )
    noted = here.notes / f"{stage}.pid"
    deadline = time.monotonic() + 60
    while not noted.exists() or not noted.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    setup.kill()
    setup.wait()
    worker = int(noted.read_text())
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline, "what Julia started outlived the setup"
        time.sleep(0.02)
    finished = here.run()
    assert finished["code"] == 0, finished
    assert finished["any_version"], "the next setup does what the killed one was asked for"
    assert here.asked().count("resolve") == 2  # juliapkg and Julia know what is installed


def test_files_that_were_cut_short(here: Here) -> None:
    """A kill of Julia truncates the project file and the manifest."""
    project = here.folder / "mine"
    project.mkdir()
    deps = '# mine\n[deps]\nExample = "7876af07-990d-54b4-ab0e-23690620f79a"\n'
    (project / "Project.toml").write_text(deps)
    failed = here.run({"STAND_IN_FAIL": "cut"}, project=str(project))
    assert failed["error"] == "PyReactantError"
    assert (project / "Project.toml").read_text() == ""
    meta = project / "pyjuliapkg" / "meta.json"
    meta.parent.mkdir(exist_ok=True)
    meta.write_text('{"meta_ver')  # juliapkg's file may be truncated too
    finished = here.run(project=str(project))
    assert finished["code"] == 0, finished
    text = (project / "Project.toml").read_text()
    assert text.startswith("# mine")
    assert {"Example", "Reactant"} <= tomllib.loads(text)["deps"].keys()


def test_interrupted(here: Here) -> None:
    """Ctrl-C immediately ends the setup and its child processes."""
    setup = subprocess.Popen(
        here.argv(),
        env=here.environment(STAND_IN_DELAY="600"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    noted = here.notes / "resolve.pid"
    deadline = time.monotonic() + 60
    while not noted.exists() or not noted.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    setup.send_signal(signal.SIGINT)
    setup.communicate(timeout=60)
    status = Path(f"/proc/{int(noted.read_text())}/stat")
    deadline = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while status.read_text().rsplit(")")[-1].split()[0] != "Z":
            assert time.monotonic() < deadline, "it was killed, and may take time to end"
            time.sleep(0.02)
