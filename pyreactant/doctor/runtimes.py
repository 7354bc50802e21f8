"""The child process that starts each runtime, what it reports, and whether any can be used.

A child has a deadline, and how it ends is data for a row. Unlike for `base.child.ask_child`, one is
a supervisor that must end its own programs, and a child that dies is a result, not an error.
"""

import contextlib
import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..base import words
from ..base.child import LAUNCHERS, import_path, last_answer, send, serve, started, without
from ..base.counted import counted
from ..base.duration import seconds_word
from ..base.errors import RequirementError
from ..base.facts import tpu_chips
from ..base.settings import COMPILE_CACHE
from ..process.group.group import proxy_names
from .accelerators import (
    cuda_extra,
    gpu_count,
    holders,
    in_use_by,
    split_flags,
    without_flags,
)
from .check import Check, CheckResult, Machine
from .software import NOT_REAL, is_real, place_of, version_in

_KEPT = ("PYREACTANT_PLATFORM", "PYREACTANT_NUM_CPU_DEVICES", "PYREACTANT_DEBUG")
_GRACE = 3.0
"""Seconds that a supervisor has to end its programs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a child process ended.

    Attributes:
        code: The exit code; None if the child was ended at its deadline.
        seconds: How long the child took; if it was ended, how long it was given.
        content: The child's answer; empty if there is none.
        log: What the child printed to standard error.
    """

    code: int | None
    seconds: float
    content: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""


