"""Run N copies of a test program as real processes, and show every log when one fails."""

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

OF_A_RUN = (
    "PYREACTANT_",
    "JAX_",
    "PJRT_",
    "XLA_",
    "SLURM_",
    "OMPI_",
    "PMI",
    "MPI_LOCAL",
    "TPU_",
    "MEGASCALE_",
    "GCE_METADATA_",
    "KUBERNETES_",
)
"""How variables begin that a launcher or a user sets for a run."""

QUICK_COMPILING = "--xla_backend_optimization_level=0"
"""XLA_FLAGS where XLA's code for CPUs is not under test: a fifth of the cost of compiling."""
if version("jaxlib").startswith("0.10."):  # later versions do not have this flag
    QUICK_COMPILING += " --xla_cpu_use_fusion_emitters=false"

backend = "jax"
"""The runtime of the programs that are run here; --backend sets it."""

patience = 1
"""How much longer processes may take than with JAX: Julia's start and Reactant's first program."""


Value = TypeVar("Value")


@dataclass(frozen=True)
class Finished:
    """How a process ended: exit code (negative for a signal) and all it printed."""

    code: int | None
    log: str


def require(condition: object, what: str) -> None:
    """Skip the test where something is absent; fail where CI says that it must be there."""
    if condition:
        return
    if os.environ.get("PYREACTANT_CI"):
        pytest.fail(f"CI must have what this test needs: {what}")
    pytest.skip(what)


def need_enzyme() -> None:
    """Skip the test where Enzyme has no wheel; fail where CI must have it."""
    from pyreactant.arrays.lowering.enzyme import check_enzyme
    from pyreactant.base.errors import RequirementError

    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip("Enzyme's wheel is for Python 3.11 on Linux")
    try:
        check_enzyme()
    except RequirementError as error:
        require(False, str(error))


def until(
    condition: Callable[[], Value],
    seconds: float = 150,
    why: Callable[[], object] = lambda: "it did not become true in time",
) -> Value:
    """Wait until a callable gives something true, and return that; `why` says what it may lack."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
    return value


def free_port() -> int:
    """A port nobody listens on now; Linux gives connections and other servers those above."""
    while True:
        port = 20_000 + secrets.randbelow(12_768)  # Ray has 10002 to 19999 for itself
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def environment(**settings: str) -> dict[str, str]:
    """This environment without settings of a run, and with these; XLA compiles quickly."""
    kept = {
        name: value
        for name, value in os.environ.items()
        # The real-sources level's packages read the library's path in every process.
        if name.startswith("PYREACTANT_TEST_") or not name.startswith(OF_A_RUN)
    }
    quick = {"XLA_FLAGS": QUICK_COMPILING} if backend == "jax" else {}
    return {**kept, **quick, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", **settings}


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    input: str | None = None,
    timeout: float = 120,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with text in and out, both outputs captured, and no input by default."""
    stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(argv, timeout=timeout, check=False, **{**pipes, **stdin, **options})


def pyreactant(
    *words: str, folder: Path | None = None, timeout: float = 200, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command line of pyreactant as a user does, in a folder, with these variables."""
    argv = [sys.executable, "-m", "pyreactant", *words]
    return run(argv, env=environment(**settings), cwd=folder, timeout=timeout)


def spawn(
    argvs: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    timeout: float,
) -> list[Finished]:
    """Start one process per command and environment; kill all of them at the deadline.

    The deadline is `patience` times `timeout` seconds away. Each process has a session of its own,
    so that what it started dies with it.
    """
    logs = [folder / f"process-{i}.log" for i in range(len(environments))]
    processes = []
    try:
        for log, argv, settings in zip(logs, argvs, environments, strict=True):
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        argv,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env=settings,
                        cwd=folder,
                        start_new_session=True,
                    )
                )
        deadline = time.monotonic() + timeout * patience
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        codes = [process.poll() for process in processes]
        for process, code, log in zip(processes, codes, logs, strict=True):
            if code is None:
                append_stacks(process.pid, log)
    finally:
        for process in processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    return [
        Finished(code, log.read_text(errors="replace"))
        for code, log in zip(codes, logs, strict=True)
    ]


def append_stacks(pid: int, log: Path) -> None:
    """Append where each thread of a process is, if py-spy is installed (Ray brings it)."""
    spy = Path(sys.executable).with_name("py-spy")
    if spy.exists():
        argv = [spy, "dump", "--native", "--pid", str(pid)]
        with log.open("ab") as out, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(argv, stdout=out, stderr=subprocess.STDOUT, timeout=60, check=False)


def run_program(
    name: str,
    folder: Path,
    *,
    processes: int,
    devices: int,
    timeout: float = 120,
    settings: Mapping[str, str] | None = None,
    **arguments: Any,
) -> list[Finished]:
    """Run ``tests.multiprocess.programs.<name>(**arguments)`` on every process of a run.

    "one+another" runs several in a row.
    """
    argv = [sys.executable, "-m", "tests.multiprocess.programs", name, json.dumps(arguments)]
    environments = run_environments(processes, devices, settings)
    return spawn([argv] * processes, environments, folder, timeout)


def run_environments(
    processes: int, devices: int, settings: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """The environment of each process of a run, on this machine's CPU unless `settings` differ."""
    address = f"127.0.0.1:{free_port()}"
    return [
        environment(
            **{
                "PYREACTANT_BACKEND": backend,
                "PYREACTANT_PLATFORM": "cpu",
                "PYREACTANT_NUM_CPU_DEVICES": str(devices),
                "PYREACTANT_COORDINATOR_ADDRESS": address,
                "PYREACTANT_NUM_PROCESSES": str(processes),
                "PYREACTANT_PROCESS_INDEX": str(index),
                **(settings or {}),
            }
        )
        for index in range(processes)
    ]


def on_plugin(plugin: str, folder: Path, devices: int) -> dict[str, str]:
    """The environment in which JAX uses a PJRT plugin for CPUs, and no other platform."""
    described = folder / "plugin.json"
    options = {"cpu_device_count": devices}
    path = str(Path(plugin).resolve())
    described.write_text(json.dumps({"library_path": path, "create_options": options}))
    return {
        "PJRT_NAMES_AND_LIBRARY_PATHS": f"cpu_plugin:{described}",
        "JAX_PLATFORMS": "cpu_plugin",
    }


def quiet(stderr: str) -> bool:
    """Whether a command told nothing but, on a slow machine, what takes so long."""
    return all(re.fullmatch(r"pyreactant: .* \.\.\.", line) for line in stderr.splitlines())


def logs(finished: Sequence[Finished]) -> str:
    """Every log, for a failing assertion."""
    return "\n".join(f"--- process {i}: exit {f.code}\n{f.log}" for i, f in enumerate(finished))


def check_all_passed(finished: Sequence[Finished]) -> None:
    """Every process ended with 0 and said that its program is done."""
    for process in finished:
        assert process.code == 0, logs(finished)
        assert "program done" in process.log.splitlines(), logs(finished)
