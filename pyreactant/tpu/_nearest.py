"""Names near to one that is wrong."""

import difflib
import math
import re

from .._errors import InvalidArgumentError
from ._generations import ALIASES, GENERATIONS, Generation
from ._slices import Shape, shape_text, shapes, slice_name

_FORMS = (
    "name a slice as v6e-16, v5litepod-16, v5p-32 or v4-64, or a generation and shape as v6e:4x4 "
    "or v5p:2x2x4"
)


def no_such_slice(name: str) -> InvalidArgumentError:
    """The error for a name that no slice has, with the nearest that one has."""
    near = nearest(name)
    return InvalidArgumentError(
        f"no Cloud TPU slice is called {name!r}; the nearest are {', '.join(near)} ({_FORMS})"
    )


def nearest(name: str) -> list[str]:
    """At most four names of slices near to a wrong one.

    The generation is the one that is written most like it; of its slices the ones with the
    nearest number of chips, by ratio, in the form that was asked for.
    """
    head, *rest = re.split(r"[^a-z0-9]+", name.strip().lower()[:100])
    generation = _generation(head)
    numbers = [int(n[:9]) for n in re.findall(r"[0-9]+", rest[-1] if rest else "")] or [1]
    if len(numbers) > 1:
        wanted = tuple(sorted(n for n in numbers if n))
        found = sorted(shapes(generation), key=lambda shape: _distance(shape, wanted))
        return [f"{generation.name}:{shape_text(shape)}" for shape in found[:4]]
    per_count = generation.cores_per_chip if generation.counts_cores else 1
    chips = max(numbers[0], 1) / per_count
    named = [s for s in shapes(generation) if ":" not in slice_name(generation, s)]
    found = sorted(named, key=lambda shape: abs(math.log(math.prod(shape) / chips)))
    return [slice_name(generation, shape) for shape in found[:3]]


def _generation(head: str) -> Generation:
    close = difflib.get_close_matches(head, ALIASES, n=1, cutoff=0.0)
    return GENERATIONS[ALIASES[close[0]]]


def _distance(shape: Shape, wanted: Shape) -> tuple[float, int]:
    chips = abs(math.log(math.prod(shape) / max(math.prod(wanted), 1)))
    padded = (1,) * (len(shape) - len(wanted)) + wanted
    sides = sum(abs(a - b) for a, b in zip(sorted(shape), padded, strict=False))
    return round(chips, 9), sides
