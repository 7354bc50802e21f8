"""Find cases by name: built-in ones and a user's own."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from ...arrays.program import Program, find_object
from ...base.errors import InvalidArgumentError
from ...base.imports import importing
from . import layers, moves, perceptron, products, random, reductions, stencil, transforms
from .case import Case
from .user import NoShapesError, case_of

CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        products.MATMUL,
        products.MATMUL_TRANSPOSED,
        products.GRAM,
        products.MATVEC,
        products.BATCHED_MATMUL,
        reductions.ROW_SUM,
        reductions.FULL_SUM,
        layers.SOFTMAX,
        layers.LAYER_NORM,
        layers.ATTENTION,
        stencil.HEAT,
        transforms.FFT,
        transforms.FFT2,
        moves.TRANSPOSE,
        reductions.CUMSUM,
        moves.SORT,
        moves.GATHER,
        perceptron.PERCEPTRON,
        perceptron.PERCEPTRON_GRADIENT,
        perceptron.SGD_STEP,
        random.RANDOM_FILL,
    )
}
"""The built-in cases by name, in the order in which reports show them."""


def hint_of(name: str) -> str:
    """Advice for a name that no built-in program has: the nearest one, or where the list is."""
    near = difflib.get_close_matches(name, CASES, n=1)
    where = "`pyreactant crosscheck --list` shows the built-in ones"
    return f"did you mean {near[0]!r}? {where}" if near else where


def find_case(name: str | Program) -> Case:
    """The case of a built-in program, a "package.module:object", or a Program.

    Args:
        name: A name from `CASES`, "package.module:object" or "path/to/file.py:object" of a `Case`
            or a `Program`, or a `Program`.

    Raises:
        NoShapesError: It is neither a Case nor a Program, or it lacks the shapes of its inputs.
        InvalidArgumentError: There is no such program, or its module cannot be imported.
    """
    if isinstance(name, Program):
        return case_of(name)
    if name in CASES:
        return CASES[name]
    if not all(name.rpartition(":")):
        file = Path(name if name.endswith(".py") else f"{name}.py")
        if file.is_file():
            raise InvalidArgumentError(
                f"{name!r} has no program's name; name the program in it, such as '{file}:program'"
            )
        raise InvalidArgumentError(
            f"no program {name!r}: {hint_of(name)}; name your own program as "
            "'package.module:object' or 'path/to/file.py:object'"
        )
    with importing(f"cannot import program {name!r}"):
        program = find_object(name)
    if isinstance(program, Program):
        return case_of(program)
    if not isinstance(program, Case):
        example = f", such as pr.Program('NAME', jax={name!r}, oracle=..., inputs=...)"
        raise NoShapesError(
            f"{name!r} must be a pyreactant.Program, got {type(program).__name__}; name a program"
            f"{example if callable(program) else ''}"
        )
    return program
