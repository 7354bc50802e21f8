"""Compile or measure layouts, several at a time as memory allows."""

import json
import queue
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...arrays.dtypes import as_dtype
from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import Aval, NamedSharding
from ...base.child import LAUNCHERS, without
from ...base.errors import ExitCode, PyReactantError, RequirementError
from ...base.facts import usable_cores
from ..hlo.collective import Collective
from ..preflight.preflight import preflight
from ..preflight.report import Preflight
from .layouts import Layout
from .machine import Machine, loads_of
from .report import Candidate


def compiled(
    layout: Layout,
    machine: Machine,
    program: Program | str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    precision: str | None,
    *,
    cache: bool,
    timeout: float,
    errors: list[PyReactantError] | None = None,
    reference: bool = False,
) -> Candidate:
    """Compile a layout for its slice in a child process.

    An error other than the one below makes a candidate without a time, and is added to `errors`.

    Raises:
        RequirementError: There is no compiler.
    """
    assert machine.topology is not None
    common: dict[str, Any] = {
        "topology": machine.topology,
        "precision": precision,
        "cache": cache,
        "timeout": timeout,
        "alternatives": False,
    }
    try:
        if program == "matmul":
            (m, k), (_, n) = shapes
            report = preflight(
                size=(m, k, n),
                dtype=dtype,
                mesh=layout.mesh,
                spec=layout.specs[0],
                y_spec=layout.specs[1],
                out_spec=layout.out_spec,
                **common,
            )
        else:
            arguments = [
                Aval(shape, as_dtype(dtype), NamedSharding(layout.mesh, spec))
                for shape, spec in zip(shapes, layout.specs, strict=True)
            ]
            report = preflight(program, *arguments, **common)
    except RequirementError:
        raise
    except PyReactantError as error:
        if errors is not None:
            errors.append(error)
        return Candidate(layout=layout, trouble=str(error), fits=False, reference=reference)
    return _candidate(layout, machine, report, reference)


def _candidate(layout: Layout, machine: Machine, report: Preflight, reference: bool) -> Candidate:
    memory = report.bytes_per_device
    if not report.fits or memory is None or report.roofline is None:
        return Candidate(
            layout=layout,
            fits=False,
            trouble=report.refusal.partition("\n")[0],
            bytes_per_device=None if memory is None else memory.total,
            reference=reference,
        )
    links = link_seconds(report.collectives, layout.mesh, machine)
    return Candidate(
        layout=layout,
        seconds=max(report.seconds or 0.0, report.roofline.seconds, links),
        xla_seconds=report.seconds,
        link_seconds=links,
        sent_bytes=float(sum(c.wire_bytes * (c.times or 1) for c in report.collectives)),
        bytes_per_device=memory.total,
        notes=report.notes,
        reference=reference,
    )


def link_seconds(collectives: tuple[Collective, ...], mesh: Mesh, machine: Machine) -> float:
    """Time until the busiest link of the slice has carried a compiled program's data.

    What goes along several axes, or along axes that are not known, is shared out evenly to them.
    """
    assert machine.topology is not None
    amounts: dict[str, float] = dict.fromkeys(mesh.axis_names, 0.0)
    for one in collectives:
        if not one.across_slices:
            axes = one.axes or mesh.axis_names
            for axis in axes:
                amounts[axis] += one.wire_bytes * (one.times or 1) / len(axes)
    if not any(amounts.values()):
        return 0.0
    return loads_of(machine.topology, mesh).seconds(_ordered(amounts, mesh), machine.link_bandwidth)


def _ordered(amounts: Mapping[str, float], mesh: Mesh) -> list[float]:
    return [amounts[axis] for axis in mesh.axis_names]


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
    """Measure a layout in a process of its own: the median of five calls.

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
        argv += ["--devices-per-process", f"{machine.devices}"] if machine.platform == "cpu" else []
        argv += ["--precision", precision] if precision else []
        try:
            ran = _run(argv, timeout)
        except subprocess.TimeoutExpired:
            return _failed(candidate, f"not done after {timeout:g} s")
        if ran.returncode == ExitCode.MISSING:
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
        env=without(*LAUNCHERS),
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
    """Kill the child processes that still run."""
    for child in list(_running):
        child.kill()


def _failed(candidate: Candidate, why: str) -> Candidate:
    return Candidate(
        layout=candidate.layout, fits=False, trouble=why, reference=candidate.reference
    )


def _last(text: str) -> str:
    """The last lines of a command's output, from its error on."""
    lines = text.splitlines()[-_LINES:]
    errors = [i for i, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] :] if errors else lines)


T = TypeVar("T")

_MARGIN = 1.25
"""A margin of memory: children differ, and later growth is unknown."""


@dataclass(slots=True)
class Pool(Generic[T]):
    """Jobs on threads; each waits for a child process of its own.

    The first job runs alone. Its peak memory, as the kernel counts it for ended children, then
    decides how many run at a time.

    Attributes:
        workers: How many at once at most; None is one for each processor.
        available: Bytes that children may take together; None asks the machine.
        at_once: How many there were at once, at most.
    """

    workers: int | None = None
    available: int | None = None
    at_once: int = 0
    _results: "queue.SimpleQueue[tuple[int, T | BaseException]]" = field(
        default_factory=queue.SimpleQueue
    )

    def run(self, jobs: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        """Yield the number and the result of each job, in the order of completion.

        A job's exception is raised here. Whoever stops asking leaves the running jobs to
        themselves: their threads are daemons.
        """
        available = available_memory() if self.available is None else self.available
        waiting = list(enumerate(jobs))[::-1]
        running = 0
        while waiting or running:
            while waiting and running < self._most(available):
                number, job = waiting.pop()
                threading.Thread(target=self._work, args=(number, job), daemon=True).start()
                running += 1
                self.at_once = max(self.at_once, running)
            number, result = self._results.get()
            running -= 1
            if isinstance(result, BaseException):
                raise result
            yield number, result

    def _work(self, number: int, job: Callable[[], T]) -> None:
        try:
            self._results.put((number, job()))
        except BaseException as error:
            self._results.put((number, error))

    def _most(self, available: int | None) -> int:
        peak = peak_of_children()
        if not peak or available is None:
            return 1
        wanted = self.workers or usable_cores()
        return max(1, min(wanted, int(available / (_MARGIN * peak))))


def peak_of_children() -> int:
    """Peak memory in bytes of the largest child process that has ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def available_memory() -> int | None:
    """Bytes of memory that are free on the machine and within this process's cgroup."""
    found = [_machine(), *_cgroup()]
    return min((number for number in found if number is not None), default=None)


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None


def _cgroup() -> Iterator[int]:
    """Bytes that the limits of cgroups (versions 1 and 2) leave; nothing without limits."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            texts = [Path(path).read_text().strip() for path in (limit, used)]
        except OSError:
            continue
        if all(text.isdigit() for text in texts):
            yield max(0, int(texts[0]) - int(texts[1]))
