"""The options of `pyreactant setup`, their checks, and the project and Julia that they mean."""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import FileError, InvalidArgumentError, RequirementError, argument
from ...base.facts import at_least
from ...base.files import LOCK_WAIT
from ..place import EXECUTABLE, OLDEST, PROJECT, Place, find_record
from .processes import checked_version

GPU_VERSIONS = {"none": None, "cuda": "12.9", "rocm": "7.1"}
"""The default version of the libraries of each kind of GPU; Reactant has no default if the kind is
set. CUDA 12.9 also runs with newer drivers."""


@dataclass(frozen=True)
class Options:
    """What to set up.

    Attributes:
        project: The folder of the Julia project; None for the one in use, otherwise juliapkg's.
        julia: A Julia executable, or a version of Julia such as "1.11"; None for that of the last
            setup, otherwise one that juliapkg finds or installs.
        gpu: The kind of GPU of the binaries: "cuda", "rocm" or "none"; None for that of the last
            setup, otherwise the kind of this machine's driver.
        gpu_version: The version of CUDA or ROCm of the binaries.
        any_version: Whether to accept every version of Reactant instead of the one that pyreactant
            is written for; None for the choice of the last setup, otherwise no.
        tpu: Whether to choose libtpu for Reactant; None for the choice of the last setup, otherwise
            if this machine has a TPU.
        offline: Whether to use only what is installed, and never the network.
        wait: Seconds to wait for another setup of the same project.
    """

    project: Path | None = None
    julia: str | None = None
    gpu: str | None = None
    gpu_version: str | None = None
    any_version: bool | None = None
    tpu: bool | None = None
    offline: bool = False
    wait: float = LOCK_WAIT

    def __post_init__(self) -> None:
        if self.gpu is not None and self.gpu not in GPU_VERSIONS:
            raise InvalidArgumentError(
                f"{argument('gpu')} must be cuda, rocm or none, got {self.gpu!r}"
            )
        if self.gpu_version is not None:
            if self.gpu not in ("cuda", "rocm"):
                raise InvalidArgumentError(
                    f"{argument('gpu_version')} needs {argument('gpu')} cuda or rocm, got "
                    f"{self.gpu or 'none'}"
                )
            if not re.fullmatch(r"\d+\.\d+", self.gpu_version):
                raise InvalidArgumentError(
                    f"{argument('gpu_version')} must be a version such as 12.9, got "
                    f"{self.gpu_version!r}"
                )
        if self.project is not None and self.project.exists() and not self.project.is_dir():
            raise InvalidArgumentError(
                f"{argument('project')} must be a folder, got the file {self.project}"
            )


def check_variables(options: Options, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse options that one of Reactant's variables would override.

    Raises:
        InvalidArgumentError: An option and its variable differ.
    """
    for option, name in (
        (options.gpu, "REACTANT_GPU"),
        (options.gpu_version, "REACTANT_GPU_VERSION"),
    ):
        if option is not None and environ.get(name, option) != option:
            raise InvalidArgumentError(
                f"{name}={environ[name]} overrides the option {option}; unset {name}"
            )


def is_version(julia: str) -> bool:
    """Whether the text is a version; otherwise it is an executable."""
    return re.fullmatch(r"\d+(\.\d+){0,2}", julia) is not None


def version_spec(julia: str) -> str:
    """The versions that a version means, in juliapkg's notation: 1.11 is any 1.11.x.

    Raises:
        InvalidArgumentError: The version is too old.
    """
    count = len(julia.split("."))
    if not at_least(julia, ".".join(OLDEST.split(".")[:count])):
        raise InvalidArgumentError(f"{argument('julia')} must be {OLDEST} or newer, got {julia}")
    return ("=" if count == 3 else "~") + julia


def project_for(options: Options, named: Place | None, default: Path) -> Path:
    """The project to set up: the named one, that of the last setup, or juliapkg's."""
    if options.project is not None:
        project = options.project.absolute()
        if named is not None and named.project != project:
            raise _override_error(f"{PROJECT}={named.project}", f"the option project={project}")
        return project
    if named is not None:
        return named.project
    if os.environ.get("PYTHON_JULIAPKG_PROJECT"):
        return default
    with contextlib.suppress(FileError):  # a damaged pointer will be replaced
        record = find_record()
        return default if record is None else record.parents[1]
    return default


def julia_for(options: Options, named: Place | None) -> str | None:
    """The requested Julia: a version, an executable that can be used, or None.

    Raises:
        InvalidArgumentError: The version is too old, or a variable names another Julia.
        RequirementError: The executable does not exist, or is no Julia that can be used.
    """
    default = os.environ.get("PYTHON_JULIAPKG_EXE") if named is None else str(named.executable)
    julia = default or None if options.julia is None else options.julia
    if julia is None:
        return None
    if is_version(julia):
        version_spec(julia)
    else:
        executable = shutil.which(julia)
        if executable is None:
            raise RequirementError(
                f"{argument('julia')} must name a Julia executable or a version, got {julia!r}, "
                "which is neither; name the file, or a version such as 1.11 for juliapkg to install"
            )
        julia = str(Path(executable).absolute())
        checked_version(julia)
    if named is not None and julia != str(named.executable):
        raise _override_error(f"{EXECUTABLE}={named.executable}", f"the option julia={julia}")
    return julia


def _override_error(named: str, option: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{named} overrides {option}; unset {PROJECT} and {EXECUTABLE}")
