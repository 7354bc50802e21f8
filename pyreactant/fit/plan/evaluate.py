"""Compile or measure layouts, several at a time as memory allows."""

import queue
import resource
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.sharding import plain_spec
from ...base.child import LAUNCHERS, Activity, ask_child, import_path, without
from ...base.errors import from_data
from ...base.facts import available_memory, peak_memory, usable_cores
from ..hlo.collective import Collective, sent_bytes
from ..layouts.layouts import Layout
from ..layouts.machine import Machine
from ..preflight.preflight import preflight
from ..preflight.report import Preflight
from ..request import arguments_of
from .candidate import Candidate


@dataclass(frozen=True, slots=True)
class Trials:
    """What is tried with each layout: a program that is compiled, or a product that is measured.

    Attributes:
        machine: The devices.
        program: The program, or "matmul"; only that can be measured.
        shapes: Shapes of the arguments.
        dtype: Element type of the arguments.
        precision: "default", "high" or "highest"; None is the runtime's default.
        cache: Whether to use and update the cache of compilations.
        timeout: Seconds for each layout.
    """

    machine: Machine
    program: Program | str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    precision: str | None
    cache: bool
    timeout: float

    def candidate(self, layout: Layout) -> Candidate:
        """Compile or measure a layout, in a child process.

        Raises:
            RequirementError: There is no compiler, or the platform or the devices are not here.
            PyReactantError: It cannot be compiled or measured.
        """
        if self.machine.topology is None:
            return self._measured(layout)
        report = self._compiled(layout)
        memory = report.bytes_per_device
        if memory is None or report.roofline is None:
            return Candidate(layout=layout, fits=False, trouble=report.refusal.partition("\n")[0])
        links = link_seconds(report.collectives, layout.mesh, self.machine)
        return Candidate(
            layout=layout,
            seconds=max(report.seconds or 0.0, report.roofline.seconds, links),
            xla_seconds=report.seconds,
            link_seconds=links,
            sent_bytes=float(sent_bytes(report.collectives)),
            bytes_per_device=memory.total,
            notes=report.notes,
        )

    def _compiled(self, layout: Layout) -> Preflight:
        assert self.machine.topology is not None
        options: dict[str, Any] = {
            "topology": self.machine.topology,
            "precision": self.precision,
            "cache": self.cache,
            "timeout": self.timeout,
            "alternatives": False,
        }
        if self.program == "matmul":
            options |= {"size": self._size, "dtype": self.dtype, "mesh": layout.mesh}
            x, y = layout.specs
            return preflight(spec=x, y_spec=y, out_spec=layout.out_spec, **options)
        arguments = arguments_of(self.shapes, layout.specs, self.dtype, layout.mesh)
        return preflight(self.program, *arguments, **options)

    def _measured(self, layout: Layout) -> Candidate:
        """The median of five calls; a product that is wrong has no time."""
        platform, devices = self.machine.platform, self.machine.devices
        x, y = layout.specs
        request = {
            "platform": platform,
            "num_cpu_devices": devices if platform == "cpu" else None,
            "size": self._size,
            "dtype": self.dtype,
            "precision": self.precision,
            "mesh": layout.mesh.to_dict(),
            "specs": [plain_spec(spec) for spec in (x, y, layout.out_spec or ())],
        }
        answer = ask_child(
            "pyreactant.fit.plan.measure_child",
            {**without(*LAUNCHERS), "PYTHONPATH": import_path()},
            request,
            timeout=self.timeout,
            activity=Activity("measuring", "measures", "XLA"),
        )
        if "error" in answer:
            raise from_data(answer["error"])
        return Candidate(
            layout=layout,
            seconds=statistics.median(answer["seconds"]),
            bytes_per_device=layout.memory_bytes,
            sent_bytes=layout.received_bytes,
        )

    @property
    def _size(self) -> tuple[int, int, int]:
        (m, k), (_, n) = self.shapes
        return m, k, n


def link_seconds(collectives: tuple[Collective, ...], mesh: Mesh, machine: Machine) -> float:
    """Time until the busiest link of the slice has carried a compiled program's data.

    What goes along several axes, or along axes that are not known, is shared out evenly to them.
    """
    amounts: dict[str, float] = dict.fromkeys(mesh.axis_names, 0.0)
    for collective in collectives:
        if not collective.across_slices:
            axes = collective.axes or mesh.axis_names
            for axis in axes:
                amounts[axis] += sent_bytes([collective]) / len(axes)
    if not any(amounts.values()):
        return 0.0
    return machine.link_seconds(mesh, list(amounts.values()))


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
    return peak_memory(resource.RUSAGE_CHILDREN)