def child_environment(machine: Machine) -> dict[str, str]:
    """The environment of a single process that leaves most of a GPU's memory to others."""
    kept = {name: machine.environ[name] for name in _KEPT if name in machine.environ}
    return {
        **without(*LAUNCHERS, environ=machine.environ),
        **kept,
        "PYTHONPATH": import_path(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_REACTANT_GPU_PREALLOCATE": "false",
    }


def ask(
    machine: Machine,
    arguments: Sequence[str],
    seconds: float,
    *,
    settings: Mapping[str, str] | None = None,
    request: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Answer:
    """The answer of a child process, which is gone then, with what it started.

    Args:
        machine: The machine whose interpreter and environment it gets.
        arguments: Arguments of the interpreter.
        seconds: Its deadline.
        settings: Environment variables to add.
        request: A request for its standard input.
        folder: Its current folder; None for this process's.
    """
    begin, argv = time.monotonic(), [machine.python, "-P", *arguments]
    environment = {**child_environment(machine), **(settings or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        code, took = None, seconds
        try:
            with started(
                argv, environment, stdout=out, stderr=log, folder=folder, grace=_GRACE
            ) as process:
                if request is not None:
                    with contextlib.suppress(BrokenPipeError):  # it has ended already
                        send(process, request)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(seconds)
                    took = time.monotonic() - begin
        except OSError as error:
            problem = f"{machine.python} cannot be started ({error.strerror})"
            return Answer(1, 0.0, {"error": problem})
        content = last_answer(_read(out)) or {}
        return Answer(code, took, content, _read(log).decode(errors="replace"))


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


TITLES = {"jax": "JAX", "reactant": "Reactant"}


def start(machine: Machine, backend: str, seconds: float) -> Answer:
    """The answer of the child process that starts a runtime."""
    arguments = ["-m", "pyreactant.doctor.runtimes"]
    # JAX logs why it does not use an accelerator only at this level.
    settings = {"JAX_LOGGING_LEVEL": "INFO"}
    return ask(machine, arguments, seconds, settings=settings, request={"backend": backend})


def devices(machine: Machine, backend: str, answer: Answer) -> CheckResult:
    """The devices that a runtime's child process reports, or why it failed."""
    if answer.code is None:
        return _too_late(machine, backend, answer)
    if "error" in answer.content:
        error = " ".join(str(answer.content["error"]).split())
        busy = _busy(machine, f"{error}\n{answer.log}")
        fix = answer.content.get("command") or _fix(machine, backend)
        return busy or CheckResult("fail", _short(error), fix)
    if "platform" not in answer.content:
        return _lost(machine, backend, answer)
    content = answer.content
    platform, count = content["platform"], content["devices"]
    kinds = ", ".join(kind for kind in content["kinds"] if kind != platform)
    text = f"{platform}, {counted(count, 'device')}"
    text += f" ({kinds})" if kinds else ""
    text += f", started in {content['seconds']:.1f} s"
    gpus, chips = gpu_count(machine), tpu_chips(machine.root)
    requested = machine.environ.get("PYREACTANT_PLATFORM")
    if platform == "cpu" and requested != "cpu" and (gpus or chips):
        return _on_the_cpu(machine, backend, text, answer.log)
    if not content.get("sees_jit", True):
        text += (
            "; in this version the guard does not see what jax.jit compiles, and "
            f"{COMPILE_CACHE} has no effect"
        )
        return CheckResult("warn", text, machine.pip("-U", "pyreactant"))
    return CheckResult("pass", text)


def _on_the_cpu(machine: Machine, backend: str, text: str, log: str) -> CheckResult:
    """The row of a runtime that runs on the CPU beside an accelerator, and may have logged why."""
    busy = _busy(machine, log)
    if busy is not None:
        return busy
    gpus = gpu_count(machine)
    text += f", without this machine's {counted(gpus, 'GPU') if gpus else 'TPU'}"
    why = words.unusable(log)
    text += f" ({_short(why)})" if why else ""
    if backend == "jax":
        return CheckResult(
            "warn", text, machine.pip(f"jax[{cuda_extra(machine) if gpus else 'tpu'}]")
        )
    return CheckResult("warn", text, "pyreactant setup --gpu cuda" if gpus else "pyreactant setup")


def usable(machine: Machine, rows: Mapping[str, Sequence[Check]]) -> CheckResult:
    """Whether at least one runtime can be used.

    Args:
        machine: The machine to check.
        rows: The rows of each runtime that was started.
    """
    worst = {
        name: max((row.status for row in of_one), key=("pass", "warn", "fail").index)
        for name, of_one in rows.items()
    }
    good = [TITLES[name] for name, status in worst.items() if status == "pass"]
    fair = [f"{TITLES[name]} (see above)" for name, status in worst.items() if status == "warn"]
    if good or fair:
        return CheckResult("pass" if good else "warn", ", ".join(good + fair))
    place = place_of(machine)
    if "reactant" not in rows and place is not None and machine.version("juliacall"):
        text = "none was started; Reactant is set up"
        return CheckResult("warn", text, "pyreactant doctor --backend reactant")
    mends = [row.mend for of_one in rows.values() for row in of_one if row.mend]
    text = "none of those that were started" if rows else "none was started"
    return CheckResult("fail", text, mends[0] if mends else machine.pip("-U", "jax"))


def _too_late(machine: Machine, backend: str, answer: Answer) -> CheckResult:
    text = f"did not start within {answer.seconds:g} s and was ended"
    if names := proxy_names(machine.environ):
        text += f"; {', '.join(names)} may be why"
    if tpu_chips(machine.root):
        text += "; on a slice of several machines a worker waits for the processes of the others"
    if lines := answer.log.strip().splitlines():
        text += f"; its last output: {_short(lines[-1])}"
    mend = f"pyreactant doctor --backend {backend} --timeout {seconds_word(5 * answer.seconds)}"
    return CheckResult("fail", text, mend)


def _busy(machine: Machine, output: str) -> CheckResult | None:
    """The row of an accelerator in use, with the processes that use it if they are known."""
    line, owner = words.busy(output), words.owner(output)
    if line is None:
        return None
    held = [owner] if owner else holders(machine)
    if held:
        text = f"the accelerator is {in_use_by(machine, held)}"
        return CheckResult("warn", text, f"kill {' '.join(map(str, held))}")
    gpu = gpu_count(machine) or machine.which("nvidia-smi")
    mend = "nvidia-smi" if gpu else "sudo lsof -w /dev/accel* /dev/vfio/*"
    return CheckResult("warn", f"the accelerator is busy: {_short(line)}", mend)


def _fix(machine: Machine, backend: str) -> str:
    """The command that installs a runtime, or removes what keeps it from starting."""
    if backend == "jax":
        requested = machine.environ.get("PYREACTANT_PLATFORM")
        extra = {"gpu": f"[{cuda_extra(machine)}]", "tpu": "[tpu]"}.get(requested or "", "")
        return machine.pip("-U", f"jax{extra}")
    return "unset LD_PRELOAD" if machine.environ.get("LD_PRELOAD") else "pyreactant setup"


def _lost(machine: Machine, backend: str, answer: Answer) -> CheckResult:
    """The row of a process that ended without an answer: XLA and libtpu abort on some errors."""
    flags = words.unknown_flags(answer.log)
    if flags is not None:
        name, wrong = flags[0], split_flags(flags[1])
        text = f"XLA ends the process: {name} has unknown flags: {' '.join(wrong)}"
        return CheckResult("fail", text, without_flags(name, machine.environ.get(name, ""), wrong))
    code = answer.code or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    lines = answer.log.strip().splitlines()
    last = words.fatal(answer.log) or (lines[-1] if lines else "")
    text = f"the process that starts it {how}{': ' if last else ''}{_short(last)}"
    return _busy(machine, answer.log) or CheckResult("fail", text, _fix(machine, backend))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:397] + "..."


SIZE = 256
MARGIN = 15.0
"""Seconds that the supervisor has after its time limit to end the run and report."""


def product(machine: Machine, backend: str, processes: int, seconds: float) -> CheckResult:
    """Multiply on one process and the best platform, or on two processes on the CPU.

    Args:
        machine: The machine to check.
        backend: The runtime, "jax" or "reactant".
        processes: 1 or 2.
        seconds: The time limit.
    """
    run, matmul = _commands(backend, processes)
    with tempfile.TemporaryDirectory(prefix="pyreactant-doctor-") as folder:
        arguments = [
            *["-m", "pyreactant", *run, "--quiet", "--out", f"{folder}/run"],
            *["--timeout", seconds_word(seconds), "--grace", "2"],
            *["--", "-m", "pyreactant", *matmul],
            *["--repeat", "1", "--report", f"{folder}/product.json"],
        ]
        answer = ask(machine, arguments, seconds + MARGIN, folder=Path(folder))
        if answer.code == 0:
            return _right(machine, backend, _json(Path(folder, "product.json")))
        report = _json(Path(folder, "run", "report.json"))
    again = shlex.join(["pyreactant", *run, "--", "-m", "pyreactant", *matmul])
    if answer.code is None:
        text = f"the product took longer than {seconds:g} s and was ended"
        return CheckResult("fail", f"{TITLES[backend]}: {text}", again)
    lines = answer.log.strip().splitlines() or ["the process printed nothing"]
    why = " ".join(str(report.get("summary") or lines[-1]).split())
    return CheckResult("fail", f"{TITLES[backend]}: {why[:600]}", again)


def _commands(backend: str, processes: int) -> tuple[list[str], list[str]]:
    """The arguments of `pyreactant` for a run, and for the program in it."""
    run = ["run", "--processes", str(processes)]
    if processes > 1:
        run += ["--devices-per-process", "2", "--platform", "cpu"]
    return run, ["matmul", "--backend", backend, "--size", str(SIZE)]


def _right(machine: Machine, backend: str, report: dict[str, Any]) -> CheckResult:
    check, count = report["check"], report["num_processes"]
    mesh = " x ".join(map(str, report["mesh"]["shape"]))
    text = (
        f"{_runtime(machine, backend, report)} on {report['platform']}: {SIZE} x {SIZE} "
        f"{report['dtype']} over a {mesh} mesh of {counted(count, 'process')} is "
        f"right: error {check['error']:.1e}, {check['tolerance']:.1e} allowed ({check['method']})"
    )
    return CheckResult("pass", text)


def _runtime(machine: Machine, backend: str, report: dict[str, Any]) -> str:
    """The runtime and its version; for Reactant, whether it is the real one."""
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


def _answer(request: Mapping[str, Any], _: object) -> dict[str, Any]:
    """The main of a child: a runtime hangs, aborts, prints or takes the accelerator in here."""
    backend, xla_runtime, sees_jit = request["backend"], None, True
    start = time.perf_counter()
    try:
        import pyreactant as pr

        pr.initialize(backend, num_processes=1)
        devices = pr.devices()
        if backend == "reactant":  # it was compiled with one; JAX has no choice
            from ..arrays.runtimes.reactant import julia

            xla_runtime = str(julia.call(julia.start().runtime))
        else:
            from ..arrays.runtimes.jax import compilations

            sees_jit = compilations.is_known()
        return {
            "platform": devices[0].platform,
            "kinds": sorted({device.kind for device in devices}),
            "devices": len(devices),
            "xla_runtime": xla_runtime,
            "sees_jit": sees_jit,
            "seconds": time.perf_counter() - start,
        }
    except Exception as error:  # whatever a runtime raises is the answer
        command = error.command if isinstance(error, RequirementError) else ""
        return {"error": f"{error}", "command": command}


if __name__ == "__main__":
    serve(_answer)
