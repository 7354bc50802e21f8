"""One real sharded product on a runtime, supervised, against the float64 product."""

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

from ._check import Found
from ._children import Child
from ._julia import NOT_REAL, is_real, place_of, version_in
from ._machine import Machine
from ._runtimes import TITLES

SIZE = 256
BEYOND = 15.0
"""Seconds for the supervisor, beyond its own limit, to end and say what broke."""


def product(machine: Machine, backend: str, processes: int, seconds: float) -> Found:
    """Multiply on one process and the best platform, or on two processes on the CPU.

    Args:
        machine: Where.
        backend: Which runtime.
        processes: 1 or 2.
        seconds: Within which it must be done.
    """
    with tempfile.TemporaryDirectory(prefix="pyreactant-doctor-") as folder:
        arguments = [
            "-m",
            "pyreactant",
            "run",
            "--processes",
            str(processes),
            "--quiet",
            "--folder",
            f"{folder}/run",
            "--timeout",
            f"{seconds:g}",
            "--grace",
            "2",
            *(("--devices-per-process", "2", "--platform", "cpu") if processes > 1 else ()),
            "--",
            "-m",
            "pyreactant",
            "matmul",
            "--backend",
            backend,
            "--size",
            str(SIZE),
            "--repeat",
            "1",
            "--report",
            f"{folder}/product.json",
        ]
        with Child(machine, arguments, seconds + BEYOND, {}, Path(folder)) as child:
            answer = child.answer()
        if answer.code == 0:
            return _done(machine, backend, _json(Path(folder, "product.json")))
        report = _json(Path(folder, "run", "report.json"))
    again = ["pyreactant", "run", "--processes", str(processes)]
    again += ["--devices-per-process", "2", "--platform", "cpu"] if processes > 1 else []
    again += ["--", "-m", "pyreactant", "matmul", "--backend", backend, "--size", str(SIZE)]
    if answer.code is None:
        text = f"it was not done within {seconds:g} s and was ended"
        return Found("fail", f"{TITLES[backend]}: {text}", shlex.join(again))
    lines = answer.log.strip().splitlines() or ["it said nothing"]
    why = " ".join(str(report.get("summary") or lines[-1]).split())
    return Found("fail", f"{TITLES[backend]}: {why[:600]}", shlex.join(again))


def _done(machine: Machine, backend: str, report: dict[str, Any]) -> Found:
    check, count = report["check"], report["num_processes"]
    mesh = " x ".join(map(str, report["mesh"]["shape"]))
    text = (
        f"{_runtime(machine, backend, report)} on {report['platform']}: {SIZE} x {SIZE} "
        f"{report['dtype']} over a {mesh} mesh of {count} process{'es' if count > 1 else ''} is "
        f"right: error {check['error']:.1e}, {check['tolerance']:.1e} allowed ({check['method']})"
    )
    return Found("pass", text)


def _runtime(machine: Machine, backend: str, report: dict[str, Any]) -> str:
    """The runtime and its version; of Reactant, whether it is the real one."""
    if backend == "jax":
        return f"jax {report['versions'].get('jax', '')}"
    place = place_of(machine)
    if place is None or not is_real(place):
        return NOT_REAL
    return f"the real Reactant {version_in(place.project, 'Reactant')}"


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}
