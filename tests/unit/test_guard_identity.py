"""What a value is for the guard: equal texts for equal values, whatever the process."""

import dataclasses
import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.guard.identity import identity, structure_text
from pyreactant.arrays.tree import OpTrees
from tests.harness import REPOSITORY

WHERE = "static value 'a'"


def made(default: int, constant: bool = False, closed: float = 1.0) -> Callable[..., float]:
    def more(x: float, n: int = default) -> float:
        return x * n * closed + 1

    def times(x: float, n: int = default) -> float:
        return x * n * closed

    more.__qualname__ = times.__qualname__
    return more if constant else times


def holding(value: Any) -> Callable[[], Any]:
    return lambda: value


@dataclasses.dataclass(frozen=True)
class Layer:
    act: Any
    name: str = dataclasses.field(default="a", compare=False)


class Anonymous:
    pass


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (1, np.int64(1)),
    (0.0, -0.0),
    ((1, 2), [1, 2]),
    ((1, (2, 3)), ((1, 2), 3)),
    (("a", "b"), ("a, b",)),
    (frozenset({"a"}), frozenset({"b"})),
    ({"a": 1}, {"a": 2}),
    (made(1), made(2)),
    (made(1), made(1, constant=True)),
    (made(1), made(1, closed=2.0)),
    (len, max),
    (Layer(len), Layer(max)),
    (Layer(made(1)), Layer(made(2))),
    (np.zeros(3), np.zeros(4)),
    (np.zeros(3), np.ones(3)),
    (np.zeros(3, np.float32), np.zeros(3, np.int32)),
    (np.tanh, np.sin),
    (int, float),
]


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_values_that_differ(number: int) -> None:
    one, two = DIFFERENT[number]
    assert identity(one, WHERE) != identity(two, WHERE)


def test_values_that_are_equal() -> None:
    for one, two in [(made(1), made(1)), (Layer(made(2)), Layer(made(2), "b"))]:
        assert identity(one, WHERE) == identity(two, WHERE)
    assert identity((1, frozenset({"b", "a"})), WHERE) == "tuple(1, frozenset{'a', 'b'})"
    loop: list[Any] = [1]
    loop.append(loop)
    assert identity(loop, WHERE) == "list(1, (itself))"


def test_structures() -> None:
    """Elsewhere than in JAX optree has the same structures."""
    trees = OpTrees()
    _, structure = trees.flatten({"b": (1, None), "a": [2, 3], "c": OrderedDict(x=4)})
    text = "{'a': list(*, *), 'b': tuple(*, None), 'c': collections.OrderedDict[list('x')](*)}"
    assert structure_text(trees, structure, WHERE) == text


def test_processes_agree() -> None:
    """Addresses and the hash of a text differ between processes; what a value is does not."""
    code = f"""
import json
from {__name__} import *
values = [value for pair in DIFFERENT for value in pair]
values += [frozenset(map(str, range(20))), Layer(frozenset("abcdefgh"))]
values += [lambda x: x in {{"p", "q", "r"}}]
print(json.dumps([identity(value, "") for value in values]))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
    assert len(json.loads(said.pop())) == 2 * len(DIFFERENT) + 3


@pytest.mark.parametrize(
    ("value", "where", "kind"),
    [
        (Anonymous(), WHERE, f"{__name__}.Anonymous"),
        ((1, Anonymous()), f"{WHERE}[1]", f"{__name__}.Anonymous"),
        (Layer(threading.Lock()), f"{WHERE}.act", "_thread.lock"),
        ({"a": iter(())}, f"{WHERE}['a']", "tuple_iterator"),
        (sys.__stdout__, WHERE, "_io.TextIOWrapper"),
    ],
    ids=["object", "in a tuple", "lock", "iterator", "file"],
)
def test_objects_that_equal_only_themselves(value: Any, where: str, kind: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as caught:
        identity(value, WHERE)
    said = f"{where} must be something that the processes can compare, got an object of type {kind}"
    assert str(caught.value).startswith(f"{said}, which equals only itself; give a number")


def test_what_a_function_holds_may_equal_only_itself() -> None:
    """The text of its program is compared, too."""
    assert identity(holding(Anonymous()), WHERE) == identity(holding(Anonymous()), WHERE)
    assert identity(holding(Anonymous()), WHERE) != identity(holding(Layer(len)), WHERE)
