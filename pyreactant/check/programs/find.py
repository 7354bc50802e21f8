"""Find cases by name: built-in ones and a user's own."""

import difflib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...arrays.program import Program, find_object
from ...base.errors import InvalidArgumentError
from .case import Case
from .user import case_of

_FAMILIES = {
    "matmul": "products",
    "matmul_transposed": "products",
    "gram": "products",
    "matvec": "products",
    "batched_matmul": "products",
    "row_sum": "reductions",
    "full_sum": "reductions",
    "softmax": "layers",
    "layer_norm": "layers",
    "attention": "layers",
    "heat": "stencil",
    "fft": "transforms",
    "fft2": "transforms",
    "transpose": "moves",
    "cumsum": "reductions",
    "sort": "moves",
    "gather": "moves",
    "perceptron": "perceptron",
    "perceptron_gradient": "perceptron",
    "sgd_step": "perceptron",
    "random_fill": "random",
}
"""The module of each built-in program, in the order in which reports show them."""

NAMES = tuple(_FAMILIES)


class _Cases(Mapping[str, Case]):
    """The built-in cases by name; a module is imported when its case is looked up."""

    def __getitem__(self, name: str) -> Case:
        family = importlib.import_module(f".{_FAMILIES[name]}", __package__)
        case: Case = getattr(family, name.upper())
        return case

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


CASES: Mapping[str, Case] = _Cases()


def hint_of(name: str) -> str:
    """Advice for a name that no built-in program has: the nearest one, or where the list is."""
    near = difflib.get_close_matches(name, NAMES, n=1)
    where = "`pyreactant crosscheck --list` shows the built-in ones"
    return f"did you mean {near[0]!r}? {where}" if near else where


def find_case(name: str | Program) -> Case:
    """The case of a built-in program, a "package.module:object", or a Program.

    Args:
        name: A name from `CASES`, "package.module:object" or "path/to/file.py:object" of a `Case`
            or a `Program`, or a `Program`.

    Raises:
        InvalidArgumentError: There is no such program, it is neither a Case nor a Program, or
            it lacks the shapes of its inputs.
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
    try:
        found = find_object(name)
    except (ImportError, AttributeError, OSError) as error:
        raise InvalidArgumentError(f"cannot import program {name!r}: {error}") from error
    if isinstance(found, Program):
        return case_of(found)
    if not isinstance(found, Case):
        raise InvalidArgumentError(
            f"{name!r} must be a pyreactant.Program or a pyreactant.check.programs.Case, got "
            f"{type(found).__name__}"
        )
    return found
