"""Options: one name for one thing, and what commands and options were called before."""

import inspect
import re
import subprocess

import pytest
import typer.core

import pyreactant as pr
from pyreactant.base.errors import InvalidArgumentError
from pyreactant.cli.command import (
    LONG,
    NEW_COMMANDS,
    NEW_OPTIONS,
    PANELS,
    Command,
    check_together,
)
from pyreactant.cli.run import RunCommand
from tests.cli.tree import LEAVES, TREE
from tests.harness import REPOSITORY, pyreactant

CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text()

# A line with each command of version 0.1, and with each option.
OF_COMMANDS = {name: [*name.split(), "--nodes", "2", "--", "train.py"] for name in NEW_COMMANDS}
OF_OPTIONS = {
    **{name: ["run"] for name in NEW_OPTIONS},
    "--cpu-devices": ["matmul"],
    "--num-slices": ["preflight"],
    "--worker": ["tpu", "ssh"],
}


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return pyreactant(*words)


def options(command: Command) -> list[typer.core.TyperOption]:
    return [one for one in command.params if isinstance(one, typer.core.TyperOption)]


@pytest.mark.parametrize("name", NEW_COMMANDS)
def test_an_old_command_names_the_new_one(name: str) -> None:
    words = re.escape(f"pyreactant {name} is a command of version 0.1; it is now: ")
    with pytest.raises(InvalidArgumentError, match=words + re.escape(NEW_COMMANDS[name])):
        TREE.main(OF_COMMANDS[name], standalone_mode=False, prog_name="pyreactant")
    assert f"| `{name}` | `{NEW_COMMANDS[name]}` |" in CHANGELOG


@pytest.mark.parametrize("name", NEW_OPTIONS)
def test_an_old_option_names_the_new_one(name: str) -> None:
    line = [*OF_OPTIONS[name], name, "7", "--", "ls"]
    words = re.escape(f"{name} is an option of version 0.1; it is now {NEW_OPTIONS[name]}")
    with pytest.raises(InvalidArgumentError, match=words):
        TREE.main(line, standalone_mode=False, prog_name="pyreactant")
    assert f"| `{name}` | `{NEW_OPTIONS[name]}` |" in CHANGELOG


OVERWRITE = [
    (name, option.help)
    for name, command in LEAVES.items()
    for option in options(command)
    if "--overwrite" in option.opts
]


@pytest.mark.parametrize(("name", "text"), OVERWRITE)
def test_the_help_of_overwrite_names_the_options_of_its_files(name: str, text: str) -> None:
    files = [one for one, rule in LEAVES[name].beside().items() if "--overwrite" in rule.enables]
    assert files
    assert not [file for file in files if file not in text]


def test_an_old_command_ends_with_2_and_one_line() -> None:
    for line in ("slurm submit -- train.py", "run --folder here -- train.py"):
        ran = run(line.split())
        assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1), ran.stderr


def test_every_option_of_a_place_is_declared_once() -> None:
    """One name means one thing: the same type and panel wherever a place has it."""
    command = LEAVES["run"]
    assert isinstance(command, RunCommand)
    by_name: dict[str, set[tuple[str, str]]] = {}
    for declared in command.places().values():
        for name, (option, _) in declared.items():
            by_name.setdefault(name, set()).add((option.panel, option.help))
    assert {n: found for n, found in by_name.items() if len({p for p, _ in found}) > 1} == {}
    panels = {
        name: option.panel for d in command.places().values() for name, (option, _) in d.items()
    }
    of_others = {name: panel for panel, names in PANELS.items() for name in names.split()}
    assert {n: of_others[n] for n in panels.keys() & of_others.keys()} == {
        n: panels[n] for n in panels.keys() & of_others.keys()
    }


