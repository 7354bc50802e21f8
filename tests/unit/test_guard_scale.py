"""The guard of many processes and of many operations."""

from pyreactant.arrays.runtimes.guard.guard import Guard
from tests.unit.guards import Counted, MemoryStore, one_error, placed, ran, together


def test_keys_do_not_grow() -> None:
    store = MemoryStore()
    sizes = []

    def body(guard: Guard, index: int) -> None:
        for number in range(300):
            guard.announce(placed(number))
            if index == 0 and number in (100, 299):
                sizes.append(len(store.values))
        for number in range(10_000):
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


def test_216_processes_of_which_some_differ() -> None:
    store = MemoryStore()
    views = [Counted(store) for _ in range(216)]

    def body(guard: Guard, index: int) -> None:
        guard.announce(placed(1, (8, 8) if index % 2 else (8, 9 + index % 3)))

    text = one_error(together(216, body, store=views.__getitem__, tick=30))
    assert "shape (8, 8) on 1, 3, 5, 7, 9, 11, 13, 15 and 100 more; (8, 9) on 0, 6, 12, 18" in text
    assert "and 28 more" in text
    assert store.largest <= 4096
    assert (
        max(sum(n for key, n in view.messages.items() if "/thread/" in key) for view in views) == 8
    )
