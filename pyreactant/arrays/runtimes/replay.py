"""Programs that are called twice now and then, and whose results must have the same bits.

A device that errs now and then does so in one of both calls. Copies of a block on several devices
are compared, too. Each block is digested by its device or its host, and the processes exchange the
digests.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidArgumentError, MismatchError
from ...base.say import say
from ...base.settings import REPLAY_EVERY
from ..backend import DIGEST_WORDS, AbstractBackend, Call, Executable
from .collective import exchange


def check_replay(every: int | None) -> int:
    """Every how many calls a program is called twice; 0 for never.

    Raises:
        InvalidArgumentError: The number is not positive.
    """
    if every is None:
        return 0
    if every < 1:
        raise InvalidArgumentError(f"{REPLAY_EVERY} must be 1 or more, got {every}")
    return every


class Replayed:
    """What runs a compiled program; collective, as that is.

    Args:
        every: At each call of this number the program runs twice.
        call: The program and its arguments; it calls nothing outside of XLA.
        executable: What the runtime compiled.
        backend: The runtime.
    """

    def __init__(
        self, every: int, call: Call, executable: Executable, backend: AbstractBackend
    ) -> None:
        self._every, self._call, self._executable = every, call, executable
        self._backend = backend
        self._donated = frozenset(call.donated(backend.trees))
        self._calls = 0
        self._repeats = False  # whether it has given the same bits once
        self._off = False

    def __call__(self, *values: Any) -> Sequence[Any]:
        """The results.

        Raises:
            MismatchError: Both calls, or copies of a block, differ; on every process.
        """
        self._calls += 1
        if self._off or self._calls % self._every:
            return self._executable.run(*values)
        copies = [
            self._backend.copied(value) if number in self._donated else value
            for number, value in enumerate(values)
        ]
        first = self._digests(self._executable.run(*copies))
        del copies  # the second call has its own results, and needs the memory
        results = self._executable.run(*values)
        self._compare(first, self._digests(results))
        return results

    def _digests(self, results: Sequence[Any]) -> np.ndarray:
        """Digests of the results' blocks on all devices: [position, result, word]. Collective."""
        devices, group = self._backend.devices(), self._backend.group
        places: dict[int, list[int]] = defaultdict(list)
        for device in devices:
            places[device.process_index].append(device.position)
        most = max(map(len, places.values()))
        mine = np.zeros((most, len(results), DIGEST_WORDS), np.uint32)
        row = {position: i for i, position in enumerate(places[group.process_index])}
        for number, result in enumerate(results):
            for position, digest in self._backend.block_digests(result).items():
                mine[row[position], number] = digest
        every = exchange(self._backend, group, mine)
        return np.concatenate(
            [every[process][: len(places[process])] for process in sorted(places)]
        )

    def _compare(self, first: np.ndarray, second: np.ndarray) -> None:
        used = self._call.meshes or tuple(a.sharding.mesh for a in self._executable.avals)
        devices = sorted({position for mesh in used for position in mesh.device_ids})
        differs = [p for p in devices if not np.array_equal(first[p], second[p])]
        if not differs and (odd := self._other_copies(second)):
            self._raise("copies of a result that must be equal differ", odd, devices)
        if differs and not self._repeats and self._backend.devices()[0].platform == "gpu":
            self._off = True
            say(
                f"program {self._call.program.name!r} is not deterministic, or a device errs: it "
                "is not called twice any more; with XLA_FLAGS=--xla_gpu_deterministic_ops=true it "
                "can be checked"
            )
            return
        if differs:
            self._raise("its results had other bits when it was called again", differs, devices)
        self._repeats = True

    def _other_copies(self, digests: np.ndarray) -> list[int]:
        """Devices whose copy of a block is not the one that most have; all, without a majority."""
        for number, aval in enumerate(self._executable.avals):
            blocks: dict[Any, list[int]] = defaultdict(list)
            for position, index in aval.sharding.devices_indices_map(aval.shape).items():
                blocks[tuple((s.start, s.stop) for s in index)].append(position)
            for positions in blocks.values():
                bits: Mapping[bytes, list[int]] = defaultdict(list)
                for position in positions:
                    bits[digests[position, number].tobytes()].append(position)
                most = max(bits.values(), key=len)
                if len(bits) > 1:
                    clear = 2 * len(most) > len(positions)
                    return [p for p in positions if not clear or p not in most]
        return []

    def _raise(self, what: str, differs: Sequence[int], used: Sequence[int]) -> None:
        devices = self._backend.devices()
        names = ", ".join(f"{p} (process {devices[p].process_index})" for p in differs[:8])
        where = f"on device {names} only"
        if len(differs) > 1:
            where = f"on devices {names}" + (" and more" if len(differs) > 8 else "")
            where += ", of which one errs or more" if len(differs) < len(used) else ""
        if len(differs) == len(used) > 1:
            where = f"on all of its {len(used)} devices, of which one errs or more"
        raise MismatchError(
            f"program {self._call.program.name!r}, call {self._calls}: {what}, {where}; go on from "
            "the last checkpoint without it, and test the devices with: pyreactant burnin"
        )
