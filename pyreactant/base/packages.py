"""Packages that pyreactant needs and that cannot be imported: which, why, and what to do."""

import os
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple

from .errors import InvalidArgumentError, PyReactantError, RequirementError
from .facts import package_version
from .words import is_of_numpy, reason_of_import, wrong_variable

_NEEDED = (
    "jax",
    "jaxlib",
    "numpy",
    "ml_dtypes",
    "scipy",
    "opt_einsum",
    "typer",
    "click",
    "rich",
    "packaging",
    "cryptography",
    "platformdirs",
    "optree",
    "jinja2",
    "markupsafe",
)
_OURS = __package__.partition(".")[0]
_INSTALLED = ("site-packages", "dist-packages")
_FOLDERS = tuple(
    str(folder) + os.sep for folder in (Path(os.__file__).parent, Path(__file__).parent.parent)
)
"""Those of Python's library, and of pyreactant."""


class _Culprit(NamedTuple):
    """A package that cannot be imported, and its file if that is known."""

    package: str
    file: str | None


def is_library(file: str) -> bool:
    """Whether a file is Python's, an installed package's or pyreactant's, and not the user's.

    Args:
        file: Its path, as a traceback has it; "<string>" and the like are no files of the user's.
    """
    return file.startswith(("<", *_FOLDERS)) or any(p in _INSTALLED for p in Path(file).parts)


def broken_package(
    error: BaseException, who: str = "pyreactant", package: str | None = None
) -> RequirementError | InvalidArgumentError | None:
    """The requirement that is missing, or the wrong variable, where an import raised an exception.

    Args:
        error: The exception.
        who: What needs the package.
        package: The package that was being imported; None if that is to be seen from the exception.

    Returns:
        None for an exception that says nothing about the packages that pyreactant needs, such as a
        name that a program misspells.
    """
    # The import of a package that this one needs may have failed before.
    before = error.__cause__ or (error.__context__ if isinstance(error, ImportError) else None)
    if before is not None and (broken := broken_package(before, who)):
        return broken
    culprit = _culprit(error) or (package and _Culprit(package, None))
    if not culprit:
        return None
    package, file = culprit
    if (variable := wrong_variable(error)) is not None:
        name, value = variable
        return InvalidArgumentError(
            f"{name}={value!r} in the environment is no value that {package} takes "
            f"({reason_of_import(error)}); correct the variable, or unset it"
        )
    problem = f"{who} needs the package {package}, which cannot be imported"
    return _requirement(f"{problem} ({reason_of_import(error)})", package, error, file)


def _requirement(
    problem: str, package: str, error: BaseException, file: str | None
) -> RequirementError:
    pip = "python -m pip install"
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return RequirementError(problem, f"{pip} {package}", advice="install it with")
    if file is not None and not is_library(file):
        return RequirementError(
            f"{problem}; it is not the installed package that is found, but {file}: rename that, "
            "or take its folder off PYTHONPATH"
        )
    jax, jaxlib = package_version("jax"), package_version("jaxlib")
    if package in ("jax", "jaxlib") and jax is not None and jaxlib != jax:
        return RequirementError(
            problem,
            f"{pip} jax=={jax} jaxlib=={jax}",
            advice=f"jax {jax} and jaxlib {jaxlib or '(none)'} are installed: make them fit with",
        )
    return RequirementError(
        problem,
        f"{pip} --force-reinstall {package}",
        advice="it is there, but does not load: see whether memory is limited (ulimit -v), or "
        "install it again with",
    )


def _culprit(error: BaseException) -> _Culprit | None:
    if not isinstance(error, Exception) or isinstance(
        error, (PyReactantError, MemoryError, OSError)
    ):
        return None
    if type(error) is ImportError and is_of_numpy(error):
        return _Culprit("numpy", None)
    loading = _modules_loading(error.__traceback__)
    innermost = loading[-1] if loading else None
    if isinstance(error, ImportError) and _top(error.name) in _NEEDED:
        package = _top(error.name)
        file = getattr(sys.modules.get(package), "__file__", None) or error.path
        shadowed = file is not None and not is_library(file)
        absent = isinstance(error, ModuleNotFoundError) and error.name == package
        if absent or shadowed or innermost is not None:
            return _Culprit(package, file)
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        package, file = _top(error.obj.__name__), getattr(error.obj, "__file__", None)
        if package in _NEEDED and file is not None and not is_library(file):
            return _Culprit(package, file)
    return innermost if innermost is not None and innermost.package in _NEEDED else None


def _modules_loading(trace: TracebackType | None) -> list[_Culprit]:
    """The modules of ours and of what we need that are being loaded, the outermost first."""
    modules = []
    while trace is not None:
        code, names = trace.tb_frame.f_code, trace.tb_frame.f_globals
        package = _top(names.get("__name__"))
        if code.co_name == "<module>" and package in (*_NEEDED, _OURS):
            modules.append(_Culprit(package, code.co_filename))
        trace = trace.tb_next
    return modules


def _top(name: object) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""
