"""Where in a block the wrong elements are: counts in a grid of at most 16 x 16 cells."""

import math

import numpy as np
import pytest

from pyreactant.check.bounds.sight import cell_sizes, count_wrong, grid_of, total

SHAPES = [(), (1,), (7,), (100,), (3, 5), (64, 33), (5, 6, 7), (2, 3, 4, 50), (0, 4), (4, 0)]


def slowly(wrong: np.ndarray) -> np.ndarray:
    """The counts, one element after the other."""
    shape = wrong.shape
    lines, columns = grid_of(shape)
    found = np.zeros((lines, columns), int)
    for *leading, column in np.argwhere(wrong.reshape(shape or (1,))):
        line = int(np.ravel_multi_index(leading, shape[:-1])) if leading else 0
        length = math.prod(shape[:-1])
        found[line * lines // length, column * columns // (shape or (1,))[-1]] += 1
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_counts_of_a_whole_block_and_of_its_tiles(shape: tuple[int, ...]) -> None:
    wrong = np.asarray(np.random.default_rng(2).random(shape) < 0.3)
    assert wrong.any() or not wrong.size
    expected = slowly(wrong)
    assert np.array_equal(count_wrong(wrong, [0] * len(shape), shape), expected)
    half = [slice(0, n // 2) for n in shape], [slice(n // 2, n) for n in shape]
    tiles = [tuple(half[i >> d & 1][d] for d in range(len(shape))) for i in range(2 ** len(shape))]
    parts = [count_wrong(wrong[t], [s.start for s in t], shape) for t in tiles]
    assert np.array_equal(total([None, *parts]), expected)
    assert total([None]) is None


@pytest.mark.parametrize("length", [1, 7, 16, 17, 1000])
def test_cells_have_all_positions(length: int) -> None:
    cells = min(length, 16)
    counted = np.bincount(np.arange(length) * cells // length)
    assert cell_sizes(length, cells) == counted.tolist()
