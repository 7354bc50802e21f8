"""Run a module in one of the ways, and say how far its results are off.

Each run is kept in a folder under the digest of what it depends on, so that a bisection that was
ended goes on where it was.
"""

import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.dtypes import finfo, is_float, wide
from ...base.errors import DeadlineError, argument
from ...base.files import read_json, write_json
from .child import Child, Outcome
from .way import Way
from .worker import load_arrays, save_arrays

Options = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Module:
    """A StableHLO module with its inputs, and shape and dtype of each result.

    `problem` is the program that it is the whole of, for ways that run the program's body.
    """

    text: str
    inputs: tuple[np.ndarray, ...]
    results: tuple[Mapping[str, Any], ...]
    partitions: int = 1
    problem: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A digest of everything that its results depend on."""
        digest = hashlib.sha256(f"{self.partitions}\n{self.text}".encode())
        for array in self.inputs:
            digest.update(f"{array.dtype.name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a module: an outcome, why, and the results if it ran."""

    outcome: Outcome
    message: str = ""
    results: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """How the program fails in the bad way.

    Attributes:
        outcome: "ran" if its values are wrong; otherwise it crashes, hangs or is refused.
        size: How far its values are off (`distance`).
        rate: Share of the runs that failed.
        message: What it said, if it did not run.
    """

    outcome: Outcome
    size: float = 0.0
    rate: float = 1.0
    message: str = ""

    @property
    def attempts(self) -> int:
        """Runs of which one fails, but for a probability of a hundredth."""
        missed = math.log(1 - self.rate) if self.rate < 1 else -math.inf
        return min(20, math.ceil(math.log(0.01) / missed)) or 1

    def limit(self, dtype: np.dtype) -> float:
        """The distance from which a part is as wrong: halfway, in digits, to the program's."""
        eps, size = rounding(dtype), min(1.0, self.size)
        return math.sqrt(eps * size) if size > eps else size / 2


def rounding(dtype: np.dtype) -> float:
    """The distance of neighbouring numbers near 1; 0 for integers."""
    return float(finfo(dtype).eps) if is_float(dtype) or dtype.kind == "c" else 0.0


