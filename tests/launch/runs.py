"""Supervised runs as real processes, and their reports."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import Finished, environment, free_port, spawn

RUN = (sys.executable, "-m", "pyreactant", "run")
FAULTY = str(Path(__file__).with_name("faulty.py"))


@dataclass(frozen=True)
class Run:
    """Exit codes of the supervisors, and the report."""

    finished: Sequence[Finished]
    folder: Path

    def __post_init__(self) -> None:
        for (
            process
        ) in self.finished:  # programs may raise; supervisors report errors without a traceback
            assert "pyreactant/runs/supervisor/" not in process.log, self

    @property
    def code(self) -> int | None:
        return self.finished[0].code

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "report.json").read_text())

    def log(self, process: int) -> bytes:
        return (self.folder / f"process-{process}.log").read_bytes()

    def __str__(self) -> str:
        return "\n".join(
            f"--- supervisor {i}: exit {f.code}\n{f.log}" for i, f in enumerate(self.finished)
        )


def run_local(
    folder: Path,
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    timeout: float = 90,
) -> Run:
    """Run ``pyreactant run ARGUMENTS`` on this machine's CPU."""
    out = folder / "run"
    settings = {
        "PYREACTANT_PLATFORM": "cpu",
        "FAULT_EVENT": str(folder / "event"),
        **(settings or {}),
    }
    argv = [*RUN, "--out", str(out), *arguments]
    return Run(spawn([argv], [environment(**settings)], folder, timeout), out)


def task_environments(
    folder: Path, count: int, settings: Sequence[Mapping[str, str]] | None = None
) -> list[dict[str, str]]:
    """Environments of the tasks of a launcher that only sets PYREACTANT_*."""
    address = f"127.0.0.1:{free_port()}"
    return [
        environment(
            **{
                "PYREACTANT_PLATFORM": "cpu",
                "PYREACTANT_NUM_PROCESSES": str(count),
                "PYREACTANT_PROCESS_INDEX": str(index),
                "PYREACTANT_COORDINATOR_ADDRESS": address,
                "PYREACTANT_SECRET": "0123456789abcdef0123456789abcdef",
                "FAULT_EVENT": str(folder / "event"),
                **(settings[index] if settings else {}),
            }
        )
        for index in range(count)
    ]


def run_tasks(
    folder: Path,
    *arguments: str,
    count: int = 2,
    settings: Sequence[Mapping[str, str]] | None = None,
    started: Sequence[int] | None = None,
    timeout: float = 90,
) -> Run:
    """Start ``pyreactant run ARGUMENTS`` once per process, as srun or ssh would."""
    out = folder / "run"
    environments = task_environments(folder, count, settings)
    chosen = range(count) if started is None else started
    argv = [*RUN, "--out", str(out), *arguments]
    chosen_ones = [environments[i] for i in chosen]
    argvs = [argv] * len(chosen)
    return Run(spawn(argvs, chosen_ones, folder, timeout), out)


def left_behind(folder: Path) -> list[str]:
    """Processes that still run with this folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                int(entry.name) != os.getpid()
                and f"FAULT_EVENT={folder}".encode() in (entry / "environ").read_bytes()
            ):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def script(folder: Path, text: str) -> str:
    """Write a script with this text."""
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def run_script(
    folder: Path, text: str, *options: str, arguments: Sequence[str] = (), **settings: str
) -> Run:
    """Run ``pyreactant run OPTIONS -- script.py ARGUMENTS`` on this machine."""
    return run_local(folder, *options, "--", script(folder, text), *arguments, settings=settings)


def popen(folder: Path, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
    """Start a run that can receive signals; the caller ends it."""
    return subprocess.Popen(
        [*RUN, "--out", str(folder / "run"), *arguments],
        cwd=folder,
        text=True,
        env=environment(PYREACTANT_PLATFORM="cpu", FAULT_EVENT=str(folder / "event"), **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


READY = """
import os, signal, sys, time
from pathlib import Path

index = os.environ["PYREACTANT_PROCESS_INDEX"]

def ready():
    Path(f"pid-{index}.new").write_text(str(os.getpid()))
    Path(f"pid-{index}.new").rename(f"pid-{index}")
"""
"""How a script begins whose processes say when they are ready for what is done to them."""


def until(condition: Callable[[], object], *runs: "subprocess.Popen[Any]") -> None:
    """Wait for a condition while all these processes run."""
    deadline = time.monotonic() + 60
    while not condition():
        for run in runs:
            assert run.poll() is None, f"a supervisor has ended with exit code {run.returncode}"
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.02)


@contextmanager
def running(
    folder: Path, text: str, *options: str, processes: int = 2, arguments: Sequence[str] = ()
) -> Iterator["subprocess.Popen[str]"]:
    """A local run; yields when all its programs, which begin with `READY`, are ready."""
    program = script(folder, READY + text)
    with popen(folder, "-n", str(processes), *options, "--", program, *arguments) as run:
        try:
            until(lambda: len(list(folder.glob("pid-?"))) == processes, run)
            yield run
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)


@contextmanager
def running_tasks(
    argvs: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]], folder: Path
) -> Iterator[Sequence["subprocess.Popen[bytes]"]]:
    """The same with one supervisor per process."""
    found = [
        subprocess.Popen(
            argv, cwd=folder, env=settings, stdin=subprocess.DEVNULL, start_new_session=True
        )
        for argv, settings in zip(argvs, environments, strict=True)
    ]
    try:
        until(lambda: len(list(folder.glob("pid-?"))) == len(argvs), *found)
        yield found
    finally:
        for supervisor in found:
            if supervisor.poll() is None:
                os.killpg(supervisor.pid, signal.SIGKILL)
            supervisor.wait()


def pid(folder: Path, process: int) -> int:
    """Process id of the program of a ready process."""
    return int((folder / f"pid-{process}").read_text())


def ended(run: "subprocess.Popen[str]", folder: Path) -> tuple[int, dict[str, Any]]:
    """Wait for the end of a run without leftovers; return its exit code and report."""
    run.communicate(timeout=60)
    assert not left_behind(folder)
    return run.returncode, Run([], folder / "run").report