def test_a_name_is_in_one_panel() -> None:
    listed = [name for names in PANELS.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    known = {name for command in LEAVES.values() for one in options(command) for name in one.opts}
    assert set(listed) <= known


def test_long_helps_have_panels() -> None:
    long = [command for command in LEAVES.values() if len(options(command)) >= LONG]
    assert len(long) >= 6
    for command in long:
        panels = [one.rich_help_panel for one in options(command)]
        assert panels.count("Options") <= 10, command.name
        assert len(set(panels)) >= 3, command.name


SAME = ["matmul", "preflight", "plan", "crosscheck"]


def test_equal_options_have_equal_defaults() -> None:
    """Of a slice, of this machine and of a check: a command line means the same product."""
    defaults: dict[str, dict[str, object]] = {}
    for name in SAME:
        for option in options(LEAVES[name]):
            shown = option.show_default
            default = shown if isinstance(shown, str) else option.default
            defaults.setdefault(option.opts[0], {})[name] = default
    different = {
        name: found for name, found in defaults.items() if len(set(map(str, found.values()))) > 1
    }
    assert different == {
        # A cross-check runs many programs, each with its own default.
        "--size": {**dict.fromkeys(SAME[:3]), "crosscheck": "the program's default"},
        "--spec": {"matmul": "x,y", "preflight": "x,y", "crosscheck": "the program's default"},
        "--dtype": {**dict.fromkeys(SAME[:3], "float32"), "crosscheck": "the program's default"},
        # Without --platform, plan is for a slice.
        "--platform": {"matmul": "best available", "plan": None, "crosscheck": "best available"},
        # A cross-check starts processes and always keeps their files.
        "--devices-per-process": {"matmul": None, "crosscheck": "4 on CPU, otherwise all"},
        "--out": {"matmul": None, "crosscheck": "in pyreactant-crosschecks"},
        # Those of a cross-check on slices may come from Google's variables.
        "--slices": {"preflight": 1, "plan": 1, "crosscheck": "$SLICE_COUNT"},
        "--topology": {"preflight": None, "plan": None, "crosscheck": "$ACCELERATOR_TYPE"},
        # A compiler that hangs is ended; a run has the limit that its user gives.
        "--timeout": {"preflight": "10m", "plan": "10m", "crosscheck": None},
    }
    for function in (pr.preflight, pr.plan):
        assert inspect.signature(function).parameters["dtype"].default == "float32"


def words(command: Command, name: str) -> list[str]:
    """A command line's part for an option or an argument."""
    found = [one for one in options(command) if name in (*one.opts, *one.secondary_opts)]
    if not found:
        return ["1"]
    return [name] if found[0].is_flag else [name, "1d" if found[0].metavar == "TIME" else "1"]


REFUSED = [
    (name, one, other)
    for name, command in LEAVES.items()
    for one, rule in command.beside().items()
    for other in rule.excludes.split()
]
NEEDING = [
    (name, one, other)
    for name, command in LEAVES.items()
    for other, rule in command.beside().items()
    for one in rule.enables.split()
    if words(command, one) != ["1"]
]


@pytest.mark.parametrize(("name", "one", "other"), REFUSED)
def test_options_that_contradict_each_other(name: str, one: str, other: str) -> None:
    command = LEAVES[name]
    assert other == "PROGRAM" or words(command, other) != ["1"], f"there is no {other}"
    named = [one, other]
    named.sort(key=lambda text: not text.startswith("-"))  # arguments last
    line = [*name.split(), *(word for text in named for word in words(command, text))]
    if name == "run" or name.split()[-1] in ("status", "logs"):
        line.append("1")
    with pytest.raises(InvalidArgumentError, match=f"give {one} or {other}, not both"):
        TREE.main(line, standalone_mode=False, prog_name="pyreactant")


@pytest.mark.parametrize(("name", "one", "other"), NEEDING)
def test_options_that_need_another(name: str, one: str, other: str) -> None:
    beside = LEAVES[name].beside()
    check_together(beside, {one, other})
    with pytest.raises(InvalidArgumentError, match=f"{one} needs .*{other}.*; give both"):
        check_together(beside, {one})


@pytest.mark.parametrize(
    ("command", "name"), [("doctor", "--cpu-devices"), ("explain", "--folder")]
)
def test_an_old_option_that_a_command_never_had(command: str, name: str) -> None:
    """Its new name would be no option of the command either."""
    ran = run([command, name, "2"])
    assert ran.returncode == 2
    assert f"no such option: {name}" in ran.stderr
    assert "it is now" not in ran.stderr
