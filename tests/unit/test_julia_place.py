"""Which Julia and which project: from the environment, and from the record of a setup."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from pyreactant.base.errors import FileError, InvalidArgumentError, RequirementError
from pyreactant.julia import place
from pyreactant.julia.place import find_place, package_folder, pointers


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with a Python prefix and configuration for this test."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    (tmp_path / "project").mkdir()
    julia = tmp_path / "bin" / "julia"
    julia.parent.mkdir()
    julia.write_text("#!/bin/sh\n")
    julia.chmod(0o755)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return {"PATH": str(julia.parent)}


def record(tmp_path: Path, **changes: object) -> Path:
    """Write the record of a setup."""
    path = tmp_path / "project" / "pyreactant" / "setup.json"
    path.parent.mkdir(exist_ok=True)
    content = {"executable": str(tmp_path / "bin/julia"), "project": str(tmp_path / "project")}
    path.write_text(json.dumps(content | changes))
    return path


def point(pointer: Path, to: Path) -> None:
    pointer.parent.mkdir(parents=True, exist_ok=True)
    pointer.write_text(json.dumps({"record": str(to)}))


def test_the_environment_names_both(environ: dict[str, str], tmp_path: Path) -> None:
    both = {"PYTHON_JULIACALL_EXE": "julia", "PYTHON_JULIACALL_PROJECT": str(tmp_path / "project")}
    place = find_place(environ | both)
    assert place.executable == tmp_path / "bin" / "julia"
    assert place.project == tmp_path / "project"
    assert place.source == "PYTHON_JULIACALL_EXE and PYTHON_JULIACALL_PROJECT"
    file = {"PYTHON_JULIACALL_PROJECT": str(tmp_path / "project" / "Project.toml")}
    assert find_place(environ | both | file).project == tmp_path / "project"


@pytest.mark.parametrize("name", ["PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"])
def test_the_environment_names_one(environ: dict[str, str], tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"must be set together, got {name} without"):
        find_place(environ | {name: str(tmp_path / "project")})


def test_the_environment_names_what_is_not_there(environ: dict[str, str], tmp_path: Path) -> None:
    project = {"PYTHON_JULIACALL_PROJECT": str(tmp_path / "project")}
    with pytest.raises(RequirementError, match="PYTHON_JULIACALL_EXE must name an executable"):
        find_place(environ | project | {"PYTHON_JULIACALL_EXE": "nothing"})
    with pytest.raises(
        RequirementError, match="PYTHON_JULIACALL_PROJECT must name an existing folder"
    ):
        find_place(
            environ | {"PYTHON_JULIACALL_EXE": "julia", "PYTHON_JULIACALL_PROJECT": "/nowhere"}
        )


def test_what_a_setup_wrote(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(RequirementError, match=r"set up for .*, but is not; run: .*pyreactant s"):
        find_place(environ)
    own, shared = pointers()
    point(shared, record(tmp_path, depot="/depot"))
    place = find_place(environ)
    assert place.executable == tmp_path / "bin" / "julia"
    assert place.project == tmp_path / "project"
    assert place.depot == "/depot"
    assert "pyreactant setup" in place.source
    # The user's record wins: in a shared environment, a user can change only that one.
    point(own, tmp_path / "other" / "setup.json")
    with pytest.raises(
        RequirementError, match=r"must be at .*/other/setup.json, but is not; run: pyr"
    ):
        find_place(environ)


@pytest.mark.parametrize("gone", ["bin/julia", "project"])
def test_what_a_setup_settled_is_gone(environ: dict[str, str], tmp_path: Path, gone: str) -> None:
    path = record(tmp_path).rename(tmp_path / "setup.json")
    point(pointers()[1], path)
    (tmp_path / gone).rename(tmp_path / "moved")
    with pytest.raises(
        RequirementError, match=f"must be at .*/{gone}, but is not; run: pyreactant"
    ):
        find_place(environ)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"executable": 3, "project": "/"}', "\xff"])
def test_what_a_setup_wrote_is_damaged(
    environ: dict[str, str], tmp_path: Path, content: str
) -> None:
    path = record(tmp_path)
    point(pointers()[1], path)
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(FileError, match=r"setup.json, which .* wrote, is damaged"):
        find_place(environ)
    pointers()[1].write_bytes(content.encode("latin-1"))
    with pytest.raises(FileError, match=r"julia.json, which .* wrote, is damaged"):
        find_place(environ)


def test_the_julia_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is beside the Python package in a checkout, and inside it in a wheel."""
    monkeypatch.setattr(place, "_PACKAGE", tmp_path / "pyreactant")
    with pytest.raises(RequirementError, match="installation is incomplete"):
        package_folder()
    for folder in (tmp_path / "julia", tmp_path / "pyreactant" / "_julia_package"):
        (folder / "src").mkdir(parents=True)
        (folder / "src" / "PyReactant.jl").write_text("module PyReactant end")
        assert package_folder() == folder


@pytest.mark.parametrize("installed", [True, False])
def test_a_julia_that_was_never_set_up(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """Without the package, setup itself would only say that it is missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed or None)
    with pytest.raises(RequirementError, match="but is not; run: ") as raised:
        find_place(environ)
    pip = "python -m pip install 'pyreactant[reactant]' && "
    assert raised.value.command == ("" if installed else pip) + "pyreactant setup"
