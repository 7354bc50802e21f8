"""A built-in program's case from its letters and its NumPy oracle."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .._mesh import Mesh
from .._program import Program
from .._sharding import Index
from ._case import Case, Input, Layout, Output, Shape, Stream, no_count, no_static
from ._letters import Letters

REALS = ("float32", "float64", "bfloat16", "float16")
NUMBERS = (*REALS, "complex64", "complex128", "int32")


def letter_case(
    name: str,
    summary: str,
    letters: Letters,
    oracle: Callable[..., Any],
    *,
    dtypes: tuple[str, ...] = REALS,
    default_size: int = 64,
    scales: Mapping[int, Callable[[int], float]] | None = None,
    extra: Callable[[Mesh, int], Iterable[Layout]] | None = None,
    communicated: Callable[[Mesh, Layout, int, str], int | None] = no_count,
    static: Callable[[int], Mapping[str, Any]] = no_static,
    exact: bool = False,
    stream: Stream | None = None,
    factors: tuple[tuple[int, bool], ...] = (),
) -> Case:
    """The case of a program whose arrays are all of one dtype.

    Args:
        name: Of the module, of the Julia function and in reports.
        summary: One line.
        letters: Its dimensions.
        oracle: The NumPy body; on the parts that a block needs it gives that block, whole along
            ``letters.whole``.
        dtypes: Element types, the default first.
        default_size: n where nothing is said.
        scales: Powers of two for the elements of some inputs, from n.
        extra: Layouts before those of the letters; the first is the default.
        communicated: See `Case`.
        static: See `Case`.
        exact: See `Case`.
        stream: See `Case`.
        factors: See `Case`.
    """

    def inputs(n: int, dtype: str) -> tuple[Input, ...]:
        return tuple(
            Input(one, letters.shape(one, n), dtype, scale=(scales or {}).get(i, _one)(n))
            for i, one in enumerate(letters.inputs)
        )

    def outputs(n: int, dtype: str) -> tuple[Output, ...]:
        return tuple(Output(letters.shape(one, n), dtype) for one in letters.outputs)

    def candidates(mesh: Mesh, n: int) -> Iterable[Layout]:
        yield from extra(mesh, n) if extra else ()
        yield from letters.layouts(mesh, n)

    def block(output: int, index: Index, parts: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Any:
        results = oracle(*parts)
        result = results[output] if len(letters.outputs) > 1 else results
        part = letters.block(output, index, result)
        if isinstance(part, (np.ndarray, np.generic)):
            # NumPy sums short integers in 64 bits; modulo 2**bits they are what runtimes have.
            return np.asarray(part, parts[0].dtype)
        return part

    return Case(
        program=program(name),
        summary=summary,
        dtypes=dtypes,
        default_size=default_size,
        inputs=inputs,
        outputs=outputs,
        candidates=candidates,
        needs=letters.needs,
        oracle=block,
        static=static,
        exact=exact,
        random=True,
        contracted=letters.contracted,
        stream=stream,
        factors=factors,
        communicated=communicated,
    )


def program(name: str) -> Program:
    """A built-in program: bodies of that name for both runtimes, and its oracle."""
    module = f"pyreactant.programs.{name}"
    return Program(
        name, jax=f"{module}:body", julia=f"PyReactant.Programs.{name}", oracle=f"{module}:oracle"
    )


def _one(n: int) -> float:
    return 1.0
