"""What JAX's profile of a process says: when it began, and of the collective operations.

It is read with `jax.profiler.ProfileData`, which the callers have; JAX is not imported here.
"""

import re
import warnings
from collections import defaultdict
from typing import Any

# XLA names an instruction after its opcode, or after the function of `jax.lax`.
_COLLECTIVE = re.compile(
    r"(ragged[-_])?all[-_](reduce|gather|to[-_]all)|reduce[-_]scatter|"
    r"collective[-_](permute|broadcast)|p(sum|max|min|permute|broadcast)"
)

Operation = tuple[str, str, int, int, int, int]
"""Module, instruction, XLA's number of the call, number of the operation in this call, and when the
last device of the process began it and the last one ended it, in nanoseconds of the profile."""


def began_ns(data: Any) -> int:
    """When a profile began, in Unix nanoseconds by the clock of this host; 0 if it does not say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nanobind, about the type of `stats`
        for plane in data.planes:
            if plane.name == "Task Environment":
                return int(dict(plane.stats).get("profile_start_time", 0))
    return 0


def collectives(data: Any) -> list[Operation]:
    """The collective operations of a profile.

    XLA gives a call on devices of several processes the same number, ``run_id``, on each of them.
    Operations without one cannot be compared, and are left out.
    """
    of_device: dict[tuple[str, str, int, str], list[tuple[int, int]]] = defaultdict(list)
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                if not _COLLECTIVE.match(event.name):
                    continue
                stats = dict(event.stats)
                if "run_id" in stats and "hlo_op" in stats:
                    device = str(stats.get("device_ordinal", plane.name))
                    module, run = str(stats.get("hlo_module", "")), int(stats["run_id"])
                    begin = int(event.start_ns)
                    key = (module, str(stats["hlo_op"]), run, device)
                    of_device[key].append((begin, begin + int(event.duration_ns)))
    whole: dict[tuple[str, str, int, int], tuple[int, int]] = {}
    for (module, operation, run, _), times in of_device.items():
        for number, (begin, end) in enumerate(sorted(times)):
            name = module, operation, run, number
            before = whole.get(name, (begin, end))
            whole[name] = max(before[0], begin), max(before[1], end)
    return [(*name, *times) for name, times in sorted(whole.items())]
