"""Gradients of Julia bodies by Enzyme inside JAX, compared with jax.grad and with oracles.

Each program has a child process of its own (`_gradients_child`), on the CPU, on one device.
"""

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._core.program import Program
from .._errors import FileError, PyReactantError, argument
from .._lowering.enzyme import check_enzyme
from .._lowering.reactant import environment
from .._system.child import Activity, ask_child
from ..programs import Case, find_case
from ._report.data import NOT_RUN, GradientResult
from ._request import QUICK, Request

GRADIENTS = {"perceptron": "perceptron_gradient"}
"""The program whose oracle is the gradient of a program's loss."""

_TIMEOUT = 1200.0  # Julia and Enzyme may each need minutes


def wanted(gradients: bool | str | Path | None, backends: Sequence[str], coverage: str) -> bool:
    """Whether to compare gradients; without a choice, if Enzyme and both runtimes are here.

    Raises:
        RequirementError: They are asked for, but Enzyme's package is not installed.
        FileError: The folder of modules does not exist.
    """
    if gradients is None:
        both = {"jax", "reactant"} <= set(backends)
        return both and coverage != QUICK and importlib.util.find_spec("enzyme_ad") is not None
    if gradients is False:
        return False
    check_enzyme()
    if gradients is not True and not Path(gradients).is_dir():
        raise FileError(
            f"{argument('gradients', str(gradients))} is not a folder; give one with a lowered "
            "module for each program, NAME.mlir, as as_jax(...).as_text() writes it, or none to "
            "use Julia"
        )
    return True


def compare_gradients(
    request: Request, modules: bool | str | Path | None
) -> tuple[GradientResult, ...]:
    """The gradients of all programs of a request that have both bodies.

    Args:
        request: The request of the cross-check.
        modules: Folder of modules to use in place of Julia, if it is a path.
    """
    folder = None if modules is None or isinstance(modules, bool) else Path(modules)
    found: list[GradientResult] = []
    for program, name in zip(request.programs, request.names, strict=True):
        case = find_case(program)
        if case.program.julia is None or case.program.jax is None:
            continue
        found += _of_case(request, program, name, case, folder)
    return tuple(found)


def _of_case(
    request: Request, program: str | Program, name: str, case: Case, folder: Path | None
) -> list[GradientResult]:
    plain: Any = dataclasses.asdict(program) if isinstance(program, Program) else program
    question = {
        "program": plain,
        "size": request.size or case.default_size,
        "dtype": request.dtype or case.dtypes[0],
        "seed": request.seed,
        "module": None if folder is None else str(folder / f"{name}.mlir"),
        "gradient": GRADIENTS.get(name),
    }
    try:
        reply = ask_child(
            "pyreactant.crosscheck._gradients_child",
            {**environment(), "JAX_PLATFORMS": "cpu"},
            question,
            timeout=_TIMEOUT,
            activity=Activity(f"the gradient of {name}", "differentiates", "XLA"),
        )
    except PyReactantError as error:
        reply = {"failed": str(error)}
    if "failed" in reply:
        return [GradientResult(name, "", "", NOT_RUN, text=reply["failed"])]
    return [GradientResult(name, **one) for one in reply["found"]]