def distance(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest wanted number.

    It is infinite for integers that differ, and for numbers that are finite on one side only.
    """
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return math.inf
    if not rounding(got.dtype):
        return 0.0 if np.array_equal(got, wanted) else math.inf
    with np.errstate(all="ignore"):
        one, two = wide(got), wide(wanted)
        finite = np.isfinite(one) & np.isfinite(two)
        if not (finite | (one == two) | (np.isnan(one) & np.isnan(two))).all():
            return math.inf
        size = float(np.max(np.abs(two), initial=0.0, where=finite))
        off = float(np.max(np.abs(one - two), initial=0.0, where=finite))
    return off / size if size else off


class Ways:
    """Runs modules, each way in a process of its own.

    Args:
        folder: The folder.
        devices: Virtual CPU devices of each process.
        each: Seconds that a module may take.
        until: When all must be done, by `time.monotonic`.

    Attributes:
        folder: Folder of the kept runs, and of the files that the processes exchange.
        devices: Devices of a program without a mesh, which a way with fewer than 8 makes fewer.
        ends: How many modules ended in each way with each outcome.
    """

    def __init__(self, folder: Path, devices: int, each: float, until: float) -> None:
        self.folder, self.devices, self._each, self._until = folder, devices, each, until
        self._children: dict[Way, Child] = {}
        self._identities: dict[Way, list[Any]] = {}
        self.ends: Counter[tuple[Way, Outcome]] = Counter()
        self._slowest = 0.0
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Ways":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.close()

    @property
    def soon(self) -> float:
        """Seconds in which a module is done if it is like those that ran; no limit before one."""
        return 10 + 10 * self._slowest if self._slowest else math.inf

    def limit(self, failure: Failure) -> float:
        """Seconds that a part of a program that fails so may take."""
        return self.soon if failure.outcome is Outcome.HANG else math.inf

    def versions(self, way: Way) -> dict[str, Any]:
        """Versions and device of a way, or its outcome and message if it cannot start."""
        return self.ask(way, {"versions": True})

    def ask(
        self, who: Way | Child, request: Mapping[str, Any], each: float = math.inf
    ) -> dict[str, Any]:
        """The answer of a way's process, or another one, within the time that is left.

        Raises:
            DeadlineError: The time of the whole bisection is over.
            OSError: The process cannot write its files.
        """
        child = self._child(who) if isinstance(who, Way) else who
        if isinstance(who, Way) and who.backend:
            runtime = {"backend": who.backend, "platform": who.platform}
            request = {**request, **runtime, "devices": self.devices}
        left, each = self._until - time.monotonic(), min(each, self._each)
        answer = child.ask(request, min(each, left)) if left > 0 else {}
        if answer and answer["outcome"] == "unwritten":
            raise OSError(*answer["error"])
        if answer and (answer["outcome"] != Outcome.HANG or left > each):
            return answer
        raise DeadlineError(
            f"the time of {argument('timeout')} is over; what was found is kept, and the same "
            "command goes on there"
        )

    def run(
        self,
        way: Way,
        module: Module,
        options: Options = (),
        attempt: int = 0,
        each: float = math.inf,
    ) -> Ran:
        """What becomes of a module in a way, within so many seconds; each attempt is kept.

        One that had fewer seconds, and did not end in them, runs again.
        """
        options = (*way.options, *options)
        identity = [*self._identity(way), way.interpret, options, attempt]
        if way.backend:
            identity.append(module.problem)
        text = json.dumps([*identity, self.devices, module.digest])
        key = hashlib.sha256(text.encode()).hexdigest()[:24]
        record, kept = self.folder / f"{key}.json", self.folder / f"{key}.npz"
        each = min(each, self._each)
        answer = read_json(record, "a run of pyreactant bisect") if record.exists() else None
        if answer is None or answer.get("within", math.inf) < each:
            answer = self._asked(way, module, options, kept, each)
            write_json(answer, record)
        self._slowest = max(self._slowest, answer.get("seconds", 0.0))
        if answer["outcome"] != Outcome.RAN:
            return Ran(Outcome(answer["outcome"]), answer["message"])
        return Ran(Outcome.RAN, "", tuple(load_arrays(kept)))

    def fails(
        self,
        way: Way,
        module: Module,
        failure: Failure,
        wrong: Callable[[Sequence[np.ndarray]], bool],
    ) -> bool:
        """Whether a module fails as the program does, in one of as many attempts as that needs."""
        each = self.limit(failure)
        runs = (self.run(way, module, (), n, each) for n in range(failure.attempts))
        own = (ran for ran in runs if ran.outcome is failure.outcome)
        return any(ran.outcome is not Outcome.RAN or wrong(ran.results) for ran in own)

    def _asked(
        self, way: Way, module: Module, options: Options, out: Path, each: float
    ) -> dict[str, Any]:
        source, inputs = self.folder / "module.mlir", self.folder / "inputs.npz"
        source.write_text(module.text)
        save_arrays(inputs, module.inputs)
        request = {
            "module": str(source),
            "inputs": str(inputs),
            "shapes": [aval["shape"] for aval in module.results],
            "partitions": module.partitions,
            "options": list(options),
            "interpret": way.interpret,
            "out": str(out),
        }
        if way.backend:
            request = {**module.problem, "out": str(out)}
        if each < self._each:  # after a crash the process starts anew, which takes longer
            self.versions(way)
        start = time.monotonic()
        answer = self.ask(way, request, each)
        if answer["outcome"] == Outcome.RAN:
            answer["seconds"] = time.monotonic() - start
        if options == way.options:  # without some passes, compiling never ends
            self.ends[way, Outcome(answer["outcome"])] += 1
        return answer

    def _identity(self, way: Way) -> list[Any]:
        """What runs a module; the files of an environment or plugin may be rebuilt."""
        if way not in self._identities:
            own = os.lstat(way.python)
            flags = way.environment(self.devices)["XLA_FLAGS"]
            given = [way.python, own.st_size, own.st_mtime_ns, way.settings, flags, way.backend]
            self._identities[way] = [*given, way.platform, self.versions(way).get("files")]
        return self._identities[way]

    def _child(self, way: Way) -> Child:
        if way not in self._children:
            self._children[way] = Child(way.argv, way.environment(self.devices))
        return self._children[way]
