"""The table of PYREACTANT_* variables: complete, without idle entries, and checked."""

import re
import subprocess
import sys

import pytest

import pyreactant as pr
from pyreactant.base.settings import (
    READERS,
    SETTINGS,
    SWITCHES,
    as_markdown,
    check_names,
    nearest,
)
from tests import harness
from tests.harness import REPOSITORY, environment, pyreactant

NAME = re.compile(r"\bPYREACTANT_[A-Z0-9_]*[A-Z0-9]\b")
SUFFIXES = {".py", ".jl", ".sh", ".sbatch", ".env", ".md", ".toml"}
TABLE = REPOSITORY / "pyreactant" / "base" / "settings.py"
MISSPELT = "PYREACTANT_" + "NUM_PROCESES"


def used() -> dict[str, set[str]]:
    """The names in the repository's files outside the table, each with its files."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found: dict[str, set[str]] = {}
    for name in listed:
        path = REPOSITORY / name
        if path.suffix not in SUFFIXES and name not in (".ci/run", "Makefile"):
            continue
        if path in (TABLE, REPOSITORY / "docs" / "run.md") or not path.exists():
            continue
        for variable in NAME.findall(path.read_text()):
            found.setdefault(variable, set()).add(name)
    return found


def test_the_table_has_every_name_and_no_other() -> None:
    found = used()
    unknown = {name: sorted(files) for name, files in found.items() if name not in SETTINGS}
    assert not unknown
    assert not SETTINGS.keys() - found.keys()


def test_only_tests_use_the_names_of_tests() -> None:
    ours = ("pyreactant/", "slurm/", "gcloud/", "julia/src/", "julia/ext/", "julia/start/")
    for name, files in used().items():
        if SETTINGS[name].reader == "tests":
            assert not [file for file in files if file.startswith(ours)], name


def test_order_and_lines() -> None:
    readers = [setting.reader for setting in SETTINGS.values()]
    assert list(dict.fromkeys(readers)) == list(READERS)
    assert readers == sorted(readers, key=list(READERS).index)
    for setting in SETTINGS.values():
        assert setting.meaning
        assert "\n" not in setting.meaning


def test_the_documentation_has_the_table() -> None:
    assert "\n\n" + as_markdown() in (REPOSITORY / "docs" / "run.md").read_text()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (MISSPELT, "PYREACTANT_NUM_PROCESSES"),
        ("PYREACTANT_" + "BACKENT", "PYREACTANT_BACKEND"),
        ("PYREACTANT_" + "COORDINATOR", "PYREACTANT_COORDINATOR_ADDRESS"),
        ("PYREACTANT_" + "platform", "PYREACTANT_PLATFORM"),
    ],
)
def test_a_misspelt_name(name: str, known: str) -> None:
    with pytest.raises(pr.InvalidArgumentError) as raised:
        check_names({"HOME": "/", known: "2", name: "2"})
    assert f"got {name} (the nearest is {known}); correct the name" in str(raised.value)


def test_several_misspelt_names_and_a_name_like_none() -> None:
    second = "PYREACTANT_" + "SIZ"
    with pytest.raises(pr.InvalidArgumentError, match=rf"{MISSPELT} \(.*\) and {second} \("):
        check_names({second: "", MISSPELT: ""})
    assert nearest("PYREACTANT_") in SETTINGS
    assert nearest("PYREACTANT_\u00e9") in SETTINGS


def test_known_names_and_those_of_kubernetes() -> None:
    check_names(dict.fromkeys(SETTINGS, "1"))
    service = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT")
    port = ("PORT_80_TCP", "PORT_80_TCP_PROTO", "PORT_80_TCP_PORT", "PORT_80_TCP_ADDR")
    for part in (*service, *port):
        check_names({"PYREACTANT_" + part: "", "PYREACTANT_" + "HEAD_0_" + part: ""})


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_0_or_1(name: str) -> None:
    """What is neither had no effect."""
    for value in ("", "0", "1"):
        check_names({name: value})
    for value in ("off", "ja", "maybe", " 0", "2"):
        with pytest.raises(pr.InvalidArgumentError, match=f"{name} must be 0 or 1, got '{value}'"):
            check_names({name: value})


@pytest.mark.parametrize("command", [["explain"], ["crosscheck", "--on", "slurm"]])
def test_commands_refuse_it(command: list[str]) -> None:
    ran = pyreactant(*command, **{MISSPELT: "2"})
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: environment variables that begin with PYREACTANT_ must")
    assert f"got {MISSPELT} (the nearest is PYREACTANT_NUM_PROCESSES)" in ran.stderr


def test_initialize_refuses_it() -> None:
    code = """import sys, pyreactant as pr
try:
    pr.initialize(platform="cpu")
except pr.InvalidArgumentError as error:
    print(error)
print(pr.is_initialized(), "jax" in sys.modules)"""
    ran = harness.run([sys.executable, "-c", code], env=environment(**{MISSPELT: "2"}))
    assert f"got {MISSPELT} (the nearest is PYREACTANT_NUM_PROCESSES)" in ran.stdout
    assert ran.stdout.endswith("\nFalse False\n"), ran.stdout + ran.stderr
