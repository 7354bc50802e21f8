"""Ctrl-C in `preflight` and `plan`, and while a command ends."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pyreactant.cli.app import app
from tests.harness import environment
from tests.pages.samples import preflight

RUN = "import os, signal, sys; import pyreactant.cli.app as m; sys.argv[1:] = ['topology', 'v6e-4']"


@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("m.flush_output = lambda: os.kill(os.getpid(), signal.SIGINT)", 130),
        ("import atexit; atexit.register(os.kill, os.getpid(), signal.SIGINT)", 0),
    ],
    ids=["before all is written", "after it"],
)
def test_while_the_process_ends(when: str, code: int) -> None:
    argv = [sys.executable, "-c", f"{RUN}; {when}; m.main()"]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "KeyboardInterrupt" not in ran.stderr


def interrupted(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_before_the_first_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyreactant.fit.plan.plan.plan", interrupted)
    done = CliRunner().invoke(app, ["plan", "--topology", "v6e-4", "--size", "64"])
    assert done.exit_code == 130
    assert "interrupted: compilations that finished are kept in " in done.stderr
    done = CliRunner().invoke(app, ["plan", "--platform", "cpu", "--size", "64"])
    assert done.exit_code == 130
    assert done.stderr == "interrupted: nothing is kept\n"


def test_one_of_two_programs_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = [preflight()]
    monkeypatch.setattr(
        "pyreactant.fit.preflight.preflight.preflight",
        lambda *a, **b: finished.pop() if finished else interrupted(),
    )
    done = CliRunner().invoke(app, ["preflight", "--topology", "v6e-4", "--size", "64", "--diff"])
    assert done.exit_code == 130
    assert "preflight of " in done.stdout
    assert "interrupted: compilations that finished are kept in " in done.stderr
