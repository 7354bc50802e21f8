"""Records of burn-ins that never ran, for the verdict."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyreactant.check.burnin.record import Measure, Member, Record


def member(process: int, devices: Sequence[int], host: str = "", serials: Any = ()) -> Member:
    return Member(
        process=process,
        host=host or f"n{process}",
        devices=tuple({"position": d, "id": d, "kind": "H100", "platform": "gpu"} for d in devices),
        processor="EPYC",
        cores=4,
        serials=tuple(serials),
        resources={"NUMA nodes": 2, "free memory": 2**36, "free disk": 2**40},
    )


def alone(device: int, round: str = "products of float32", **more: Any) -> Measure:
    """A device's own measure, with one device in each process."""
    given = {"checked": 100, "seconds": (0.01,) * 20, **more}
    return Measure(round, device, device, (), **given)


def pair(group: tuple[int, ...], seconds: float = 0.002, **more: Any) -> Iterable[Measure]:
    """What both processes of a pair measured, or all of a group."""
    for process in group:
        given = {"checked": 10, "nbytes": 2**20, "seconds": (seconds,) * 12, **more}
        yield Measure("all-reduce of 1 MiB", process, None, group, **given)


def record(
    measures: Iterable[Measure],
    processes: int = 4,
    clocks: Sequence[Sequence[float]] = (),
    **more: Any,
) -> Record:
    """A finished record; each process has the device of its own number."""
    listed = tuple(measures)
    names = tuple(dict.fromkeys(measure.round for measure in listed))
    ran: Mapping[str, tuple[float, ...]] = dict.fromkeys(names, (3.0, 1.5))
    given: dict[str, Any] = {
        "began": 1.8e9,
        "ended": 1.8e9 + 118,
        "asked": 120.0,
        "finished": True,
        "runtime": {"jax": "0.11.2"},
        "members": tuple(member(p, [p]) for p in range(processes)),
        "rounds": names,
        "ran": ran,
        **more,
    }
    return Record(measures=listed, clocks=tuple(map(tuple, clocks)), **given)
