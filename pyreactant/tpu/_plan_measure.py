"""What a layout takes on devices that are here: measured, not estimated."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from .._errors import RequirementError
from ._plan_layout import Layout
from ._plan_machine import Machine
from ._plan_report import Candidate

_LINES = 20
_running: set["subprocess.Popen[str]"] = set()


def measured(
    layout: Layout,
    machine: Machine,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    precision: str | None,
    *,
    timeout: float,
    reference: bool = False,
) -> Candidate:
    """Multiply once with a layout, in a process of its own, and take the median of five calls.

    The product is checked, as `pyreactant matmul` does: a wrong one has no time.

    Raises:
        RequirementError: The platform, or so many devices, are not here.
    """
    candidate = Candidate(
        layout=layout,
        bytes_per_device=layout.memory_bytes,
        sent_bytes=layout.received_bytes,
        reference=reference,
    )
    (m, k), (_, n) = shapes
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        argv = [
            sys.executable,
            "-m",
            "pyreactant",
            "matmul",
            "--m",
            f"{m}",
            "--k",
            f"{k}",
            "--n",
            f"{n}",
            "--dtype",
            dtype,
            "--platform",
            machine.platform,
            "--report",
            str(report),
            *candidate.flags(),
        ]
        argv += ["--cpu-devices", f"{machine.devices}"] if machine.platform == "cpu" else []
        argv += ["--precision", precision] if precision else []
        try:
            ran = _run(argv, timeout)
        except subprocess.TimeoutExpired:
            return _failed(candidate, f"not done after {timeout:g} s")
        if ran.returncode == RequirementError.exit_code:
            raise RequirementError(_last(ran.stderr).removeprefix("error: "))
        if ran.returncode != 0 or not report.exists():
            return _failed(candidate, _last(ran.stderr) or f"exit code {ran.returncode}")
        seconds = json.loads(report.read_text())["seconds"]
    return Candidate(
        layout=layout,
        seconds=statistics.median(seconds),
        bytes_per_device=layout.memory_bytes,
        sent_bytes=layout.received_bytes,
        reference=reference,
    )


def _run(argv: list[str], timeout: float) -> "subprocess.CompletedProcess[str]":
    child = subprocess.Popen(  # noqa: S603 - our own module, by this Python
        argv,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _running.add(child)
    try:
        _, said = child.communicate(timeout=timeout)
    finally:
        child.kill()
        child.wait()
        _running.discard(child)
    return subprocess.CompletedProcess(argv, child.returncode, stderr=said)


def end_running() -> None:
    """Kill what still runs: nobody waits for it any more."""
    for child in list(_running):
        child.kill()


def _failed(candidate: Candidate, why: str) -> Candidate:
    return Candidate(
        layout=candidate.layout, fits=False, trouble=why, reference=candidate.reference
    )


def _last(text: str) -> str:
    """What a command said last: its error, without what the runtime printed before it."""
    lines = text.splitlines()[-_LINES:]
    errors = [i for i, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] :] if errors else lines)


def _environment() -> dict[str, str]:
    """This environment without what would make the child one of several processes of a run."""
    launchers = ("PYREACTANT_", "SLURM_", "OMPI_", "PMI", "PRTE_")
    return {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
