"""The preferences of Reactant.jl that pyreactant needs: read, set and unset from Python.

They stand in LocalPreferences.toml beside the Julia project in use, where Julia looks for them,
and are read when it compiles Reactant: so they can be changed only where no Julia runs in this
process, and hold from the next start.

`xla_runtime` is "PJRT" or "IFRT". `gpu` ("none", "cuda" or "rocm") and `gpu_version` (such as
"12.9") choose among the binaries of Reactant; where they do not, Reactant looks for the driver of
a GPU on the machine that installs it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from ._errors import InvalidArgumentError, RequirementError
from ._julia.place import check_no_julia, find_place, package_folder
from ._julia.preferences import NAMES, Found, Preference, edits, local_file
from ._julia.preferences import find as _find
from ._system.files import write, writing
from ._system.lock import WAIT, project_lock

__all__ = ["check_runtime", "find", "get", "set", "unset"]

_ADVICE = "name another project, or ask its owner"


def get(name: str, *, project: str | Path | None = None) -> str | None:
    """A preference as Julia will read it in this project; None where nothing says it.

    Args:
        name: "xla_runtime", "gpu" or "gpu_version".
        project: The folder of a Julia project; None is the one in use.

    Raises:
        InvalidArgumentError: There is no such preference.
        RequirementError: No project is in use yet.
        FileError: A file is damaged, or says something that Reactant does not know.
    """
    return find(name, project=project).value


def set(name: str, value: str, *, project: str | Path | None = None) -> Path:
    """Set a preference, keeping what else stands in the file; it holds from the next start.

    Args:
        name: "xla_runtime", "gpu" or "gpu_version".
        value: "PJRT" or "IFRT"; "none", "cuda" or "rocm"; "none" or a version such as "12.9".
        project: The folder of a Julia project; None is the one in use.

    Returns:
        The file that says it.

    Raises:
        InvalidArgumentError: There is no such preference, or it has no such value.
        StateError: Julia runs in this process already.
        RequirementError: No project is in use yet, or it cannot be written.
        FileError: A file is damaged.
        DeadlineError: Another changes the project, and does not end.
    """
    preference = _known(name)
    if not preference.admits(value):
        raise InvalidArgumentError(f"{name} must be {preference.says}, got {value!r}")
    return _change(_folder(project), {name: value})


def unset(name: str, *, project: str | Path | None = None) -> Path:
    """Take a preference out of the local preferences; what says it elsewhere then holds.

    Args:
        name: "xla_runtime", "gpu" or "gpu_version".
        project: The folder of a Julia project; None is the one in use.

    Returns:
        The file that said it.

    Raises:
        InvalidArgumentError: There is no such preference.
        StateError: Julia runs in this process already.
        RequirementError: No project is in use yet, or it cannot be written.
        FileError: A file is damaged.
        DeadlineError: Another changes the project, and does not end.
    """
    _known(name)
    return _change(_folder(project), {name: None})


def find(name: str, *, project: str | Path | None = None) -> Found:
    """A preference as Julia will read it in this project, and the file where it stands.

    Raises:
        InvalidArgumentError: There is no such preference.
        RequirementError: No project is in use yet.
        FileError: A file is damaged, or says something that Reactant does not know.
    """
    _known(name)
    return _find(name, (_folder(project), *_package()))


def check_runtime(num_processes: int, *, project: str | Path | None = None) -> None:
    """Refuse a run of several processes on PJRT, of which Reactant would only warn.

    Raises:
        InvalidArgumentError: That is what it is.
    """
    found = find("xla_runtime", project=project)
    if num_processes > 1 and found.value != "IFRT":
        says = f"PJRT, as {found.file} says" if found.value else "none, which is PJRT"
        raise InvalidArgumentError(
            f"xla_runtime must be IFRT in a run of {num_processes} processes, got {says}; "
            "do: pyreactant prefs set xla_runtime IFRT, then: pyreactant setup"
        )


def _change(project: Path, values: Mapping[str, str | None]) -> Path:
    if edits(project, values):
        check_no_julia("changing a preference")
        with project_lock(project, "pyreactant prefs", advice=_ADVICE, wait=WAIT):
            for path, text in edits(project, values).items():
                with writing(path, _ADVICE):
                    write(path, text.encode())
    return local_file(project)


def _known(name: str) -> Preference:
    if name not in NAMES:
        raise InvalidArgumentError(f"a preference must be one of {', '.join(NAMES)}, got {name!r}")
    return NAMES[name]


def _folder(project: str | Path | None) -> Path:
    if project is None:
        return find_place().project
    folder = Path(project)
    if not (os.access(folder, os.F_OK) and folder.is_dir()):
        raise InvalidArgumentError(f"project must be the folder of a Julia project, got {folder}")
    return folder


def _package() -> tuple[Path, ...]:
    """Our Julia package, which follows the project on the load path and says IFRT."""
    try:
        return (package_folder(),)
    except RequirementError:  # then Julia will not have it either
        return ()
