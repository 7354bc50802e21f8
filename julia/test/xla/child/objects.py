"""The objects of this process which the library holds, by number."""

import itertools
from typing import Any

_objects: dict[int, Any] = {}
_numbers = itertools.count(1)


def keep(value: Any) -> int:
    number = next(_numbers)
    _objects[number] = value
    return number


def held(number: int) -> Any:
    return _objects[number]


def release(numbers: list[int]) -> None:
    for number in numbers:
        del _objects[number]
