"""Ways to factor a number of devices, and the few of many candidates that are worth a look."""

import math
from collections.abc import Iterator

import numpy as np


def factorisations(number: int, parts: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as a product of at most `parts` factors, in ascending order."""
    if number >= least or number == 1:
        yield (number,)
    if parts > 1:
        for factor in range(least, math.isqrt(number) + 1):
            if number % factor == 0:
                for rest in factorisations(number // factor, parts - 1, factor):
                    yield (factor, *rest)


def promising(seconds: np.ndarray, memory: np.ndarray, keep: int) -> list[int]:
    """Indices, fastest first: what nothing else beats in both, then the fastest of the rest.

    What has no finite time or memory is left out, and of equals all but one. The first half are
    the fastest of those that nothing beats, then the smallest of them, then those that only the
    ones before beat.
    """
    points = {
        (float(f"{seconds[i]:.6g}"), float(f"{memory[i]:.6g}")): int(i)
        for i in reversed(range(len(seconds)))
        if np.isfinite(seconds[i] + memory[i])
    }
    order = [points[point] for point in sorted(points)]
    chosen: set[int] = set()
    left = order
    while left and len(chosen) < keep:
        front, least = [], math.inf
        for index in left:
            if memory[index] < least:
                front.append(index)
                least = memory[index]
        room = keep - len(chosen)
        fastest = front[: room - room // 2]
        chosen |= {*fastest, *front[len(fastest) :][::-1][: room - len(fastest)]}
        left = [index for index in left if index not in set(front)]
    return [index for index in order if index in chosen]
