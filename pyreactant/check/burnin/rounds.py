"""The rounds of a burn-in as data: what runs on devices alone, and in which groups of processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ...arrays.mesh import Mesh
from ...arrays.text import bytes_text


class What(StrEnum):
    """What a round does."""

    HOST = "arithmetic on the host"
    PRODUCTS = "products"
    CHAINS = "chains"
    COPIES = "copies from the host"
    MEMORY = "memory"
    COUNTERS = "counters of the hardware"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    PERMUTE = "permute"


COLLECTIVES = (
    What.ALL_REDUCE,
    What.ALL_GATHER,
    What.REDUCE_SCATTER,
    What.ALL_TO_ALL,
    What.PERMUTE,
)


ALONG_AXES = (What.ALL_REDUCE, What.ALL_GATHER)
"""What runs along each axis of a mesh."""


@dataclass(frozen=True, slots=True)
class Round:
    """A round.

    Attributes:
        what: What it does.
        dtype: Element type of products.
        nbytes: Bytes that each device gives to a copy or a collective operation.
        groups: Groups of processes, each of which runs the collective by itself; none for rounds
            of single devices.
        pairs: Whether the groups are pairs, whose times are those of links.
        mesh: The mesh along one of whose axes all devices run the collective at once; None where
            each group is by itself.
        axis: Number of that axis.
    """

    what: What
    dtype: str = ""
    nbytes: int = 0
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: bool = False
    mesh: Mesh | None = None
    axis: int = 0

    @property
    def name(self) -> str:
        """Such as "products of float32" or "all-reduce of 4 KiB in pairs"; not unique."""
        if self.dtype:
            return f"{self.what} of {self.dtype}"
        size = f" of {bytes_text(self.nbytes)}" if self.nbytes else ""
        most = max(map(len, self.groups), default=1)
        among = " in pairs" if self.pairs else f" among {most}" if most > 1 else ""
        if self.mesh is not None:
            among = f" along axis {self.mesh.axis_names[self.axis]}"
        return f"{self.what}{size}{among}"


_TOURNAMENT = 16
"""Up to so many processes each meets each other; above, it meets those at distances 1, 2, 4, ..."""

_SIZES = {"cpu": (2**12, 2**18, 2**22)}
_SIZES_OTHERWISE = (2**12, 2**20, 2**24, 2**28)
"""Bytes that each device gives to a collective: the latency shows in few, the bandwidth in many."""

_MOST = {"cpu": 2**25}
_MOST_OTHERWISE = 2**28
"""Bytes of all devices of a collective together, of which each host computes the result."""


def rounds_of(
    processes: int,
    platform: str,
    devices: int = 1,
    memory: float | None = None,
    mesh: Mesh | None = None,
    homes: Sequence[int] = (),
) -> list[Round]:
    """One turn of rounds.

    Args:
        processes: Number of processes.
        platform: "cpu", "gpu" or "tpu".
        devices: Devices of each process.
        memory: Share of the free memory that is tested; None for that of the platform.
        mesh: A mesh of all devices, whose axes are tested one by one.
        homes: The process of each device, for a mesh.
    """
    dtypes = {"cpu": ("float32", "bfloat16"), "tpu": ("float32", "bfloat16", "int8")}
    chosen = dtypes.get(platform, ("float32", "bfloat16", "float16", "int8"))
    # First, because it compiles nothing: on a slow host a short burn-in does little more.
    rounds = [Round(What.HOST), *(Round(What.PRODUCTS, dtype=dtype) for dtype in chosen)]
    rounds += [Round(What.CHAINS), Round(What.COPIES, nbytes=2**22 if platform == "cpu" else 2**26)]
    if memory or (memory is None and platform != "cpu"):
        rounds.append(Round(What.MEMORY))
    if platform == "gpu":
        rounds.append(Round(What.COUNTERS))
    # Pairs first: one narrow link makes collectives of all slow, and a short burn-in names it. What
    # is quick comes first, too: on a slow link the rest takes long, and nothing compares it. It
    # comes twice, so that a burst of load meets one half of a link's calls.
    if processes > 2:
        among, sizes = pairings(processes), _sizes(platform, 2 * devices)
        rounds += [
            Round(What.ALL_REDUCE, nbytes=n, groups=groups, pairs=True)
            for n in (sizes[0], *dict.fromkeys((sizes[0], sizes[-1])))
            for groups in among
        ]
    whole, *parts = halves(processes)
    for groups in [whole, *parts]:
        sizes = _sizes(platform, devices * max(map(len, groups)))
        kinds = {(What.ALL_REDUCE, sizes[0]): None, (What.ALL_REDUCE, sizes[-1]): None}
        if groups is whole:
            kinds = {(What.ALL_REDUCE, n): None for n in sizes}
            kinds |= {(w, n): None for w in COLLECTIVES[1:] for n in (sizes[0], sizes[-1])}
        else:
            kinds[What.ALL_GATHER, sizes[-1]] = None
        pairs = len(groups[0]) == 2
        rounds += [Round(w, nbytes=n, groups=groups, pairs=pairs) for w, n in kinds]
    return rounds if mesh is None else [*rounds, *_along_axes(mesh, platform, homes)]


def _along_axes(mesh: Mesh, platform: str, homes: Sequence[int]) -> Iterator[Round]:
    sizes = _sizes(platform, mesh.size)
    for axis in range(len(mesh.shape)):
        groups = along(mesh.shape, axis, homes)
        for what in ALONG_AXES:
            for nbytes in dict.fromkeys((sizes[0], sizes[-1])):
                yield Round(what, nbytes=nbytes, groups=groups, mesh=mesh, axis=axis)


def _sizes(platform: str, devices: int) -> list[int]:
    """Bytes of each device, in collectives of so many."""
    most = max(4, _MOST.get(platform, _MOST_OTHERWISE) // devices)
    return [*dict.fromkeys(min(n, most) for n in _SIZES.get(platform, _SIZES_OTHERWISE))]


def along(shape: Sequence[int], axis: int, homes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Processes that a collective operation along an axis of a mesh brings together.

    Examples:
        >>> along((2, 2), 0, [0, 0, 1, 1]), along((2, 2), 1, [0, 0, 1, 1])
        (((0, 1),), ((0,), (1,)))
    """
    lines = np.moveaxis(np.reshape(homes, shape), axis, -1).reshape(-1, shape[axis])
    first = {process: process for process in homes}  # leads to the first of its group

    def leader(process: int) -> int:
        while first[process] != process:
            first[process] = process = first[first[process]]
        return process

    for line in lines.tolist():
        for process in line:
            low, high = sorted((leader(line[0]), leader(process)))
            first[high] = low
    groups: dict[int, list[int]] = {}
    for process in sorted(first):
        groups.setdefault(leader(process), []).append(process)
    return tuple(map(tuple, groups.values()))


