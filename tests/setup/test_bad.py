"""Missing, refused or broken parts: the message says what to do, and a new attempt repairs it."""

import shutil
from pathlib import Path
from typing import Any

import packaging
import pytest

from tests.harness import REPOSITORY
from tests.setup.conftest import Here, Mounted

NO_NETWORK = {"https_proxy": "http://127.0.0.1:9"}
NO_JULIA = {"PYTHON_JULIAPKG_EXE": "", "PATH": "/usr/bin:/bin"}


def refused(result: dict[str, Any], kind: str, code: int, *parts: str) -> None:
    """Check that an error has this kind, and these parts of its message in order."""
    assert result.get("error") == kind, result
    assert result["code"] == code
    message, at = result["message"], 0
    for part in parts:
        assert part in message[at:], (part, message)
        at = message.index(part, at) + len(part)


def test_no_julia(here: Here) -> None:
    result = here.run(NO_JULIA, offline=True)
    refused(
        result,
        "RequirementError",
        3,
        "Julia must be installed",
        "--offline installs none",
        "pyreactant setup --julia EXECUTABLE",
    )
    result = here.run(NO_JULIA | NO_NETWORK)
    refused(
        result,
        "RequirementError",
        3,
        "needs the network, which does not answer",
        "login node",
        "pyreactant setup --offline",
        "the last lines of",
        "urlopen error",
    )
    assert here.run()["code"] == 0


@pytest.mark.parametrize(
    ("julia", "settings", "kind", "parts"),
    [
        ("/nowhere/julia", {}, "RequirementError", ["'/nowhere/julia', which is neither"]),
        ("/bin/true", {}, "RequirementError", ["/bin/true must be Julia"]),
        ("1.9", {}, "InvalidArgumentError", ["1.10.3 or newer, got 1.9"]),
        (
            None,
            {"STAND_IN_VERSION": "1.9.4"},
            "RequirementError",
            ["Julia must be 1.10.3 or newer, got 1.9.4", "pyreactant setup --julia 1.11"],
        ),
    ],
)
def test_a_julia_that_will_not_do(
    here: Here, julia: str | None, settings: dict[str, str], kind: str, parts: list[str]
) -> None:
    result = here.run(settings, julia=julia)
    refused(result, kind, 3 if kind == "RequirementError" else 2, *parts)
    assert not here.project.exists(), "nothing was begun"


def test_an_old_julia_that_juliapkg_finds(here: Here) -> None:
    tools = here.folder / "tools"
    tools.mkdir()
    (tools / "julia").symlink_to(here.julia)
    settings = {**NO_JULIA, "PATH": f"{tools}:/usr/bin:/bin", "STAND_IN_VERSION": "1.9.4"}
    refused(here.run(settings, offline=True), "RequirementError", 3, "Julia must be installed")


def test_without_juliapkg(here: Here) -> None:
    [packages] = here.prefix.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text(str(REPOSITORY))
    (packages / "packaging").symlink_to(Path(packaging.__file__).parent)
    refused(
        here.run(),
        "RequirementError",
        3,
        "has no juliapkg",
        "pip install 'pyreactant[reactant]'",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fails", "kind", "parts"),
    [
        ("network", "RequirementError", ["needs the network", "--offline", "Could not resolve"]),
        ("space", "RequirementError", ["needs disk space", "JULIA_DEPOT_PATH", "ENOSPC"]),
        ("depot", "RequirementError", ["must write to", "/home/.julia", "JULIA_DEPOT_PATH"]),
        (
            "resolve",
            "PyReactantError",
            ["failed: julia ended with exit code 1;", "run it again", "ERROR: something else"],
        ),
        ("precompile", "PyReactantError", ["compiling for Julia failed", "LoadError"]),
        ("binaries", "RequirementError", ["has none for x86_64-linux-gnu", "--gpu none"]),
    ],
)
def test_julia_fails(here: Here, fails: str, kind: str, parts: list[str]) -> None:
    refused(here.run({"STAND_IN_FAIL": fails}), kind, 1 if kind == "PyReactantError" else 3, *parts)
    if fails == "precompile":
        assert here.run()["ran"] == ["resolve", "precompile", "record"]


def test_a_project_without_reactant(here: Here) -> None:
    project = here.folder / "project"
    project.mkdir()
    (project / "Project.toml").write_text("[deps]\n")
    result = here.run(offline=True, project=str(project))
    refused(result, "RequirementError", 3, f"{project} must have Reactant", "without --offline")
    refused(here.run(offline=True), "RequirementError", 3, "must have Reactant")  # an empty file


