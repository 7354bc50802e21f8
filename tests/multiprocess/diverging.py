"""One process of a run whose process 1 does something else than the others.

``python -m tests.multiprocess.diverging BACKEND KIND...``: of several kinds each gets a guard of
its own, and what the guard said is printed by kind as JSON.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.runtimes import runtime
from pyreactant.arrays.runtimes.guard import Guarded, explain
from pyreactant.arrays.runtimes.guard.guard import Guard, Terminator
from pyreactant.arrays.runtimes.guard.operation import gathering
from pyreactant.process import progress
from tests import numpy_backend


class Run:
    """What the kinds use: shardings, and an array that all processes placed."""

    def __init__(self) -> None:
        self.odd = pr.process_index() == 1
        count = len(pr.devices())
        self.line = pr.Mesh((count,), ("i",))
        self.square = pr.Mesh((2, count // 2), ("a", "b"))
        self.rows = pr.NamedSharding(self.line, ("i",))
        self.whole = pr.NamedSharding(self.line, ())
        self.x = self.put(np.ones((16, 16), np.float32))

    def put(self, array: Any, sharding: Any = None) -> Any:
        return pr.device_put(array, sharding or self.rows)

    def sums(self) -> Any:
        return pr.compile(total, self.x)


def total(x: Any) -> Any:
    return x.sum()


def columns(x: Any) -> Any:
    return x.sum(axis=0)


def scaled(x: Any, n: int = 1) -> Any:
    return x * n * n


def shape(run: Run) -> None:
    run.put(np.ones((32, 32) if run.odd else (16, 16), np.float32))


def dtype(run: Run) -> None:
    run.put(np.ones((16, 16), np.int32 if run.odd else np.float32))


def spec(run: Run) -> None:
    run.put(np.ones((16, 16), np.float32), run.whole if run.odd else run.rows)


def mesh(run: Run) -> None:
    sharding = pr.NamedSharding(run.square if run.odd else run.line, ())
    run.put(np.ones((16, 16), np.float32), sharding)


def constant(run: Run) -> None:
    factor = 3.0 if run.odd else 2.0
    pr.compile(lambda x: x * factor, run.x)(run.x)


def branch(run: Run) -> None:
    y = pr.compile(lambda x: x - x, run.x) if run.odd else pr.compile(lambda x: x + x, run.x)
    y(run.x)


def values(run: Run) -> None:
    run.put(np.full((16, 16), run.odd, np.float32))


def static(run: Run) -> None:
    pr.compile(scaled, run.x, static={"n": 2 + run.odd})(run.x)


def version(run: Run) -> None:
    names: dict[str, Any] = {}
    exec(f"def step(x): return x + {1 + run.odd}.0", names)
    pr.compile(names["step"], run.x)(run.x)


def precision(run: Run) -> None:
    pr.compile(lambda x: x @ x, run.x, precision="highest" if run.odd else "default")(run.x)


def missing_placement(run: Run) -> None:
    if not run.odd:
        run.put(np.ones((8, 8), np.float32))
    run.put(np.ones((24, 24), np.float32))


def another_array(run: Run) -> None:
    """The same program on another array of the same shape and sharding."""
    other, f = run.put(np.zeros((16, 16), np.float32)), run.sums()
    f(other if run.odd else run.x)
    run.put(np.ones((40, 40), np.float32))


def gathered(run: Run) -> None:
    other = run.put(np.zeros((16, 16), np.float32))
    (other if run.odd else run.x).gather()
    run.put(np.ones((40, 40), np.float32))


def replicated(run: Run) -> None:
    """Every device holds the whole array, but the callbacks of the processes differ."""
    whole = np.full((16, 16), run.odd, np.float32)
    pr.from_callback((16, 16), np.float32, run.whole, whole.__getitem__)


def thread(run: Run) -> None:
    """A thread places one array fewer; its last operation is compared at the end."""

    def prefetch() -> None:
        for number in range(4 - run.odd):
            run.put(np.full((16, 16), number, np.float32))

    other = threading.Thread(target=prefetch, name="prefetch")
    other.start()
    other.join()


def same(run: Run) -> None:
    """Equal processes, with a thread that compiles and places at its own pace."""

    def prefetch() -> None:
        for number in range(20):
            run.put(np.full((16, 16), number, np.float32))
            pr.compile(total, run.x)

    other = threading.Thread(target=prefetch, name="prefetch")
    other.start()
    for _ in range(20):
        pr.compile(total, run.x)(run.x)
    other.join()


def order(run: Run) -> None:
    programs = [pr.compile(total, run.x), pr.compile(columns, run.x)]
    for program in programs[::-1] if run.odd else programs:
        program(run.x)


def one_more(run: Run) -> None:
    f = run.sums()
    for _ in range(5 + run.odd):
        f(run.x)


def one_fewer(run: Run) -> None:
    f = run.sums()
    for _ in range(5 - run.odd):
        f(run.x)


KINDS: dict[str, Callable[[Run], None]] = {
    f.__name__.replace("_", " "): f
    for f in (
        same,
        shape,
        dtype,
        spec,
        mesh,
        constant,
        branch,
        values,
        static,
        version,
        precision,
        missing_placement,
        another_array,
        gathered,
        replicated,
        thread,
        order,
        one_more,
        one_fewer,
    )
}


def guard_anew(name: str) -> Guard:
    """Begin with a guard that knows nothing of the operations so far."""
    running = runtime.current()
    assert running.guarded is not None
    running.backend.barrier(name, 60)
    running.guarded.terminator.close()
    running.guarded.guard.close()
    running.cache.clear()
    running.calls.clear()
    store, group, terminator = running.backend.store(), running.group, Terminator()
    assert store is not None
    guard = Guard(
        store, group.process_index, group.num_processes, namespace=f"guard/{name}", fail=terminator
    )
    running.guarded = Guarded(guard, terminator)
    progress.gathered = lambda what, array: guard.ran(gathering(what), (array,))
    progress.failed = guard.settle
    return guard


def interrupted() -> bool:
    """Whether Ctrl-C ends the wait for a process that never comes."""
    running = runtime.current()
    store, group = running.backend.store(), running.group
    assert store is not None
    guard = Guard(
        store,
        group.process_index,
        group.num_processes + 1,
        namespace="guard/interrupted",
        fail=lambda error: None,
    )
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        guard.announce(gathering("x"))
    except KeyboardInterrupt:
        return True
    finally:
        guard.close()
    return False


def main(backend: str, kinds: list[str]) -> None:
    numpy_backend.add()
    pr.initialize(backend)
    if len(kinds) == 1:
        run = Run()
        KINDS[kinds[0]](run)
        print("sum", run.x.gather().sum(), flush=True)
        pr.shutdown()
        return
    explain.HEAD_START = 0.0  # process 0 goes on
    said: dict[str, str | bool | None] = {}
    for kind in kinds:
        guard = guard_anew(kind)
        try:
            KINDS[kind](Run())
            guard.end()
            said[kind] = None
        except pr.MismatchError as error:
            said[kind] = str(error)
    said["interrupted"] = interrupted()
    guard_anew("end")
    print(json.dumps(said), flush=True)
    pr.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
