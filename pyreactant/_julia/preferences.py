"""Preferences as Julia reads them: in which files they stand, and how they are changed there.

The rules are those of `Base.get_preferences` (base/loading.jl of Julia 1.10 to 1.12): of each
environment on the load path, later ones first, `[preferences]` of its project file and then its
(Julia)LocalPreferences.toml are merged, under the name that the project has for the package's
UUID in [deps], [extras] or [weakdeps]; where it has none, its preferences are not heeded.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import FileError
from . import toml


@dataclass(frozen=True)
class Package:
    """A Julia package: its name and its UUID."""

    name: str
    uuid: str


@dataclass(frozen=True)
class Preference:
    """A preference: whose it is, and the form of its values, for the machine and in words."""

    package: Package
    form: str
    says: str

    def admits(self, value: object) -> bool:
        """Whether Reactant knows this value."""
        return isinstance(value, str) and re.fullmatch(self.form, value) is not None


@dataclass(frozen=True)
class Found:
    """A preference as Julia will read it; None where nothing says it.

    Attributes:
        value: What it is.
        file: Where it stands.
    """

    value: str | None
    file: Path | None


REACTANT = Package("Reactant", "3c362404-f566-11ee-1572-e11a4b42c853")
JLL = Package("Reactant_jll", "0192cb87-2b54-54ad-80e0-3be72ad8a3c0")
PACKAGES = (REACTANT, JLL)
NAMES = {
    "xla_runtime": Preference(REACTANT, "PJRT|IFRT", "PJRT or IFRT"),
    "gpu": Preference(JLL, "none|cuda|rocm", "none, cuda or rocm"),
    "gpu_version": Preference(JLL, r"none|[0-9]+\.[0-9]+", "none, or a version such as 12.9"),
}


def find(name: str, folders: tuple[Path, ...]) -> Found:
    """A preference in environments as they stand on the load path, the first deciding."""
    preference = NAMES[name]
    value, stands = None, None
    for folder in reversed(folders):
        for file, table in _layers(folder, preference.package):
            if name in table.get("__clear__", ()):
                value, stands = None, None
            if name in table:
                value, stands = table[name], file
    if value is not None and not preference.admits(value):
        raise FileError(
            f"{stands}: {name} must be {preference.says}, got {value!r}; "
            f"do: pyreactant prefs set {name} VALUE"
        )
    return Found(value, stands)


def local_file(project: Path) -> Path:
    """The file of local preferences: Julia reads the first of these and no other."""
    return _first(project, "JuliaLocalPreferences.toml", "LocalPreferences.toml")


def project_file(project: Path) -> Path:
    """The file that makes a folder a Julia project: the first of these counts."""
    return _first(project, "JuliaProject.toml", "Project.toml")


def edits(project: Path, values: Mapping[str, str | None]) -> dict[Path, str]:
    """The files that must change to set these preferences (None: unset), with their new text.

    In the order in which to write them: a project that names a package of which it has no
    preference is as good as before.

    Raises:
        FileError: A file cannot be read, is damaged, or cannot be edited.
    """
    named, local = project_file(project), local_file(project)
    was = {named: toml.read(named), local: toml.read(local)}
    now = dict(was)
    for key, value in values.items():
        package = NAMES[key].package
        if value is not None:
            now[named] = _naming(named, now[named], package)
        section = listed_as(toml.parse(named, now[named]), package) or package.name
        now[local] = _with(local, now[local], section, key, value)
    return {path: text for path, text in now.items() if text != was[path]}


def kept(project: Path) -> dict[Path, str]:
    """The edit that copies what the project file says of our packages to the local preferences.

    Julia reads the same as before; but juliapkg writes the project file anew.
    """
    named, local = project_file(project), local_file(project)
    said = toml.load(named)
    was = text = toml.read(local)
    for package in PACKAGES:
        section = listed_as(said, package)
        if section is None:
            continue
        mine = _table(local, toml.parse(local, text), section)
        for key, value in _table(named, said.get("preferences", {}), section).items():
            if key not in mine and key not in mine.get("__clear__", ()):
                text = _with(local, text, section, key, value)
    return {local: text} if text != was else {}


def listed_as(project: Mapping[str, Any], package: Package) -> str | None:
    """The name that a project has for a package; None where it does not mention it."""
    if "name" in project and str(project.get("uuid", "")).lower() == package.uuid:
        return str(project["name"])
    for section in ("deps", "extras", "weakdeps"):
        names = project.get(section, {})
        for name, uuid in names.items() if isinstance(names, Mapping) else ():
            if str(uuid).lower() == package.uuid:
                return str(name)
    return None


def _layers(folder: Path, package: Package) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    named, local = project_file(folder), local_file(folder)
    project = toml.load(named)
    section = listed_as(project, package)
    if section is not None:
        yield named, _table(named, project.get("preferences", {}), section)
        yield local, _table(local, toml.load(local), section)


def _with(path: Path, text: str, section: str, key: str, value: Any) -> str:
    table = _table(path, toml.parse(path, text), section)
    if table.get(key) == value:
        return text

    def change(document: Any) -> None:
        if value is None:
            del document[section][key]
        else:
            document.setdefault(section, {})[key] = value

    return toml.edit(path, text, change, f"{key} under [{section}] must be {value!r}")


def _naming(path: Path, text: str, package: Package) -> str:
    """The project file with this package among its names."""
    project = toml.parse(path, text)
    if listed_as(project, package) is not None:
        return text
    for section in ("deps", "weakdeps", "extras"):
        if package.name in _table(path, project, section):
            raise FileError(
                f"{path}: {package.name} in [{section}] must have the UUID {package.uuid}, got "
                f"{project[section][package.name]}, another package; name another project"
            )

    def change(document: Any) -> None:
        document.setdefault("extras", {})[package.name] = package.uuid

    return toml.edit(path, text, change, f'{package.name} = "{package.uuid}" under [extras]')


def _table(path: Path, within: Any, name: str) -> Mapping[str, Any]:
    table = within.get(name, {}) if isinstance(within, Mapping) else within
    if not isinstance(table, Mapping):
        raise FileError(f"{path}: {name} must be a table, got {table!r}; mend that by hand")
    return table


def _first(folder: Path, *names: str) -> Path:
    if not os.access(folder, os.X_OK):  # reading the file says so
        return folder / names[-1]
    return next((folder / n for n in names if (folder / n).is_file()), folder / names[-1])