@pytest.mark.parametrize(
    ("options", "settings", "part"),
    [
        ({"gpu": "metal"}, {}, "gpu must be cuda, rocm or none, got 'metal'"),
        ({"gpu_version": "12.9"}, {}, "gpu_version needs gpu cuda or rocm"),
        ({"gpu": "cuda", "gpu_version": "new"}, {}, "must be a version such as 12.9, got 'new'"),
        ({"gpu": "none"}, {"REACTANT_GPU": "cuda"}, "REACTANT_GPU=cuda overrides the option none"),
        ({"project": "/dev/null"}, {}, "project must be a folder, got the file /dev/null"),
        ({}, {"PYTHON_JULIACALL_EXE": "/bin/true"}, "must be set together"),
        ({}, {"PYTHON_JULIAPKG_PROJECT": "not/absolute"}, "must be an absolute path"),
        (
            {"project": "/other"},
            {"PYTHON_JULIACALL_PROJECT": "/", "PYTHON_JULIACALL_EXE": "{julia}"},
            "overrides the option project=/other; unset PYTHON_JULIACALL_PROJECT",
        ),
        (
            {"julia": "1.11"},
            {"PYTHON_JULIACALL_PROJECT": "/", "PYTHON_JULIACALL_EXE": "{julia}"},
            "overrides the option julia=1.11; unset",
        ),
    ],
)
def test_what_contradicts(
    here: Here, options: dict[str, Any], settings: dict[str, str], part: str
) -> None:
    settings = {name: value.format(julia=here.julia) for name, value in settings.items()}
    refused(here.run(settings, **options), "InvalidArgumentError", 2, part)


@pytest.mark.slow
def test_damaged_files(here: Here) -> None:
    here.run()
    local = here.project / "LocalPreferences.toml"
    good = local.read_text()
    local.write_text(good + "[Reactant\n")
    refused(here.run(), "FileError", 2, f"{local}, line 3: must be TOML")
    local.write_text(good)
    for name in ("setup.json", "stamp.json"):
        (here.project / "pyreactant" / name).write_text("{")
        assert here.run()["code"] == 0
        assert here.run()["ran"] == []
    (here.prefix / "share" / "pyreactant" / "julia.json").write_text("{")
    assert here.run()["code"] == 0
    assert here.run()["ran"] == []


@pytest.mark.slow
def test_a_read_only_environment(here: Here, mounted: Mounted) -> None:
    """The project is then in another place, which a file in the user's folder names."""
    project = here.folder / "project"
    project.mkdir()
    read_only = mounted.read_only(here.prefix)
    result = here.run(within=read_only)
    refused(
        result,
        "RequirementError",
        3,
        "cannot write",
        "Read-only file system",
        "name a folder that can be written: pyreactant setup --project DIR",
    )
    assert here.run(within=read_only, project=str(project))["code"] == 0
    assert list((here.folder / "home/.config/pyreactant/julia").glob("*.json"))
    assert here.place()["project"] == str(project)
    # If that is not writable either, the message offers an alternative.
    shutil.rmtree(here.folder / "home")
    (here.folder / "home").mkdir()
    result = here.run(within=mounted.read_only(here.prefix, here.folder / "home"))
    refused(result, "RequirementError", 3, "cannot write")
    result = here.run(
        within=mounted.read_only(here.prefix, here.folder / "home"), project=str(project)
    )
    refused(
        result,
        "RequirementError",
        3,
        f"{project} is set up",
        "set these variables",
        f"PYTHON_JULIACALL_EXE={here.julia} PYTHON_JULIACALL_PROJECT={project}",
    )
    # Everything is set up, so the setup writes nothing.
    assert here.run(project=str(project))["ran"] == ["record"]
    assert here.run(within=mounted.read_only(here.folder))["ran"] == []


def test_a_full_disk(here: Here, mounted: Mounted) -> None:
    project = here.folder / "small"
    project.mkdir()
    result = here.run(within=mounted.full(project), project=str(project))
    refused(
        result,
        "RequirementError",
        3,
        "cannot write",
        "No space left on device",
        "free some space there, then run it again",
    )


def test_a_process_in_which_julia_runs(here: Here) -> None:
    refused(here.run(julia_runs=True), "StateError", 2, "Julia does not run", "restart")
    assert not here.project.exists()
    here.run()
    assert here.run(julia_runs=True)["ran"] == [], "nothing is changed"
