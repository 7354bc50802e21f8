"""The preferences of Reactant.jl that pyreactant needs: read, set and unset from Python.

They are in LocalPreferences.toml in the folder of the Julia project. Julia reads them when it
compiles Reactant, so they can be changed only while Julia does not run in this process, and take
effect at the next start.

`xla_runtime` is "PJRT" or "IFRT". `gpu` ("none", "cuda" or "rocm") and `gpu_version` (such as
"12.9") choose among Reactant's binaries; if they are not set, Reactant looks for a GPU driver on
the machine that installs it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from .base.errors import InvalidArgumentError, RequirementError, argument
from .base.files import LOCK_WAIT, project_lock, write, writing
from .julia.place import check_no_julia, find_place, package_folder
from .julia.preferences import NAMES, Preference, PreferenceValue, edits, local_file
from .julia.preferences import find as _find

__all__ = ["check_runtime", "find", "get", "set", "unset"]

_ADVICE = "name another project, or ask its owner"


def get(name: str, *, project: str | Path | None = None) -> str | None:
    """A preference as Julia will read it in this project; None if it is not set.

    Args:
        name: "xla_runtime", "gpu" or "gpu_version".
        project: The folder of a Julia project; None for the one in use.

    Raises:
        InvalidArgumentError: There is no such preference.
        RequirementError: No project is in use yet.
        FileError: A file is damaged, or sets a value that Reactant does not know.
    """
    return find(name, project=project).value


def set(name: str, value: str, *, project: str | Path | None = None) -> Path:
    """Set a preference, which takes effect at the next start; the rest of the file stays.

    Args:
        name: "xla_runtime", "gpu" or "gpu_version".
        value: "PJRT" or "IFRT"; "none", "cuda" or "rocm"; "none" or a version such as "12.9".
        project: The folder of a Julia project; None for the one in use.

    Returns:
        The file that sets it.

    Raises:
        InvalidArgumentError: There is no such preference, or it does not have this value.
        StateError: Julia runs in this process.
        RequirementError: No project is in use yet, or the project cannot be written.
        FileError: A file is damaged.
        DeadlineError: Another process holds the project's lock for too long.
    """
    preference = _known(name)
    if not preference.accepts(value):
        raise InvalidArgumentError(f"{name} must be {preference.values}, got {value!r}")
    return _change(_folder(project), {name: value})


def unset(name: str, *, project: str | Path | None = None) -> Path:
    """Remove a preference from the local preferences; a value in another file then counts.

    Args:
        name: "xla_runtime", "gpu" or "gpu_version".
        project: The folder of a Julia project; None for the one in use.

    Returns:
        The file of local preferences.

    Raises:
        InvalidArgumentError: There is no such preference.
        StateError: Julia runs in this process.
        RequirementError: No project is in use yet, or the project cannot be written.
        FileError: A file is damaged.
        DeadlineError: Another process holds the project's lock for too long.
    """
    _known(name)
    return _change(_folder(project), {name: None})


def find(name: str, *, project: str | Path | None = None) -> PreferenceValue:
    """A preference as Julia will read it in this project, and the file that sets it.

    Raises:
        InvalidArgumentError: There is no such preference.
        RequirementError: No project is in use yet.
        FileError: A file is damaged, or sets a value that Reactant does not know.
    """
    _known(name)
    return _find(name, (_folder(project), *_package()))


def check_runtime(num_processes: int, *, project: str | Path | None = None) -> None:
    """Refuse a run of several processes on PJRT; Reactant itself would only warn.

    Raises:
        InvalidArgumentError: The run has several processes, and `xla_runtime` is not IFRT.
    """
    found = find("xla_runtime", project=project)
    if num_processes > 1 and found.value != "IFRT":
        got = f"PJRT from {found.file}" if found.value else "none, which means PJRT"
        raise InvalidArgumentError(
            f"xla_runtime must be IFRT in a run of {num_processes} processes, got {got}; "
            "run: pyreactant prefs set xla_runtime IFRT, then: pyreactant setup"
        )


def _change(project: Path, values: Mapping[str, str | None]) -> Path:
    if edits(project, values):
        check_no_julia("changing a preference")
        with project_lock(project, "pyreactant prefs", advice=_ADVICE, wait=LOCK_WAIT):
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
        raise InvalidArgumentError(
            f"{argument('project')} must be an existing folder of a Julia project, got {folder}"
        )
    return folder


def _package() -> tuple[Path, ...]:
    """Our Julia package, which is after the project on the load path and sets IFRT."""
    try:
        return (package_folder(),)
    except RequirementError:  # then Julia cannot load it either
        return ()
