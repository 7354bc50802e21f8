"""Facts that the processes of a run compare: versions, environment, and the state of git."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.base.facts import SETTINGS, GitState, facts, package_version
from pyreactant.runs.supervisor.cause import Failure, differences
from pyreactant.runs.supervisor.state import ProcessState


def states(*values: dict[str, str]) -> list[ProcessState]:
    return [ProcessState(i, f"host{i}", facts=value) for i, value in enumerate(values)]


def differ(*values: dict[str, str]) -> Failure:
    found = differences(states(*values), 7.0)
    assert found is not None
    assert (found.cause, found.exit_code, found.at) == ("environment", 3, 7.0)
    assert found.summary.endswith(
        "; install the same versions and set the same variables on every machine, or pass "
        "--allow-different-environments"
    )
    return found


def test_facts() -> None:
    found = facts({"XLA_FLAGS": "x" * 2000, "JAX_PLATFORMS": "cpu"})
    assert found["pyreactant"] == pr.__version__
    assert found["numpy"] == np.__version__
    assert found["jax"]
    assert (found["XLA_FLAGS"], found["JAX_PLATFORMS"]) == ("x" * 1000, "cpu")
    assert found["LIBTPU_INIT_ARGS"] == ""
    assert set(SETTINGS) < set(found)


def test_version_of_a_package() -> None:
    assert package_version("numpy") == np.__version__
    assert package_version("no-such-package") is None


@pytest.mark.parametrize("variable", ["PYTHON_JULIACALL_PROJECT", "JULIA_PROJECT"])
def test_the_julia_project_is_a_fact(variable: str, tmp_path: Path) -> None:
    environ = {variable: str(tmp_path)}
    (tmp_path / "Project.toml").write_text("[deps]\n")
    first = facts(environ)["julia project"]
    assert first == facts(environ)["julia project"] != ""
    (tmp_path / "Manifest.toml").write_text("x = 1\n")
    assert facts(environ)["julia project"] != first
    assert facts({})["julia project"] == ""


def test_the_same_everywhere() -> None:
    assert differences(states(*[{"jax": "1", "x": ""}] * 3), 0.0) is None
    assert differences(states({}), 0.0) is None


def test_the_odd_one_is_named_wherever_it_is() -> None:
    for odd in range(3):
        values = [{"jax": "0.12", "numpy": "2"} for _ in range(3)]
        values[odd]["jax"] = "0.11"
        found = differ(*values)
        assert found.process == odd
        assert f"process {odd} on host{odd} has jax 0.11, the other 2 0.12" in found.summary
        assert "numpy" not in found.summary


def test_of_two_process_0_is_right() -> None:
    found = differ({"jax": "1"}, {"jax": "2"})
    assert found.process == 1
    assert "process 1 on host1 has jax 2, the other 1 1" in found.summary


def test_what_one_has_not_at_all() -> None:
    assert "process 2 on host2 has libtpu absent, the other 2 9" in (
        differ({"libtpu": "9"}, {"libtpu": "9"}, {}).summary
    )


def test_several_items_and_processes() -> None:
    usual = {"jax": "1", "XLA_FLAGS": ""}
    found = differ(usual, usual, usual, {"jax": "2", "XLA_FLAGS": ""}, {**usual, "XLA_FLAGS": "-x"})
    assert found.process == 3
    assert "process 3 on host3 has jax 2, the other 4 1; process 4 on host4 has XLA" in (
        found.summary
    )


def test_a_thousand_that_all_differ_are_still_a_sentence() -> None:
    found = differ(*[{"XLA_FLAGS": f"--dump=/{i}/" + "x" * 900} for i in range(1000)])
    assert len(found.summary) < 20_000
    assert "and 991 more differences" in found.summary


def git(folder: Path, *arguments: str | bytes) -> None:
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run(
        ["git", "-C", str(folder), *who, *arguments],
        check=True,
        capture_output=True,
        env={**os.environ, **settings},
    )


def test_git(tmp_path: Path) -> None:
    assert GitState(tmp_path).result() == {}
    git(tmp_path, "init")
    assert GitState(tmp_path).result() == {}  # a repository without a commit
    (tmp_path / "a file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    clean = GitState(tmp_path).result()
    assert len(str(clean["commit"])) == 40
    assert clean["changed_files"] == []
    (tmp_path / "a file").write_text("2")
    (tmp_path / "new").write_text("2")
    assert GitState(tmp_path).result() == {**clean, "changed_files": ['"a file"', "new"]}


def test_git_and_names_that_are_no_text(tmp_path: Path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "x")
    git(tmp_path, "config", "core.quotePath", "false")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).touch()
    assert GitState(tmp_path).result()["changed_files"] == ["\ufffd"]


def test_a_git_that_hangs_does_not_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text('#!/bin/sh\necho $$ > "$2/pid"\n/bin/sleep 1000\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    state = GitState(tmp_path)
    pid = tmp_path / "pid"
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state.result(0.01) == {}
    group = int(pid.read_text())
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return  # the script and its child are gone
        time.sleep(0.01)
    raise AssertionError("git still runs")


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert GitState(Path.cwd()).result() == {}
