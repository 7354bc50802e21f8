"""What all commands have: -q, -v, --json; the help of a command, and colours."""

import json
import os
import re
from pathlib import Path

import pytest
import typer.core

from pyreactant.base import steps
from pyreactant.base.steps import Level
from tests.cli import terminal
from tests.cli.tree import LEAVES, TREE
from tests.harness import pyreactant as run

NO_RESULT = {"help", "jobs logs", "jobs attach", "tpu ssh"}
"""Commands whose output is a text of others."""


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_them(name: str) -> None:
    options = {
        option
        for parameter in LEAVES[name].params
        if isinstance(parameter, typer.core.TyperOption)
        for option in parameter.opts
    }
    assert {"-q", "--quiet", "-v", "--verbose"} <= options
    assert ("--json" in options) == (name not in NO_RESULT)


@pytest.mark.parametrize(
    ("option", "level"), [("-q", Level.QUIET), ("-v", Level.VERBOSE), ("--json", Level.USUAL)]
)
def test_they_set_the_level(
    option: str, level: Level, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(steps, "level", None)
    TREE.main(["topology", "v6e-1", option], standalone_mode=False, prog_name="pyreactant")
    assert steps.level is level
    assert "v6e-1" in capsys.readouterr().out


def test_not_both() -> None:
    done = run("topology", "v6e-1", "-qv")
    assert (done.returncode, done.stderr) == (2, "error: give --quiet or --verbose, not both\n")


def test_steps_of_a_product() -> None:
    done = run("matmul", "--repeat", "2", "-v")
    assert done.returncode == 0, done.stderr
    told = [re.sub(r"^pyreactant: | \(.*", "", line) for line in done.stderr.splitlines()]
    assert told[-5:] == [
        "placing the operands",
        "compiling",
        "multiplying, 1 of 2",
        "multiplying, 2 of 2",
        "checking the product",
    ]


def test_a_traceback_with_verbose() -> None:
    assert "Traceback" in run("topology", "v9z-1", "-v").stderr
    assert "Traceback" not in run("topology", "v9z-1").stderr


def test_a_run_as_json(tmp_path: Path) -> None:
    """Standard output is one document; what the program prints is in the log, and shown."""
    (tmp_path / "train.py").write_text("print('from the program'); raise SystemExit(3)")
    done = run("run", "--json", "-n", "2", "--out", "here", "--", "train.py", folder=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 1
    assert document["folder"] == str(tmp_path / "here")
    assert document["report"]["cause"] == "user"
    assert "[0] from the program" in done.stderr
    assert "from the program" in (tmp_path / "here" / "process-0.log").read_text()
    shown = run("jobs", "status", document["id"], "--json")
    assert json.loads(shown.stdout)["exit_code"] == 1


def test_the_report_of_a_run_as_json_is_its_own(tmp_path: Path) -> None:
    """A job that Slurm starts again has the reports of earlier starts beside it."""
    earlier = tmp_path / "here" / "report.json"
    earlier.parent.mkdir()
    earlier.write_text('{"cause": "timeout"}')
    os.utime(earlier, (2**32, 2**32))
    words = ("run", "--json", "-n", "1", "--out", "here", "--", "python", "-c", "pass")
    done = run(*words, folder=tmp_path, SLURM_RESTART_COUNT="1")
    assert json.loads(done.stdout)["report"]["cause"] == "done", done.stderr


def test_a_run_as_json_that_does_not_start(tmp_path: Path) -> None:
    done = run("run", "--json", "--", "missing.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: the script 'missing.py' does not exist" in done.stderr


def test_the_help_of_a_command() -> None:
    by_name = run("help", "jobs", "clean").stdout
    assert by_name == run("jobs", "clean", "--help").stdout
    assert "--older-than TIME" in by_name
    assert run("help").stdout == run("--help").stdout
    wrong = run("help", "jobs", "cleann")
    assert wrong.returncode == 2
    assert "error: no such command 'cleann'; did you mean 'clean'?" in wrong.stderr


def test_the_version() -> None:
    assert run("-V").stdout == run("--version").stdout
    assert run("-V").stdout.startswith("pyreactant ")


def test_colours_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    red = "\x1b[1;31merror:\x1b[0m no such option"
    assert red in terminal.run(["topology", "--nope"])[1]
    assert "\x1b" not in run("topology", "--nope").stderr
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal.run(["topology", "--nope"])[1]
