"""The smallest problem that still fails: mesh, size, element type and inputs, in a fixed order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...base.errors import InvalidArgumentError, from_data
from ...base.steps import step
from ..bounds.compare import compare
from ..bounds.expected import Expected
from .child import Outcome
from .judge import Module, Ways
from .way import LOWERING, Way
from .worker import load_arrays


@dataclass(frozen=True, slots=True)
class Problem:
    """A program and what it runs on.

    Attributes:
        program: Its name, or a `Program` as plain data.
        size: The "n" of its shapes; None means its default. So it is of the others.
        mesh: {"axis_names", "shape"}.
        specs: Partition specs of its first inputs.
        inputs: Name of the set of inputs.
    """

    program: Any
    size: int | None = None
    dtype: str | None = None
    mesh: Mapping[str, Any] | None = None
    specs: Sequence[Any] | None = None
    seed: int = 0
    inputs: str = "ordinary"

    @property
    def text(self) -> str:
        """The problem in reports."""
        shape = "x".join(map(str, (self.mesh or {}).get("shape", ())))
        return f"size {self.size}, {self.dtype}, mesh {shape}, {self.inputs} inputs"


@dataclass(frozen=True, slots=True)
class Lowered:
    """A problem's module, and what its oracle expects.

    Attributes:
        problem: The problem with its defaults.
        name: Name of the program in reports.
        expected: Of each result; None without an oracle.
        ordered: Whether no results are named, so that each runtime has them in this order.
        dtypes: All element types of the program.
    """

    problem: Problem
    name: str
    module: Module
    expected: tuple[Expected, ...] | None
    dtypes: tuple[str, ...]
    ordered: bool = True

    def is_right(self, results: Sequence[np.ndarray]) -> bool:
        """Whether results are within the oracle's bounds."""
        pairs = zip(results, self.expected or (), strict=True)
        return all(compare(got, want).passed for got, want in pairs)


def lower(problem: Problem, ways: Ways, way: Way = LOWERING) -> Lowered:
    """The module of a problem, as the runtime of a way lowers it.

    Raises:
        PyReactantError: It cannot be lowered.
    """
    answer = ways.ask(way, {**asdict(problem), "folder": str(ways.folder)})
    if "error" in answer:
        raise from_data(answer["error"])
    if answer["outcome"] != Outcome.RAN:
        raise InvalidArgumentError(
            f"the program does not compile on {way.backend} without optimizations "
            f"({answer['outcome']}): {answer['message']}; correct it first"
        )
    chosen = replace(problem, **{name: answer[name] for name in ("size", "dtype", "mesh")})
    module = Module(
        (ways.folder / "program.mlir").read_text(),
        tuple(load_arrays(ways.folder / "inputs.npz")),
        tuple(answer["results"]),
        answer["partitions"],
        asdict(chosen) | {"julia": answer["julia"]},
    )
    expected = None
    if answer["expected"]:
        arrays = load_arrays(ways.folder / "expected.npz")
        expected = tuple(
            Expected(
                value,
                None if one["exact"] else bound,
                last_rounding=one["last_rounding"],
                estimated=one["estimated"],
            )
            for one, value, bound in zip(answer["expected"], arrays[::2], arrays[1::2], strict=True)
        )
    dtypes = tuple(answer["all_dtypes"])
    return Lowered(chosen, answer["name"], module, expected, dtypes, answer["ordered"])


def smaller(lowered: Lowered) -> Iterator[Sequence[Callable[[Problem], Problem]]]:
    """Changes of a problem, by what they change; of each, those that make more smaller first."""
    problem = lowered.problem
    assert problem.mesh is not None
    assert problem.size is not None
    shape, size = problem.mesh["shape"], problem.size

    def meshed(sizes: Sequence[int]) -> Callable[[Problem], Problem]:
        return lambda one: replace(one, mesh={**(one.mesh or {}), "shape": list(sizes)})

    ones = [1] * len(shape)
    meshes = [ones] if shape != ones else []
    meshes += [
        [*ones[:d], k, *ones[d + 1 :]] for d, n in enumerate(shape) for k in (2, n) if 1 < k <= n
    ]
    yield [meshed(m) for m in dict.fromkeys(map(tuple, meshes)) if list(m) != shape]
    sizes = [2**k for k in range(1, 20) if 2**k < size]
    yield [lambda one, n=n: replace(one, size=n) for n in sizes]  # type: ignore[misc]
    if problem.dtype != "float32" and "float32" in lowered.dtypes:
        yield [lambda one: replace(one, dtype="float32")]
    if problem.inputs != "ordinary":
        yield [lambda one: replace(one, inputs="ordinary")]


def shrunk(first: Lowered, ways: Ways, is_wrong: Callable[[Lowered], bool]) -> Lowered:
    """The smallest problem that fails in the same way.

    Args:
        is_wrong: Whether a problem fails so.
    """
    best = first
    for changes in smaller(first):
        for change in changes:
            problem = change(best.problem)
            step(f"smaller: {problem.text}")
            try:
                lowered = lower(problem, ways)
            except (InvalidArgumentError, KeyError):
                continue  # such as a size that the mesh does not divide
            if is_wrong(lowered):
                best = lowered
                break
    return best
