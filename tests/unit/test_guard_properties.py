"""Whatever processes do: equal ones never alarm, and one change is found at its number."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pyreactant.arrays.runtimes.guard.guard import Guard
from pyreactant.arrays.runtimes.guard.operation import Operation
from tests.unit.guards import one_error, placed, ran, together

Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["announce", "ran"]), st.integers(0, 4)), max_size=40)
FEW = settings(max_examples=40, deadline=None)


def operation(step: Step) -> Operation:
    kind, number = step
    return placed(number) if kind == "announce" else ran(f"f{number}")


def do(guard: Guard, steps: list[Step]) -> None:
    for step in steps:
        (guard.announce if step[0] == "announce" else guard.ran)(operation(step))
    guard.end(30)


@FEW
@given(STEPS, st.integers(2, 9))
def test_equal_processes_never_alarm(steps: list[Step], count: int) -> None:
    assert together(count, lambda guard, index: do(guard, steps), tick=0.003) == [None] * count


@FEW
@given(STEPS, st.integers(2, 9), st.data())
def test_one_change_is_found_at_its_number(
    steps: list[Step], count: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(steps)))
    new: Step = (data.draw(st.sampled_from(["announce", "ran"])), 9)
    change = data.draw(st.sampled_from(["insert", "replace", "remove"]))
    changed = [*steps[:at], *([] if change == "remove" else [new])]
    changed += steps[at + (change != "insert") :]
    odd = data.draw(st.integers(0, count - 1))
    pairs = [*map(operation, steps), None], [*map(operation, changed), None]
    digests = [[o and o.digest for o in each] for each in pairs]
    first = next((i for i, (a, b) in enumerate(zip(*digests, strict=False)) if a != b), None)
    found = together(
        count, lambda guard, index: do(guard, changed if index == odd else steps), tick=0.003
    )
    if first is None:
        assert found == [None] * count
    else:
        text = one_error(found)
        assert re.search(r" at operation (\d+)", text)[1] == str(first + 1)  # type: ignore[index]
        assert f"process {odd} differs" in text or count == 2
