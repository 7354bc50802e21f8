"""Programs that the system does not start, and runs that cannot begin."""

from pathlib import Path

import pytest

from tests.launch.runs import run_local

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


@pytest.mark.parametrize("code", [126, 127, 3])
def test_a_command_with_such_an_exit_code_of_its_own(tmp_path: Path, code: int) -> None:
    run = run_local(tmp_path, "--", "sh", "-c", f"exit {code}")
    assert (run.code, run.report["cause"]) == (1, "user"), run
    assert f"ended with exit code {code}" in run.report["summary"]
