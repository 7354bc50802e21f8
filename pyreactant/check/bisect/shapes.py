"""The smallest shapes with which a part of a module fails: one size after the other.

A size is made smaller wherever a type or an operation has it. Whether that is a module at all, MLIR
says, which refuses shapes that do not fit together; what is right then, the good way says.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ...base.steps import step
from .child import Outcome
from .judge import Module
from .module import Part, Search
from .way import Way

_SIZES = re.compile(
    r"(?P<padding>padding = dense<[^>]*)> : tensor<[^>]*>"  # by one less in a sum of all before
    r"|tensor<(?:\d+x)+(?!\d|index)"  # a type
    r"|\[\d+:\d+[\d:, ]*\]"  # the limits of a slice
    r"|(?:sizes|window_dimensions|length) = (?:array<i64: |\[)[\d, ]+"  # a gather's, a window's
)
_NUMBER = re.compile(r"(?<![i\d])\d+")  # not that of i64


def with_small_shapes(part: Part, search: Search, good: Way) -> Part:
    """The part with shapes of which no size can be smaller, so that it still fails.

    Args:
        good: The way that says what is right.
    """

    def failing(module: Module) -> Part | None:
        answer = search.editor.ask(do="parse", text=module.text)
        if answer is None:
            return None
        step(f"smaller shapes: {', '.join(str(x.shape) for x in module.inputs)}")
        module = replace(module, text=answer["text"])
        # A loop may have no end now.
        right = search.ways.run(good, module, each=search.ways.soon)
        if right.outcome is not Outcome.RAN or not search.fails(module, right.results):
            return None
        return replace(part, module=module, wanted=right.results)

    smaller: Part | None = part
    while smaller is not None:
        part = smaller
        smaller = next(filter(None, map(failing, _candidates(part.module))), None)
    return part


def _candidates(module: Module) -> Iterator[Module]:
    """Modules in which one size is smaller, the largest size first.

    The parameters are cut at their end, or at their start.
    """
    types = (match[0] for match in _SIZES.finditer(module.text) if match[0].startswith("tensor"))
    sizes = {int(number) for one in types for number in _NUMBER.findall(one)}
    for size in sorted(sizes, reverse=True):
        for new in (one for one in dict.fromkeys((1, 2, size // 2)) if 0 < one < size):
            for changed in _changes(size, new):
                for start in (True, False):
                    yield _resized(module, changed, start)


def _changes(size: int, new: int) -> Iterator[Callable[[int], int]]:
    """What becomes of each size if one is smaller."""
    yield lambda old: new if old == size else old
    yield lambda old: old if old % size else old // size * new  # as after a reshape
    yield lambda old: old if old < size else old - size + new  # as with a padding


def _resized(module: Module, changed: Callable[[int], int], start: bool) -> Module:
    def resized(match: re.Match[str]) -> str:
        whole, padding = match[0], match["padding"]
        if padding:
            less = _NUMBER.sub(lambda one: str(changed(int(one[0]) + 1) - 1), padding)
            return less + whole.removeprefix(padding)
        return _NUMBER.sub(lambda one: str(changed(int(one[0]))), whole)

    def cut(array: np.ndarray) -> np.ndarray:
        sizes = [(old, changed(old)) for old in array.shape]
        return array[tuple(slice(new) if start else slice(old - new, old) for old, new in sizes)]

    return replace(
        module,
        text=_SIZES.sub(resized, module.text),
        inputs=tuple(map(cut, module.inputs)),
        results=tuple({**x, "shape": [changed(n) for n in x["shape"]]} for x in module.results),
    )
