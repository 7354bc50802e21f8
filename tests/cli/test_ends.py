"""How commands end when nobody reads their output, and after Ctrl-C: with one exit code each."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import harness
from tests.harness import environment

PYREACTANT = [sys.executable, "-m", "pyreactant"]


@pytest.mark.parametrize(
    "line", ["--help", "run --help", "crosscheck --list", "jobs list", "topology --all", "explain"]
)
def test_a_closed_pipe(line: str, tmp_path: Path) -> None:
    """As after `| head`: no word, and the code that --help lists."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [*PYREACTANT, *line.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(XDG_STATE_HOME=str(tmp_path)),
    )
    os.close(writer)
    _, message = process.communicate(timeout=60)
    assert (process.returncode, message) == (141, "")


def in_a_shell(before: str, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command line behind `before`, of which `"$@"` is replaced by the command."""
    return harness.run(
        ["sh", "-c", before, "sh", *PYREACTANT, *line.split()],
        env=environment(XDG_STATE_HOME=str(folder)),
        cwd=folder,
    )


@pytest.mark.parametrize(
    ("line", "code"), [("topology v6e-4", 0), ("topology v6e-4 --slices 0", 2)]
)
def test_closed_streams(line: str, code: int, tmp_path: Path) -> None:
    assert in_a_shell('exec "$@" <&- >&- 2>&-', line, tmp_path).returncode == code
    told = in_a_shell('exec "$@" <&- >&-', line, tmp_path)
    assert (told.returncode, told.stdout, bool(told.stderr)) == (code, "", code != 0)


def test_a_removed_folder(tmp_path: Path) -> None:
    gone = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    ran = in_a_shell(gone, "run -- ls", tmp_path)
    assert ran.returncode == 2
    assert (
        ran.stderr == "error: the current folder does not exist any more; change to another one\n"
    )


@pytest.mark.parametrize(
    ("tool", "line"),
    [("sbatch", "crosscheck --on slurm --nodes 1"), ("julia", "setup --offline --julia {tool}")],
)
def test_ctrl_c(tool: str, line: str, tmp_path: Path) -> None:
    """While it waits for a tool, as sent by a terminal: to all processes."""
    path = tmp_path / tool
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec sleep 60\n")
    path.chmod(0o755)
    settings = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [*PYREACTANT, *line.format(tool=path).split()],
        env=environment(**settings),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, message = process.communicate(timeout=60)
    assert (process.returncode, output, message) == (130, "", "interrupted\n")
