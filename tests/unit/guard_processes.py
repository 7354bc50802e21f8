"""One process of a run without devices, whose guard sees one kind of divergence after the other.

``python -m tests.unit.guard_processes jax|reactant`` with the environment of a process of a run.
Each kind has a guard and a namespace of its own. It prints what the guard said, by kind, as JSON.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from pyreactant.arrays.backend import StartOptions, Store
from pyreactant.arrays.runtimes.guard import explain
from pyreactant.arrays.runtimes.guard.guard import Guard
from pyreactant.arrays.runtimes.guard.operation import Operation
from pyreactant.base.errors import MismatchError
from pyreactant.process.group import ProcessGroup, resolve
from tests.unit.guards import placed, ran

Body = Callable[[Guard, bool], Any]


def program(odd: bool) -> Operation:
    text = f"module @f {{\n  stablehlo.constant dense<{2 + odd}>\n}}\n"
    return Operation("compile", "f", (("program", str(odd)),), "a.py:3", lambda: text)


def one_fewer(guard: Guard, odd: bool) -> None:
    if not odd:
        guard.ran(ran("last"))


def order(guard: Guard, odd: bool) -> None:
    for name in "gf" if odd else "fg":
        guard.ran(ran(name))


def missing_placement(guard: Guard, odd: bool) -> None:
    for number in (7, 8):
        if not (odd and number == 7):
            guard.announce(placed(number))


def thread(guard: Guard, odd: bool) -> None:
    def prefetch() -> None:
        for number in range(3 - odd):
            guard.ran(placed(1, values=str(number)))

    other = threading.Thread(target=prefetch, name="prefetch")
    other.start()
    other.join()


def equal(guard: Guard, odd: bool) -> None:
    for number in range(200):
        guard.announce(placed(number))
        guard.ran(ran("f"))


KINDS: dict[str, Body] = {
    "equal": equal,
    "shape": lambda guard, odd: guard.announce(placed(7, (16, 16) if odd else (8, 8))),
    "values": lambda guard, odd: guard.announce(placed(1, values=str(odd))),
    "program": lambda guard, odd: guard.announce(program(odd)),
    "ran": lambda guard, odd: guard.ran(ran("g" if odd else "f")),
    "order": order,
    "one fewer": one_fewer,
    "missing placement": missing_placement,
    "thread": thread,
}


def main() -> None:
    explain.HEAD_START = 0.0  # process 0 goes on
    group = resolve()
    store, barrier, leave = START[sys.argv[1]](group)
    said: dict[str, str | None] = {}
    odd = group.process_index == 1
    for name, body in KINDS.items():
        guard = Guard(
            store,
            group.process_index,
            group.num_processes,
            namespace=f"guard/{name}",
            fail=lambda error: None,
        )
        try:
            guard.announce(placed(1))
            guard.ran(ran("step"))
            body(guard, odd)
            guard.end()
            said[name] = None
        except MismatchError as error:
            said[name] = str(error)
        barrier(f"after {name}", 30)
        guard.close()
    said["interrupted"] = interrupted(store, group)
    barrier("end", 120)  # the others may be slow on a busy machine
    print(json.dumps(said))
    leave()


def interrupted(store: Store, group: ProcessGroup) -> str:
    """Wait for processes that never come, until Ctrl-C."""
    guard = Guard(
        store,
        group.process_index,
        group.num_processes + 1,
        namespace="guard/interrupted",
        fail=lambda error: None,
    )
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        guard.announce(placed(1))
    except KeyboardInterrupt:
        return "yes"
    finally:
        guard.close()
    return "no"


Started = tuple[Store, Callable[[str, float], None], Callable[[], None]]


def start_jax(group: ProcessGroup) -> Started:
    import jax

    from pyreactant.arrays.runtimes.jax.distributed import connect, run_store, wait_at_barrier

    connect(group, StartOptions())
    return run_store(group.num_processes), wait_at_barrier, jax.distributed.shutdown


def start_reactant(group: ProcessGroup) -> Started:
    from pyreactant.arrays.runtimes.reactant.meeting import meet

    meeting = meet(group, 30, 30)
    return meeting, meeting.barrier, meeting.close


START: dict[str, Callable[[ProcessGroup], Started]] = {
    "jax": start_jax,
    "reactant": start_reactant,
}

if __name__ == "__main__":
    main()
