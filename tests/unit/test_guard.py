"""The guard names what differs between processes, and nothing else. The processes are threads."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.guard.guard import Guard
from pyreactant.arrays.runtimes.guard.operation import Operation
from tests.unit.guards import MemoryStore, one_error, placed, ran, together

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
    "values": (
        placed(7, values="ab"),
        placed(7, values="cd"),
        "digest of the values ab on {0}; cd on 1. ",
    ),
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
        "digest of the values 0 on {0}; (none) on 1. ",
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


def test_difference_in_values_of_an_agreed_placement() -> None:
    """The placement waits for nobody, so the comparison in the background finds it."""

    def differ(guard: Guard, index: int) -> None:
        guard.announce(placed(1, values=str(index == 2)))

    assert "digest of the values False on 0, 1; True on 2. " in one_error(end_of(3, differ))


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
