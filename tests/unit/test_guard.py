"""The guard names what differs between processes, and nothing else. The processes are threads."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pyreactant as pr
from pyreactant._core import progress
from pyreactant._runtimes.guard.failure import Failure
from pyreactant._runtimes.guard.guard import Guard
from pyreactant._runtimes.guard.operation import Operation
from tests.unit.guards import Counted, MemoryStore, one_error, placed, ran, together

STABLEHLO = """module @jit_step {{
  func.func public @main(%arg0: tensor<8xf32>) -> (tensor<8xf32>) {{
    %cst = stablehlo.constant dense<{}> : tensor<f32>
    return %arg0 : tensor<8xf32>
  }}
}}
"""


def compiled(name: str, *, constant: float = 2.0, **fields: str) -> Operation:
    text = STABLEHLO.format(constant)
    values = {"program": text.replace("\n", ""), "static": "", "precision": "None", **fields}
    pairs = tuple((k, str(hash_of(v)) if k == "program" else v) for k, v in values.items())
    return Operation("compile", name, pairs, "train.py:20", lambda: text)


def hash_of(text: str) -> int:
    return sum(ord(c) * i for i, c in enumerate(text))


def end_of(count: int, ends: Callable[[Guard, int], Any]) -> list[Any]:
    """Two operations, then those of a test, then the end."""

    def body(guard: Guard, index: int) -> None:
        guard.announce(placed(1))
        guard.ran(ran("step"))
        ends(guard, index)
        guard.end(20)

    return together(count, body)


def test_equal_processes_agree() -> None:
    waited = []

    def body(guard: Guard, index: int) -> str:
        for _ in range(3):
            time.sleep(0.05 * (index == 2))
            guard.announce(placed(1))
            assert guard.agreed(placed(1).key)
            guard.announce(compiled("step"))
            for _ in range(50):
                guard.ran(ran("step"))
        started = time.monotonic()
        guard.announce(placed(1, values="1"))  # agreed but for its values, so nobody waits
        waited.append(time.monotonic() - started)
        guard.end(20)
        return "done"

    store = MemoryStore()
    assert together(4, body, store=store) == ["done"] * 4
    assert store.most < 30


def placing(guard: Guard, operation: Operation) -> None:
    guard.announce(operation)


KINDS: dict[str, tuple[Operation, Operation, str]] = {
    "shape": (placed(7, (8, 8)), placed(7, (16, 16)), "shape (8, 8) on {0}; (16, 16) on 1. "),
    "values": (placed(7, values="ab"), placed(7, values="cd"), "values ab on {0}; cd on 1. "),
    "line": (
        placed(7),
        placed(8),
        ": device_put at train.py:7 on {0}; device_put at train.py:8 on 1. ",
    ),
    "kind": (
        placed(7),
        ran("step"),
        ": device_put at train.py:7 on {0}; run of step at train.py:99 on 1. ",
    ),
    "constant": (
        compiled("f"),
        compiled("f", constant=3.0),
        "StableHLO line 3 `%cst = stablehlo.constant dense<2.0> : tensor<f32>` on {0}; "
        "`%cst = stablehlo.constant dense<3.0> : tensor<f32>` on 1. ",
    ),
    "static": (compiled("f", static="n=1"), compiled("f", static="n=2"), "static n=1 on {0}; n=2"),
    "precision": (
        compiled("f"),
        compiled("f", precision="highest"),
        "precision None on {0}; highest on 1. ",
    ),
    "more fields": (
        placed(7),
        Operation("device_put", "", (*placed(7).fields[:2], ("mask", "x")), "train.py:7"),
        "values 0 on {0}; (none) on 1. ",
    ),
    "fewer fields": (
        Operation("gather", "", (("shape", "(8,)"),), "train.py:7"),
        Operation("gather", "", (("shape", "(8,)"), ("dtype", "f")), "train.py:7"),
        "dtype (none) on {0}; f on 1. ",
    ),
}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wait", [True, False], ids=["announced", "ran"])
def test_what_differs_is_named(count: int, kind: str, wait: bool) -> None:
    common, odd, said = KINDS[kind]

    def differ(guard: Guard, index: int) -> None:
        operation = odd if index == 1 else common
        (guard.announce if wait else guard.ran)(operation)

    text = one_error(end_of(count, differ))
    assert " at operation 3" in text
    who = "processes 0 and 1 differ" if count == 2 else "process 1 differs from the 3 others"
    assert text.startswith(who)
    assert said.format("0" if count == 2 else "0, 2, 3") in text, text
    assert "Every process must do the same operations in the same order" in text


ORDERS: dict[str, tuple[list[Operation], list[Operation], str]] = {
    "order": ([ran("f"), ran("g")], [ran("g"), ran("f")], "operation 3: run of f"),
    "one more": ([], [ran("f")], "operation 3: end on"),
    "one fewer": ([ran("f")], [], "operation 3: run of f"),
    "missing placement": ([placed(7), placed(8)], [placed(8)], "operation 3: device_put"),
    "later": ([ran("f")] * 40, [ran("f")] * 20 + [ran("g")] + [ran("f")] * 19, "operation 23: run"),
}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kind", ORDERS)
def test_another_order_is_named(count: int, kind: str) -> None:
    common, odd, said = ORDERS[kind]

    def differ(guard: Guard, index: int) -> None:
        for operation in odd if index == 1 else common:
            guard.ran(operation)

    assert said in one_error(end_of(count, differ))


def test_difference_in_values_of_an_agreed_placement() -> None:
    """The placement waits for nobody, so the comparison in the background finds it."""

    def differ(guard: Guard, index: int) -> None:
        guard.announce(placed(1, values=str(index == 2)))

    assert "values False on 0, 1; True on 2. " in one_error(end_of(3, differ))


def test_all_differ() -> None:
    def differ(guard: Guard, index: int) -> None:
        guard.announce(placed(7, (index,)))

    text = one_error(end_of(6, differ))
    assert text.startswith("processes 0; 1; 2; 3; 4; 5 differ at operation 3")
    assert "shape (0,) on 0; (1,) on 1; (2,) on 2; (3,) on 3; something else on 2 more. " in text


def test_long_values_are_cut_around_the_difference() -> None:
    def differ(guard: Guard, index: int) -> None:
        guard.announce(placed(7, [*range(2000), index, *range(2000)]))

    text = one_error(end_of(2, differ))
    assert "1998, 1999, 0, 0, 1, 2" in text
    assert "1998, 1999, 1, 0, 1, 2" in text
    assert len(text) < 1000


def test_long_programs_are_compared_by_line() -> None:
    def text_of(index: int) -> str:
        lines = [f"    %{i} = stablehlo.add %{i * 7919 % 65537}" for i in range(20000)]
        lines[15000] = f"    %x = stablehlo.constant dense<{index}>"
        return "\n".join(lines)

    def differ(guard: Guard, index: int) -> None:
        fields = (("program", f"digest {index}"),)
        guard.announce(Operation("compile", "f", fields, "a.py:1", lambda: text_of(index)))

    store = MemoryStore()

    def body(guard: Guard, index: int) -> None:
        differ(guard, index)

    text = one_error(together(2, body, store=store))
    assert "StableHLO line 15001 `%x = stablehlo.constant dense<0>` on 0; " in text
    assert store.largest <= 4096


def test_text_that_cannot_be_made_leaves_nobody_waiting() -> None:
    def body(guard: Guard, index: int) -> None:
        def text() -> str:
            if index:
                raise RuntimeError("no text")
            return "a"

        guard.announce(Operation("compile", "f", (("program", str(index)),), "a.py:1", text))

    text = one_error(together(2, body))
    assert "`a` on 0; `(the text could not be made: RuntimeError('no text'))` on 1" in text


def test_a_slow_process_is_no_mismatch() -> None:
    def body(guard: Guard, index: int) -> str:
        for number in range(30):
            if index == 1:
                time.sleep(0.02)
            guard.ran(ran(f"f{number}"))
        started = time.monotonic()
        guard.end(0.1 if index == 0 else 20)
        return "in time" if time.monotonic() - started < 10 else "late"

    assert together(3, body) == ["in time"] * 3


def test_after_a_mismatch_every_operation_raises() -> None:
    def body(guard: Guard, index: int) -> int:
        guard.ran(ran(f"f{index}"))
        while guard.error is None:
            time.sleep(0.01)
        raised = 0
        for call in (guard.ran, guard.announce, lambda _: guard.end()):
            with pytest.raises(pr.MismatchError, match="operation 1: run of f0 at"):
                call(ran("g"))
            raised += 1
        other = threading.Thread(target=lambda: others.append(_raises(guard)), name="prefetch")
        other.start()
        other.join(20)
        return raised

    others: list[bool] = []
    assert together(2, body) == [3, 3]
    assert others == [True, True]


def _raises(guard: Guard) -> bool:
    with pytest.raises(pr.MismatchError):
        guard.ran(ran("h"))
    return True


def test_fail_is_called_once_in_every_process() -> None:
    called: list[str] = []

    def body(guard: Guard, index: int) -> None:
        guard.ran(ran(f"f{index}"))
        guard.end(20)

    found = together(3, body, fail=lambda error: called.append(str(error)))
    assert called == [one_error(found)] * 3


def test_lost_store_ends_every_wait() -> None:
    store = MemoryStore()

    def body(guard: Guard, index: int) -> None:
        guard.announce(placed(1))
        if index == 0:
            time.sleep(0.1)
            store.lose()
        guard.announce(placed(2))

    found = together(3, body, store=store)
    assert [type(error) for error in found] == [pr.DeadlineError] * 3


def test_keys_do_not_grow() -> None:
    store = MemoryStore()
    sizes = []

    def body(guard: Guard, index: int) -> None:
        for number in range(300):
            guard.announce(placed(number))
            if index == 0 and number in (100, 299):
                sizes.append(len(store.values))
        for number in range(100_000 // 2):
            guard.ran(ran("f"))
            guard.announce(placed(number % 300, values=str(number)))
        guard.end(60)

    assert together(2, body, store=store) == [None, None]
    assert store.most <= 24
    assert len(store.values) <= 12


def test_first_difference_of_many_is_found() -> None:
    operations = [ran(f"f{i}") for i in range(7)]

    def body(guard: Guard, index: int) -> None:
        for number in range(100_000):
            guard.ran(operations[(number + (number == 71_234 and index == 1)) % 7])
        guard.end(60)

    text = one_error(together(3, body, tick=5))
    assert "at operation 71235: run of f2 at train.py:99 on 0, 2; run of f3" in text  # 71234 % 7


def test_1024_processes() -> None:
    """At most 8 messages of 4 KiB per process and exchange."""
    store = MemoryStore()
    views = [Counted(store) for _ in range(1024)]

    def body(guard: Guard, index: int) -> None:
        guard.announce(placed(1))

    found = together(1024, body, store=views.__getitem__, tick=0)
    assert found == [None] * 1024
    assert max(view.messages.total() for view in views) == 8
    assert store.largest <= 4096


def test_1024_processes_of_which_some_differ() -> None:
    store = MemoryStore()
    views = [Counted(store) for _ in range(1024)]

    def body(guard: Guard, index: int) -> None:
        guard.announce(placed(1, (8, 8) if index % 2 else (8, 9 + index % 3)))

    text = one_error(together(1024, body, store=views.__getitem__, tick=30))
    assert "shape (8, 8) on 1, 3, 5, 7, 9, 11, 13, 15 and 504 more; (8, 9) on 0, 6, 12, 18" in text
    assert "and 163 more" in text
    assert store.largest <= 4096
    assert (
        max(sum(n for key, n in view.messages.items() if "/thread/" in key) for view in views) == 8
    )


def test_threads_are_compared_by_their_names() -> None:
    def body(guard: Guard, index: int) -> None:
        def prefetch(name: str) -> None:
            for number in range(20):
                time.sleep(0.001 * ((index + number) % 3))
                guard.announce(placed(number, values=name))

        others = [
            threading.Thread(target=prefetch, args=(name,), name=name) for name in ("a/b", "c", "é")
        ]
        for other in others if index else others[::-1]:
            other.start()
        for number in range(200):
            guard.ran(ran(f"f{number}"))
            time.sleep(0.0005 * (index + 1))
        for other in others:
            other.join(20)
        guard.end(20)

    assert together(3, body) == [None] * 3


@pytest.mark.parametrize("missing", [19, 3, 0])
def test_missing_operation_of_a_thread_is_named_at_the_end(missing: int) -> None:
    operations = [placed(1), *(placed(1, values=str(n)) for n in range(1, 20))]

    def body(guard: Guard, index: int) -> None:
        def prefetch() -> None:
            kept = [o for n, o in enumerate(operations) if index == 0 or n != missing]
            for operation in kept if missing else kept[:0] if index else kept:
                guard.ran(operation)

        other = threading.Thread(target=prefetch, name=f"prefetch of {missing}")
        other.start()
        guard.ran(ran("f"))
        other.join(20)
        guard.end(20)

    text = one_error(together(2, body))
    assert f"at operation {missing + 1} of thread 'prefetch of {missing}'" in text
    if missing != 3:
        assert "nothing on 1. " in text


def test_thread_that_goes_on_at_the_end_is_no_mismatch() -> None:
    """A daemon thread that fetches ahead is at another batch in each process."""
    ended = threading.Event()

    def body(guard: Guard, index: int) -> None:
        def prefetch() -> None:
            for number in range(5 + index):
                guard.announce(placed(1, values=str(number)))
            ended.wait(20)

        threading.Thread(target=prefetch, name="ahead", daemon=True).start()
        time.sleep(0.1)
        guard.end(20)

    try:
        assert together(3, body) == [None] * 3
    finally:
        ended.set()


def test_two_threads_of_one_name_are_an_error() -> None:
    def body(guard: Guard, index: int) -> Any:
        if index == 1:
            time.sleep(0.3)
            guard.announce(placed(1))
            return None
        others = []

        def announce() -> None:
            try:
                guard.announce(placed(1))
            except pr.StateError as error:
                others.append(str(error))

        twins = [threading.Thread(target=announce, name="MainThread") for _ in range(2)]
        for twin in twins:
            twin.start()
        for twin in twins:
            twin.join(20)
        return others

    (text,), _ = together(2, body)
    assert "two threads named 'MainThread' do operations at the same time" in text


def test_operation_that_only_some_announce_leaves_nobody_waiting() -> None:
    """As if a program was in the cache of one process only: all do the same."""

    def body(guard: Guard, index: int) -> None:
        for number in range(3):
            (guard.ran if index == number else guard.announce)(placed(number))
        guard.end(20)

    assert together(3, body) == [None] * 3


def test_guards_of_two_namespaces_are_independent() -> None:
    store = MemoryStore()
    found: list[list[str]] = [[], []]

    def run(index: int) -> None:
        for name in ("a", "b"):
            guard = Guard(store, index, 2, namespace=name, fail=lambda e: None, tick=0.02)
            try:
                guard.announce(placed(1, (index if name == "a" else 0,)))
                guard.end(20)
                found[index].append("equal")
            except pr.MismatchError:
                found[index].append("differ")
            guard.close()

    threads = [threading.Thread(target=run, args=(i,), name="MainThread") for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [["differ", "equal"]] * 2


def test_failure_ends_a_process_that_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("pyreactant._runtimes.guard.failure.end_at_once", ended.append)
    failure = Failure()
    watcher = threading.Thread(target=failure, args=(pr.MismatchError("they differ"),))
    watcher.start()
    time.sleep(0.8)
    assert watcher.is_alive()  # it waits in no collective
    with progress.collective("gather", "x"):
        watcher.join(20)
    assert ended == [5]
    assert capsys.readouterr().err == "pyreactant: MismatchError: they differ\n"


def test_failure_lets_a_closed_guard_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("pyreactant._runtimes.guard.failure.end_at_once", ended.append)
    failure = Failure()
    watcher = threading.Thread(target=failure, args=(pr.MismatchError("they differ"),))
    watcher.start()
    failure.close()
    with progress.collective("gather", "x"):
        watcher.join(20)
    assert ended == []
