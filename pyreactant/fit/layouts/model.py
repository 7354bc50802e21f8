"""Closed forms for a product on a mesh: what each device holds, computes, sends and receives.

Take x (m, k) @ y (k, n) = c (m, n) and a mesh with axes of sizes g_1 ... g_A. In the layout each
axis cuts one dimension of x, or none; likewise of y and of c. To compute, each axis divides one of
the loops m, k and n, or none (then its devices do the same work). XLA's partitioner chooses the
loop (`loops`): k if the axis cuts x and y along k; otherwise the loop along which it cuts c;
otherwise m if it cuts the rows of x, n if it cuts the columns of y; otherwise none. With g_m, g_k,
g_n the products of the sizes of the axes that divide each loop, a device computes
m/g_m * k/g_k * n/g_n multiplications.

Operands. A device needs the (m/g_m) (k/g_k) block of x. It holds the part prod(f_a) of it. f_a is 1
if axis a does not cut x, or cuts it along the loop that a divides: then the part held along a
covers the part needed. Otherwise f_a is 1/g_a. (If several axes cut one dimension, `specs_of`
orders them so that the held part is one piece of the needed one. If no order achieves that, because
one axis cuts a dimension whose loop another one divides, some devices receive more.) The rest,
needed * (1 - prod(f_a)), is received by all-gather or all-to-all, which send nothing twice to one
device. The same holds for y.

Product. Devices along the axes that divide k hold partial sums of an (m/g_m) (n/g_n) block. An
all-reduce over them receives 2 * block * (1 - 1/g_k): once to sum each of g_k parts somewhere, once
to have all parts everywhere (Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH", 2005, section 4.5). Each device then needs its block of c: f_a
is 1 if axis a divides k or none, or the loop of the dimension of c that it cuts; otherwise 1/g_a.

Received along axis a: data is gathered axis by axis in mesh order, so that the first, slow axis
carries the least; partial sums go in the opposite order. The totals above do not depend on the
order.

Memory: each device holds its blocks of x, y and c. The compiler adds memory for gathered data,
depending on how it overlaps the communication; this bound does not include it.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

NONE, M, K, N = 0, 1, 2, 3
"""The loops that an axis can divide."""

LOOPS = {"x": (M, K), "y": (K, N), "c": (M, N)}
"""The loop of each dimension of the operands and of the product."""


@dataclass(frozen=True, slots=True)
class Product:
    """m, k and n, and the bytes of an element."""

    m: int
    k: int
    n: int
    itemsize: int

    @property
    def whole_bytes(self) -> int:
        """Bytes of both operands and the product."""
        return self.itemsize * (self.m * self.k + self.k * self.n + self.m * self.n)

    def side(self, loop: int) -> int:
        """Length of a loop."""
        return (1, self.m, self.k, self.n)[loop]


@dataclass(frozen=True, slots=True)
class Speeds:
    """A device's FLOP/s, bytes/s of memory, and bytes/s received along each axis of a mesh."""

    flops: float
    memory: float
    axes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of many layouts.

    Attributes:
        local: Seconds of computing and of reading and writing memory, the larger.
        received: Bytes a device receives along each axis; shape (axes, layouts).
        memory: Bytes of the blocks of x, y and c on a device.
        loops: What each axis divides; shape (axes, layouts).
        seconds: `local`, and what is received at the speed of its axis, one after the other.
    """

    local: np.ndarray
    received: np.ndarray
    memory: np.ndarray
    loops: np.ndarray
    seconds: np.ndarray


@functools.cache
def every_layout(num_axes: int) -> dict[str, np.ndarray]:
    """All layouts: for "x", "y" and "c", the dimension (1 or 2) that each axis cuts, 0 for none.

    Returns:
        Arrays of shape (axes, 27**axes).
    """
    grid = np.indices((3,) * (3 * num_axes), dtype=np.int8).reshape(3 * num_axes, -1)
    return {name: grid[i * num_axes : (i + 1) * num_axes] for i, name in enumerate("xyc")}


def divisible(product: Product, sizes: tuple[int, ...], cut: dict[str, np.ndarray]) -> np.ndarray:
    """A mask of the layouts with equal blocks, since nothing is padded."""
    fits = np.ones(cut["x"].shape[1], bool)
    for name, loops in LOOPS.items():
        for dimension, loop in enumerate(loops, 1):
            blocks = _blocks(sizes, cut[name], dimension)
            fits &= product.side(loop) % blocks == 0
    return fits


def loops(cut: dict[str, np.ndarray]) -> np.ndarray:
    """The loop that each axis divides, by the partitioner's rule; shape (axes, layouts)."""
    x, y, c = (cut[name] for name in "xyc")
    rules = [(x == 2) & (y == 1), c == 1, c == 2, x == 1, y == 2]
    return np.select(rules, [K, M, N, M, N], NONE).astype(np.int8)


