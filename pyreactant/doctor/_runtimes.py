"""What each runtime has, as its child process says it; and whether any of them can be used."""

import json
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._system.hardware import tpu_chips
from ._accelerators import cuda_extra, gpu_count, holders, process_name
from ._check import Check, Found
from ._children import Answer, Child
from ._julia import NOT_REAL, is_real, place_of, runtime_preference, version_in
from ._machine import Machine
from ._settings import proxy_names, split_flags, without_flags

TITLES = {"jax": "JAX", "reactant": "Reactant"}
_UNKNOWN_FLAGS = re.compile(r"Unknown flags? in (\w+): (.*)")
_OWNER = re.compile(r"already in use by process with pid (\d+)")  # as libtpu says it
_BUSY = re.compile(
    r".*(?:already in use|Device or resource busy|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED|"
    r"devices are busy or unavailable).*",
    re.IGNORECASE,
)
_FATAL = re.compile(r"^F\d{4} [^\]]*\] (.*)", re.MULTILINE)


def start(machine: Machine, backend: str, seconds: float) -> Child:
    """The child process that starts a runtime."""
    arguments = ["-m", "pyreactant.doctor._child"]
    # JAX logs why it does not use an accelerator only at this level.
    settings = {"JAX_LOGGING_LEVEL": "INFO"}
    return Child(machine, arguments, seconds, settings=settings, request={"backend": backend})


def devices(machine: Machine, backend: str, answer: Answer) -> Found:
    """What became of a runtime's child."""
    if answer.code is None:
        return _late(machine, backend, answer)
    if "error" in answer.content:
        error = " ".join(str(answer.content["error"]).split())
        busy = _busy(machine, f"{error}\n{answer.log}")
        return busy or Found("fail", _short(error), _mend(machine, backend, error))
    if "platform" not in answer.content:
        return _lost(machine, backend, answer)
    said = answer.content
    platform, count = said["platform"], said["devices"]
    kinds = ", ".join(kind for kind in said["kinds"] if kind != platform)
    text = f"{platform}, {count} device{'s' if count > 1 else ''}"
    text += f" ({kinds})" if kinds else ""
    text += f", started in {said['seconds']:.1f} s"
    gpus, chips = gpu_count(machine), tpu_chips(machine.root)
    asked = machine.environ.get("PYREACTANT_PLATFORM")
    if platform == "cpu" and asked != "cpu" and (gpus or chips):
        return _on_the_cpu(machine, backend, text, answer.log)
    return Found("pass", text)


def _on_the_cpu(machine: Machine, backend: str, text: str, log: str) -> Found:
    """A runtime that found no use for the accelerator, and may have logged why."""
    busy = _busy(machine, log)
    if busy is not None:
        return busy
    gpus = gpu_count(machine)
    text += f": not this machine's {f'{gpus} GPUs' if gpus else 'TPU'}"
    why = re.search(r"Unable to initialize backend '(?:cuda|rocm|tpu)': (.+)", log)
    text += f" ({_short(why[1])})" if why else ""
    if backend == "jax":
        return Found("warn", text, machine.pip(f"jax[{cuda_extra(machine) if gpus else 'tpu'}]"))
    return Found("warn", text, "pyreactant setup --gpu cuda" if gpus else "pyreactant setup")


def xla_runtime(machine: Machine, answer: Answer | None) -> Found:
    """The preference against what Reactant, once loaded, says that it was compiled with."""
    wanted = runtime_preference(machine)
    real = None if answer is None else answer.content.get("xla_runtime")
    if real is None:
        return wanted
    if not wanted.found.startswith(real):
        text = f"{wanted.found}; but Reactant was compiled with {real}"
        return Found("fail", text, "pyreactant setup")
    return wanted._replace(found=f"{wanted.found}; as loaded: {real}")


def usable(machine: Machine, rows: Mapping[str, Sequence[Check]]) -> Found:
    """Whether there is a runtime to work with at all.

    Args:
        machine: Where.
        rows: Those of each runtime that was started.
    """
    worst = {
        name: max((row.status for row in of_one), key=("pass", "warn", "fail").index)
        for name, of_one in rows.items()
    }
    good = [TITLES[name] for name, status in worst.items() if status == "pass"]
    fair = [f"{TITLES[name]} (see above)" for name, status in worst.items() if status == "warn"]
    if good or fair:
        return Found("pass" if good else "warn", ", ".join(good + fair))
    place = place_of(machine)
    if "reactant" not in rows and place is not None and machine.version("juliacall"):
        text = "none was started; Reactant is set up"
        return Found("warn", text, "pyreactant doctor --backend reactant")
    mends = [row.mend for of_one in rows.values() for row in of_one if row.mend]
    text = "none of those that were started" if rows else "none was started"
    return Found("fail", text, mends[0] if mends else machine.pip("-U", "jax"))


def _late(machine: Machine, backend: str, answer: Answer) -> Found:
    text = f"did not start within {answer.seconds:g} s and was ended"
    if names := proxy_names(machine):
        text += f"; {', '.join(names)} may be why"
    if tpu_chips(machine.root):
        text += "; a worker of a slice of several machines waits for the others' processes"
    if lines := answer.log.strip().splitlines():
        text += f"; it said last: {_short(lines[-1])}"
    mend = f"pyreactant doctor --backend {backend} --timeout {5 * answer.seconds:g}"
    return Found("fail", text, mend)


def _busy(machine: Machine, said: str) -> Found | None:
    """An accelerator that others hold, and who they are where that can be told."""
    line, owner = _BUSY.search(said), _OWNER.search(said)
    if line is None:
        return None
    held = [int(owner[1])] if owner else holders(machine)
    if held:
        names = ", ".join(f"process {pid} ({process_name(machine, pid)})" for pid in held)
        text = f"the accelerator is in use by {names}"
        return Found("warn", text, f"kill {' '.join(map(str, held))}")
    gpu = gpu_count(machine) or machine.which("nvidia-smi")
    mend = "nvidia-smi" if gpu else "sudo lsof -w /dev/accel* /dev/vfio/*"
    return Found("warn", f"the accelerator is busy: {_short(line[0])}", mend)


def _mend(machine: Machine, backend: str, error: str) -> str:
    """What the message itself says to do, else what sets the runtime up."""
    if "LD_PRELOAD" in error:
        return "unset LD_PRELOAD"
    advice = re.search(r"(?:with|run): ((?:python|pyreactant) [^;,]*)", error)
    if advice:
        return advice[1].strip().rstrip(".")
    return machine.pip("-U", "jax") if backend == "jax" else "pyreactant setup"


def _lost(machine: Machine, backend: str, answer: Answer) -> Found:
    """The process ended without an answer: XLA and libtpu abort where they dislike something."""
    flags = _UNKNOWN_FLAGS.search(answer.log)
    if flags is not None:
        name, wrong = flags[1], split_flags(flags[2])
        text = f"XLA ends the process: {name} has flags that it does not know: {' '.join(wrong)}"
        return Found("fail", text, without_flags(name, machine.environ.get(name, ""), wrong))
    code = answer.code or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    fatal = _FATAL.search(answer.log)
    lines = answer.log.strip().splitlines()
    last = fatal[1] if fatal else (lines[-1] if lines else "")
    text = f"the process that starts it {how}{': ' if last else ''}{_short(last)}"
    return _busy(machine, answer.log) or Found("fail", text, _mend(machine, backend, answer.log))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:397] + "..."


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
        with Child(machine, arguments, seconds + BEYOND, folder=Path(folder)) as child:
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
