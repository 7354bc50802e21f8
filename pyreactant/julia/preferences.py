"""Preferences as Julia reads them: the files that hold them, and edits of these files.

Edits of a TOML file change nothing else in it.

The rules are those of `Base.get_preferences` (base/loading.jl of Julia 1.10 to 1.12). For each
environment on the load path, the last one first, Julia merges `[preferences]` of the project file
and then (Julia)LocalPreferences.toml. The table's name is the one that the project has for the
package's UUID in [deps], [extras] or [weakdeps]; without a name, Julia ignores the preferences.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import FileError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def load_toml(path: Path) -> dict[str, Any]:
    """The content of a file; empty if the file does not exist.

    Raises:
        FileError: The file cannot be read, or is not TOML; the message has the line.
    """
    return parse_toml(path, read_toml(path))


def read_toml(path: Path) -> str:
    """The text of a file, with its own line endings; empty if the file does not exist.

    Raises:
        FileError: The file cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _bad(path, line, f"byte {data[error.start]:#04x} is not UTF-8") from None


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """The content of a text.

    Raises:
        FileError: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = str(error)
        at = re.search(r" ?\(at (?:line (\d+), column \d+|end of document)\)$", why)
        line = int(at[1]) if at and at[1] else text.count("\n") + 1
        raise _bad(path, line, why[: at.start()] if at else why) from None
    except RecursionError:
        raise _bad(path, 1, "it is nested too deeply") from None


def edit_toml(
    path: Path, text: str, change: "Callable[[TOMLDocument | dict[str, Any]], object]", by_hand: str
) -> str:
    """The text after a change; comments, order and spaces stay.

    Args:
        path: The file, for messages.
        text: The text of the file.
        change: The change. It is applied to tomlkit's document and to a plain dictionary of the
            same content; the results must be equal, which proves that nothing else changed.
        by_hand: What a person would write into the file, for messages.

    Raises:
        FileError: The text is not TOML, or tomlkit cannot edit it.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    expected = parse_toml(path, text)
    change(expected)
    try:
        document = tomlkit.parse(text)
        change(document)
        edited = tomlkit.dumps(document)
        proven = same_toml(_without_empty(tomllib.loads(edited)), _without_empty(expected))
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, ValueError, LookupError):
        proven = False
    if not proven:
        raise FileError(
            f"{path} cannot be edited without changing something else in it; "
            f"write it by hand: {by_hand}"
        )
    return edited


def same_toml(first: Any, second: Any) -> bool:
    """Whether two TOML values are equal; nan equals nan, and 1 is neither 1.0 nor true."""
    texts = [json.dumps(value, sort_keys=True, default=repr) for value in (first, second)]
    return texts[0] == texts[1]


def _without_empty(content: dict[str, Any]) -> dict[str, Any]:
    """The content without empty tables: tomlkit drops a table with its last dotted key."""
    return {key: value for key, value in content.items() if value != {}}


def _bad(path: Path, line: int, why: str) -> FileError:
    return FileError(f"{path}, line {line}: must be TOML, but {why}; fix that line, then try again")


@dataclass(frozen=True)
class Package:
    """A Julia package."""

    name: str
    uuid: str