def regular(cut: dict[str, np.ndarray]) -> np.ndarray:
    """A mask of the layouts that the partitioner handles as the closed forms assume.

    It excludes layouts in which one of several axes sums and cuts the product, moves both operands,
    or needs an all-to-all, while another axis exchanges data too: there the partitioner gathers
    operands without need (several times as much was seen).
    """
    x, y, c = (cut[name] for name in "xyc")
    divided = loops(cut)
    moved = (x != 0) & (_loops_cut(cut, "x") != divided)
    moved &= (y != 0) & (_loops_cut(cut, "y") != divided)
    cut_sum = (x == 2) & (y == 1) & (c != 0)
    still = ((x == 1) & (y == 0) & (c == 1)) | ((x == 0) & (y == 2) & (c == 2))
    still |= (x == 0) & (y == 0) & (c == 0)
    odd = cut_sum | moved | ((x == 2) & (divided == M)) | ((y == 1) & (divided == N))
    return np.asarray(~odd.any(axis=0) | ((odd | still).all(axis=0) & (odd.sum(axis=0) < 2)))


def costs(
    product: Product, sizes: tuple[int, ...], cut: dict[str, np.ndarray], speeds: Speeds
) -> Costs:
    """Closed forms for layouts.

    Args:
        product: Sizes of the product.
        sizes: Sizes of the mesh axes.
        cut: Layouts, as from `every_layout`.
        speeds: Speeds of a device.
    """
    divided = loops(cut)
    received = product.itemsize * exchange(product, sizes, cut, divided)
    m, k, n = (product.side(loop) / _blocks(sizes, divided, loop) for loop in (M, K, N))
    touched = (m * k + k * n + m * n) * product.itemsize + 2 * received.sum(axis=0)
    local = np.maximum(2 * m * k * n / speeds.flops, touched / speeds.memory)
    seconds = local + (received / np.array(speeds.axes)[:, None]).sum(axis=0)
    return Costs(local, received, memory_bytes(product, sizes, cut), divided, seconds)


def memory_bytes(
    product: Product, sizes: tuple[int, ...], cut: dict[str, np.ndarray]
) -> np.ndarray:
    """Bytes of the blocks of x, y and c on each device, a lower bound of its memory."""
    total = np.zeros(cut["x"].shape[1])
    for name, loops in LOOPS.items():
        whole = product.side(loops[0]) * product.side(loops[1])
        total += whole / (_blocks(sizes, cut[name], 1) * _blocks(sizes, cut[name], 2))
    return total * product.itemsize


def exchange(
    product: Product, sizes: tuple[int, ...], cut: dict[str, np.ndarray], divided: np.ndarray
) -> np.ndarray:
    """Elements that a device receives along each axis when the axes divide these loops.

    Args:
        product: Sizes of the product.
        sizes: Sizes of the mesh axes.
        cut: Layouts, as from `every_layout`.
        divided: A loop for each axis and layout, as from `loops`.

    Returns:
        Shape (axes, layouts).
    """
    part = {loop: product.side(loop) / _blocks(sizes, divided, loop) for loop in (M, K, N)}
    received, share = np.zeros(divided.shape), 1 / np.array(sizes)[:, None]
    for name in "xy":
        first, second = LOOPS[name]
        along = _loops_cut(cut, name)
        held = np.where((along == NONE) | (along == divided), 1.0, share)
        _gather(received, part[first] * part[second], held)
    partial = part[M] * part[N]
    for axis in reversed(range(len(sizes))):
        summed = divided[axis] == K
        received[axis] += np.where(summed, 2 * partial * (1 - 1 / sizes[axis]), 0)
        partial = np.where(summed, partial / sizes[axis], partial)
    whole = product.m * product.n
    block = whole / (_blocks(sizes, cut["c"], 1) * _blocks(sizes, cut["c"], 2))
    there = np.isin(divided, (NONE, K)) | (_loops_cut(cut, "c") == divided)
    _gather(received, block, np.where(there, 1.0, share))
    return received


def _loops_cut(cut: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The loop of the dimension of x, y or c that each axis cuts."""
    return np.array((NONE, *LOOPS[name]))[cut[name]]


def _blocks(sizes: tuple[int, ...], where: np.ndarray, value: int) -> np.ndarray:
    """The product of the sizes of the axes with this value."""
    factors = [np.where(axis == value, size, 1) for size, axis in zip(sizes, where, strict=True)]
    return np.asarray(math.prod(factors))


def _gather(received: np.ndarray, needed: np.ndarray, held: np.ndarray) -> None:
    """Add the data that each axis receives, axis by axis, until a device has what it needs."""
    there = needed * held.prod(axis=0)
    for axis, part in enumerate(held):
        received[axis] += there / part - there
        there = there / part
