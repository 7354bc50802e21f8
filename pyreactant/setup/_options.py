"""What `pyreactant setup` can be asked, and which Julia project it means."""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .._errors import InvalidArgumentError, RequirementError
from .._julia.place import OLDEST
from .._system.lock import WAIT
from .._system.versions import at_least

GPU_VERSIONS = {"none": None, "cuda": "12.9", "rocm": "7.1"}
"""Each kind of GPU, and the version of its libraries where none is said: Reactant takes none
itself where it is told the kind. CUDA 12.9 also runs on the drivers of later versions."""


@dataclass(frozen=True)
class Options:
    """What to set up.

    Attributes:
        project: The folder of the Julia project; None is the one in use, or else juliapkg's.
        julia: A Julia executable, or a version of Julia such as "1.11"; None is as before, or
            else the one that juliapkg finds or installs.
        gpu: The GPUs to have binaries for, "cuda", "rocm" or "none"; None is as before, or else
            as the driver here says.
        gpu_version: The version of CUDA or ROCm of those binaries.
        offline: Never reach for the network: all must be installed already.
        wait: Seconds to wait for another setup of the same project.
    """

    project: Path | None = None
    julia: str | None = None
    gpu: str | None = None
    gpu_version: str | None = None
    offline: bool = False
    wait: float = WAIT

    def __post_init__(self) -> None:
        if self.gpu is not None and self.gpu not in GPU_VERSIONS:
            raise InvalidArgumentError(f"gpu must be cuda, rocm or none, got {self.gpu!r}")
        if self.gpu_version is not None:
            if self.gpu not in ("cuda", "rocm"):
                raise InvalidArgumentError(
                    f"gpu_version must stand beside gpu cuda or rocm, got gpu {self.gpu!r}"
                )
            if not re.fullmatch(r"\d+\.\d+", self.gpu_version):
                raise InvalidArgumentError(
                    f"gpu_version must be a version such as 12.9, got {self.gpu_version!r}"
                )
        if self.wait < 0:
            raise InvalidArgumentError(f"wait must be seconds from 0 on, got {self.wait:g}")
        if self.project is not None and self.project.exists() and not self.project.is_dir():
            raise InvalidArgumentError(f"project must be a folder, got the file {self.project}")


def check_variables(options: Options, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse options that a variable of Reactant's would override.

    Raises:
        InvalidArgumentError: The two differ.
    """
    for option, name in ((options.gpu, "REACTANT_GPU"), (options.gpu_version, _VERSION)):
        if option is not None and environ.get(name, option) != option:
            raise InvalidArgumentError(
                f"{name}={environ[name]} overrides what was asked for, {option}; unset {name}"
            )


def is_version(julia: str) -> bool:
    """Whether that is a version, and not an executable."""
    return re.fullmatch(r"\d+(\.\d+){0,2}", julia) is not None


def versions_admitted(julia: str) -> str:
    """A version as juliapkg writes which ones will do: 1.11 is any 1.11.x.

    Raises:
        InvalidArgumentError: It is older than any that will do.
    """
    count = len(julia.split("."))
    if not at_least(julia, ".".join(OLDEST.split(".")[:count])):
        raise InvalidArgumentError(f"julia must be {OLDEST} or newer, got {julia}")
    return ("=" if count == 3 else "~") + julia


def executable_named(julia: str) -> str:
    """The Julia executable of that name.

    Raises:
        RequirementError: There is none.
    """
    found = shutil.which(julia)
    if found is None:
        raise RequirementError(
            f"julia must name a Julia executable or a version, got {julia!r}, which is neither; "
            "name the file, or a version such as 1.11 for juliapkg to install"
        )
    return str(Path(found).absolute())


def check_version(executable: str, version: str | None) -> str:
    """The version of a Julia that will do.

    Raises:
        RequirementError: It is no Julia, or too old.
    """
    if version is None:
        raise RequirementError(
            f"{executable} must be a Julia, but does not answer --version as Julia does; "
            "name another: pyreactant setup --julia EXECUTABLE"
        )
    if not at_least(version, OLDEST):
        raise RequirementError(
            f"Julia must be {OLDEST} or newer, got {version} ({executable}); name a "
            "newer one, or a version for juliapkg to install: pyreactant setup --julia 1.11"
        )
    return version


_VERSION = "REACTANT_GPU_VERSION"


State = Literal["waits", "starts", "says", "done"]
"""`waits` for a holder of the lock; a stage `starts`, `says` a line of output, is `done`."""

Report = Callable[[str, State, str], None]
"""Called with the stage, its state, and a text for people."""

STAGES = {
    "preferences": "preferences",
    "resolve": "Julia and its packages",
    "precompile": "compilation",
    "record": "record",
}
"""The stages in their order, in words."""


def silent(stage: str, state: State, text: str) -> None:
    """Show nothing."""