@dataclass(frozen=True)
class Preference:
    """A preference that can be set.

    Attributes:
        package: The package that reads it.
        pattern: A regular expression of its values.
        values: Its values in words, for messages.
    """

    package: Package
    pattern: str
    values: str

    def accepts(self, value: object) -> bool:
        """Whether Reactant knows this value."""
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class PreferenceValue:
    """A preference as Julia will read it.

    Attributes:
        value: The value; None if it is not set.
        file: The file that sets it; None if it is not set.
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


def find(name: str, folders: tuple[Path, ...]) -> PreferenceValue:
    """A preference in the environments of a load path; the first that sets it decides.

    Raises:
        FileError: A file is damaged, or sets a value that Reactant does not know.
    """
    preference = NAMES[name]
    value, source = None, None
    for folder in reversed(folders):
        for file, table in _preference_tables(folder, preference.package):
            if name in table.get("__clear__", ()):
                value, source = None, None
            if name in table:
                value, source = table[name], file
    if value is not None and not preference.accepts(value):
        raise FileError(
            f"{source}: {name} must be {preference.values}, got {value!r}; "
            f"run: pyreactant prefs set {name} VALUE"
        )
    return PreferenceValue(value, source)


def local_file(project: Path) -> Path:
    """The file of local preferences: Julia reads only the first of these that exists."""
    return _first(project, "JuliaLocalPreferences.toml", "LocalPreferences.toml")


def project_file(project: Path) -> Path:
    """The file that makes a folder a Julia project: the first of these that exists."""
    return _first(project, "JuliaProject.toml", "Project.toml")


def edits(project: Path, values: Mapping[str, str | None]) -> dict[Path, str]:
    """The files that change when preferences are set (None unsets one), with their new text.

    Write them in this order: a project that names a package without a preference is harmless.

    Raises:
        FileError: A file cannot be read, is damaged, or cannot be edited.
    """
    named, local = project_file(project), local_file(project)
    old = {named: read_toml(named), local: read_toml(local)}
    new = dict(old)
    for key, value in values.items():
        package = NAMES[key].package
        if value is not None:
            new[named] = _with_package(named, new[named], package)
        section = name_in_project(parse_toml(named, new[named]), package) or package.name
        new[local] = _with_preference(local, new[local], section, key=key, value=value)
    return {path: text for path, text in new.items() if text != old[path]}


def copies(project: Path) -> dict[Path, str]:
    """The edit that copies our packages' preferences from the project file to the local file.

    Julia reads the same values as before, but juliapkg will rewrite the project file.

    Raises:
        FileError: A file cannot be read, is damaged, or cannot be edited.
    """
    named, local = project_file(project), local_file(project)
    content = load_toml(named)
    old = text = read_toml(local)
    for package in PACKAGES:
        section = name_in_project(content, package)
        if section is None:
            continue
        table = _table(local, parse_toml(local, text), section)
        for key, value in _table(named, content.get("preferences", {}), section).items():
            if key not in table and key not in table.get("__clear__", ()):
                text = _with_preference(local, text, section, key=key, value=value)
    return {local: text} if text != old else {}


def name_in_project(project: Mapping[str, Any], package: Package) -> str | None:
    """The name that a project has for a package; None if it does not list the package."""
    if "name" in project and str(project.get("uuid", "")).lower() == package.uuid:
        return str(project["name"])
    for section in ("deps", "extras", "weakdeps"):
        names = project.get(section, {})
        for name, uuid in names.items() if isinstance(names, Mapping) else ():
            if str(uuid).lower() == package.uuid:
                return str(name)
    return None


def _preference_tables(folder: Path, package: Package) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    named, local = project_file(folder), local_file(folder)
    project = load_toml(named)
    section = name_in_project(project, package)
    if section is not None:
        yield named, _table(named, project.get("preferences", {}), section)
        yield local, _table(local, load_toml(local), section)


def _with_preference(path: Path, text: str, section: str, *, key: str, value: Any) -> str:
    """The text of a preferences file with one preference changed."""
    table = _table(path, parse_toml(path, text), section)
    if table.get(key) == value:
        return text

    def change(document: Any) -> None:
        if value is None:
            del document[section][key]
        else:
            document.setdefault(section, {})[key] = value

    return edit_toml(path, text, change, f"{key} under [{section}] must be {value!r}")


def _with_package(path: Path, text: str, package: Package) -> str:
    """The text of a project file that lists the package."""
    project = parse_toml(path, text)
    if name_in_project(project, package) is not None:
        return text
    for section in ("deps", "weakdeps", "extras"):
        if package.name in _table(path, project, section):
            raise FileError(
                f"{path}: {package.name} in [{section}] must have the UUID {package.uuid}, got "
                f"{project[section][package.name]}, which is another package; use another project"
            )

    def change(document: Any) -> None:
        document.setdefault("extras", {})[package.name] = package.uuid

    return edit_toml(path, text, change, f'{package.name} = "{package.uuid}" under [extras]')


def _table(path: Path, within: Any, name: str) -> Mapping[str, Any]:
    table = within.get(name, {}) if isinstance(within, Mapping) else within
    if not isinstance(table, Mapping):
        raise FileError(f"{path}: {name} must be a table, got {table!r}; fix that by hand")
    return table


def _first(folder: Path, *names: str) -> Path:
    if not os.access(folder, os.X_OK):  # reading the file raises the error
        return folder / names[-1]
    return next((folder / n for n in names if (folder / n).is_file()), folder / names[-1])