def halves(processes: int) -> list[tuple[tuple[int, ...], ...]]:
    """All processes, then both halves, then their halves, as long as each has more than two.

    Examples:
        >>> halves(4)
        [((0, 1, 2, 3),)]
        >>> len(halves(8)), halves(8)[-1]
        (2, ((0, 1, 2, 3), (4, 5, 6, 7)))
    """
    levels: list[tuple[tuple[int, ...], ...]] = [(tuple(range(processes)),)]
    while max(map(len, levels[-1])) > 4:
        level = []
        for group in levels[-1]:
            middle = len(group) // 2
            level += [group[:middle], group[middle:]]
        levels.append(tuple(level))
    return levels


def pairings(processes: int) -> list[tuple[tuple[int, ...], ...]]:
    """Rounds of disjoint pairs: a tournament of few processes, O(log n) rounds of many.

    Examples:
        >>> pairings(3)
        [((1, 2),), ((0, 2),), ((0, 1),)]
        >>> len(pairings(4096))
        12
    """
    if processes > _TOURNAMENT:
        return _by_distance(processes)
    # The circle method: one stays, the others move on; with an odd number one has no partner.
    circle: list[int | None] = [*range(processes), *([None] if processes % 2 else [])]
    rounds: list[tuple[tuple[int, ...], ...]] = []
    for _ in range(len(circle) - 1):
        middle = len(circle) // 2
        pairs = zip(circle[:middle], reversed(circle[middle:]), strict=True)
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        rounds.append(tuple(sorted((min(pair), max(pair)) for pair in both)))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


def _by_distance(processes: int) -> list[tuple[tuple[int, ...], ...]]:
    rounds: list[tuple[tuple[int, ...], ...]] = []
    distance = 1
    while distance < processes:
        firsts = (i for i in range(processes) if not i & distance and i + distance < processes)
        rounds.append(tuple((i, i + distance) for i in firsts))
        distance *= 2
    return rounds
