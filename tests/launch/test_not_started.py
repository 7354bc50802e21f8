"""Programs that the system does not start, and runs that cannot begin."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.harness import environment, free_port
from tests.launch.runs import RUN, run_local

NOT_STARTED = {
    "no-interpreter": (
        b"#!/nope/x\n",
        "the interpreter in its first line, /nope/x, does not exist",
    ),
    "windows": (b"#!/bin/sh\r\n", "its lines end with a carriage return, as on Windows"),
    "not-run": (
        b"#!/etc/passwd\n",
        "the interpreter in its first line, /etc/passwd, cannot be run",
    ),
    "no-program": (b"text\0\n", "it is neither a program of this system nor a script whose first"),
    "empty": (b"", "it is neither a program of this system nor a script whose first line names"),
    "other-machine": (b"\x7fELF\2\1\1...", "it was built for another kind of machine"),
}


@pytest.mark.parametrize("name", NOT_STARTED)
def test_a_command_that_the_system_does_not_start(tmp_path: Path, name: str) -> None:
    content, why = NOT_STARTED[name]
    (tmp_path / name).write_bytes(content)
    (tmp_path / name).chmod(0o755)
    run = run_local(tmp_path, "-n", "2", "--", f"./{name}")
    assert (run.code, run.report["cause"]) == (3, "environment"), run
    assert f"the system does not start './{name}': {why}" in run.report["summary"]
    assert "Traceback" not in run.finished[0].log


@pytest.mark.parametrize("name", ["no-interpreter", "no-program"])
def test_a_job_whose_command_the_system_does_not_start(tmp_path: Path, name: str) -> None:
    """It was a traceback of ours."""
    content, why = NOT_STARTED[name]
    (tmp_path / name).write_bytes(content)
    (tmp_path / name).chmod(0o755)
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"), PYREACTANT_PLATFORM="cpu")
    words = [sys.executable, "-m", "pyreactant"]
    submitted = harness.run([*words, "run", "--detach", "--", f"./{name}"], cwd=tmp_path, env=env)
    assert submitted.returncode == 0, submitted
    (job,) = json.loads(harness.run([*words, "jobs", "list", "--json"], env=env).stdout)
    attached = harness.run([*words, "jobs", "attach", job["id"]], env=env)
    assert attached.returncode == 3, attached
    assert f"the system does not start './{name}': {why}" in attached.stderr
    said = f"{attached.stdout}{attached.stderr}"
    assert "Traceback" not in said
    assert said.count("does not start") == 2  # the log of process 0, and the end of the job


@pytest.mark.parametrize("code", [126, 127, 3])
def test_a_command_with_such_an_exit_code_of_its_own(tmp_path: Path, code: int) -> None:
    run = run_local(tmp_path, "--", "sh", "-c", f"exit {code}")
    assert (run.code, run.report["cause"]) == (1, "user"), run
    assert f"ended with exit code {code}" in run.report["summary"]


VARIABLES = {
    "PYREACTANT_NUM_CPU_DEVICES=x": "PYREACTANT_NUM_CPU_DEVICES must be a whole number, got 'x'",
    "PYREACTANT_NUM_CPU_DEVICES=0": "PYREACTANT_NUM_CPU_DEVICES must be 1 to 4096, got 0",
    "PYREACTANT_NUM_CPU_DEVICES=1_0": "PYREACTANT_NUM_CPU_DEVICES must be a whole number, got",
    "PYREACTANT_PLATFORM=gpuu": "unknown PYREACTANT_PLATFORM 'gpuu'; known are: cpu, gpu, tpu",
    "PYREACTANT_BACKEND=jx": "unknown PYREACTANT_BACKEND 'jx'; known are: jax, reactant",
    "PYREACTANT_LOCAL_DEVICE_IDS=a": "PYREACTANT_LOCAL_DEVICE_IDS must be whole numbers separated",
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_wrong_variable_is_named_before_anything_starts(tmp_path: Path, variable: str) -> None:
    name, _, value = variable.partition("=")
    run = run_local(tmp_path, "-n", "2", "--", "true", settings={name: value})
    assert run.code == 2, run
    assert f"error: {VARIABLES[variable]}" in run.finished[0].log
    assert not run.folder.exists()


def test_an_option_overrides_a_wrong_variable(tmp_path: Path) -> None:
    settings = {"PYREACTANT_NUM_CPU_DEVICES": "x", "PYREACTANT_PLATFORM": "gpuu"}
    options = ("--platform", "cpu", "--devices-per-process", "2")
    assert run_local(tmp_path, *options, "--", "true", settings=settings).code == 0


CALLED = """
number = 3
class Box: pass
def outer():
    def inner(): pass
"""


@pytest.mark.parametrize("name", ["absent", "inner", "outer.absent"])
def test_a_function_that_the_file_does_not_define(tmp_path: Path, name: str) -> None:
    (tmp_path / "called.py").write_text(CALLED)
    run = run_local(tmp_path, "-n", "2", "--", f"called.py:{name}")
    assert run.code == 2, run
    assert "Traceback" not in run.finished[0].log
    if "." in name:  # only the import of the file shows it
        assert "the file has no 'absent'; name a function that it has" in run.report["summary"]
        return
    said = f"error: called.py defines no {name}; it has Box, outer\n"
    assert run.finished[0].log.endswith(said)
    assert not run.folder.exists()


def test_a_function_of_which_a_call_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("async def main():\n    print('here')\n")
    run = run_local(tmp_path, "--", "waits.py:main")
    assert run.code == 2, run
    assert "waits.py:main is async or a generator, so calling it runs nothing" in str(run.finished)


def test_a_name_that_is_no_function(tmp_path: Path) -> None:
    (tmp_path / "called.py").write_text(CALLED)
    run = run_local(tmp_path, "--", "called.py:number")
    assert run.code == 2, run
    assert "called.py:number must be a function, got 3; name a function" in run.report["summary"]
    assert "Traceback" not in run.finished[0].log


def test_a_process_that_never_joins_names_no_folder(tmp_path: Path) -> None:
    """It has none of its own, and cannot know that of process 0."""
    settings = {
        "PYREACTANT_NUM_PROCESSES": "2",
        "PYREACTANT_PROCESS_INDEX": "1",
        "PYREACTANT_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
    }
    argv = [*RUN, "--start-timeout", "1", "--", "true"]
    env = environment(**settings)
    ran = harness.run(argv, env=env, cwd=tmp_path)
    assert ran.returncode == 4, ran
    assert ran.stderr.rstrip().endswith(": did not join")
    assert "logs and report" not in ran.stderr
    assert not list(tmp_path.iterdir())


def test_no_loopback(tmp_path: Path) -> None:
    """Processes of one machine meet there; otherwise they would wait for a minute."""
    apart = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system allows no namespaces")
    ran = harness.run(
        [*apart, *RUN, "-n", "2", "--", "true"],
        env=environment(PYREACTANT_PLATFORM="cpu"),
        cwd=tmp_path,
    )
    assert ran.returncode == 3, ran
    assert "need its loopback network, but it has neither 127.0.0.1 nor ::1; run: ip" in ran.stderr
