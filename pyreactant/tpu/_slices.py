"""Which slices there are: the shapes of each generation, and which of them "v5p-N" means.

Sources: "Configurations" on cloud.google.com/tpu/docs/{v2,v3,v4,v5e,v5p,v6e,tpu7x}. A slice of
v4, v5p or tpu7x is smaller than a cube of 4x4x4 chips, in one of a few shapes, or made of such
cubes, with the sides in ascending order. N in v2-N to v4-N, v5p-N and tpu7x-N counts TensorCores,
two a chip; in v5litepod-N and v6e-N it counts chips.
"""

import functools
import math
from collections.abc import Iterator

from ._generations import Generation

Shape = tuple[int, ...]

_SQUARES: dict[str, tuple[Shape, ...]] = {
    "v2": ((2, 2), (4, 4), (8, 8), (8, 16), (16, 16)),
    "v3": ((2, 2), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32)),
    "v5e": ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)),
    "v6e": ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)),
}
_BELOW_A_CUBE: tuple[Shape, ...] = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
_SINGLE_CHIP: dict[str, tuple[Shape, ...]] = {"tpu7x": ((1, 1, 1),)}


@functools.cache
def shapes(generation: Generation, max_chips: int | None = None) -> tuple[Shape, ...]:
    """Every shape of a generation's slices, ascending.

    Args:
        generation: Which.
        max_chips: Of the largest; None is all that the generation has.
    """
    most = min(max_chips or generation.max_chips, generation.max_chips)
    if generation.dimensions == 2:
        found = list(_SQUARES[generation.name])
    else:
        found = [*_SINGLE_CHIP.get(generation.name, ()), *_BELOW_A_CUBE, *_cubes(most // 64)]
    return tuple(
        sorted((s for s in found if math.prod(s) <= most), key=lambda s: (math.prod(s), sum(s)))
    )


def _cubes(most: int) -> Iterator[Shape]:
    for a in range(1, math.isqrt(most) + 1):
        for b in range(a, most // a + 1):
            for c in range(b, most // (a * b) + 1):
                yield 4 * a, 4 * b, 4 * c


def default_shape(generation: Generation, chips: int) -> Shape | None:
    """What "v5p-N" means: the shape nearest to a cube or square; None where no slice is so large.

    Of shapes with equally many chips the nearest to a cube has the smallest sum of sides.
    """
    fitting = [shape for shape in shapes(generation) if math.prod(shape) == chips]
    return min(fitting, key=sum, default=None)


def host_bounds(generation: Generation, shape: Shape, chips_per_host: int | None = None) -> Shape:
    """Which chips one VM has: 2x2 of them, or all of a smaller slice, or all of a 2x4 one.

    Args:
        generation: Which.
        shape: Of one slice.
        chips_per_host: 1, 4 or 8 where a GKE machine type says it; None is as in Cloud TPU.

    Returns:
        Three numbers, as libtpu's `chips_per_host_bounds`.
    """
    padded = (*shape, 1, 1)[:3]
    if shape == generation.one_vm and chips_per_host in (None, math.prod(shape)):
        return padded
    return tuple(min(side, most) for side, most in zip(padded, (2, 2, 1), strict=True))


def wraparound(generation: Generation, shape: Shape) -> tuple[bool, ...]:
    """Whether the links of each dimension close to a ring.

    In two dimensions where the dimension is that of a whole pod, in three where the slice is made
    of whole cubes of 4x4x4.
    """
    rings = tuple(side % generation.torus_side == 0 for side in shape)
    return rings if generation.dimensions == 2 else (all(rings),) * 3


def slice_name(generation: Generation, shape: Shape) -> str:
    """The shortest name: "v6e-16", or "v5p:4x4x16" where v5p-512 is another shape."""
    chips = math.prod(shape)
    if default_shape(generation, chips) != shape:
        return f"{generation.name}:{shape_text(shape)}"
    return f"{generation.name}-{count(generation, chips)}"


def count(generation: Generation, chips: int) -> int:
    """N of "v6e-N" or "v5p-N"."""
    return chips * generation.cores_per_chip if generation.counts_cores else chips


def shape_text(shape: Shape) -> str:
    """(2, 2, 4) as "2x2x4"."""
    return "x".join(map(str, shape))
