"""Options: one name for one thing, and the names that they had before."""

import inspect

import pytest
import typer.core

import pyreactant as pr
from pyreactant.base.errors import InvalidArgumentError
from pyreactant.cli.command import (
    LONG,
    NOT_WITH,
    OLD_NAMES,
    ONLY_WITH,
    PANELS,
    Command,
    check_together,
)
from tests.cli.tree import LEAVES, TREE

OLD = {
    "run": {"--folder": "--out"},
    "slurm submit": {"--output": "--out"},
    "topology": {"--num-slices": "--slices"},
    "preflight": {"--num-slices": "--slices"},
    "plan": {"--num-slices": "--slices"},
    "matmul": {"--cpu-devices": "--devices-per-process"},
    "tpu create": {"--accelerator-type": "--topology", "--slice-count": "--slices"},
    "tpu run": {"--accelerator-type": "--topology", "--slice-count": "--slices"},
    "tpu ssh": {
        "--accelerator-type": "--topology",
        "--slice-count": "--slices",
        "--worker": "--process",
    },
    "tpu logs": {
        "--accelerator-type": "--topology",
        "--slice-count": "--slices",
        "--worker": "--process",
    },
}


def options(command: Command) -> list[typer.core.TyperOption]:
    return [one for one in command.params if isinstance(one, typer.core.TyperOption)]


def test_the_old_names() -> None:
    found = {
        name: {old: option.opts[0] for old, option in command.old_names.items()}
        for name, command in LEAVES.items()
        if command.old_names
    }
    assert found == OLD
    assert set().union(*OLD.values()) == OLD_NAMES


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_works_and_is_hidden(name: str) -> None:
    command = LEAVES[name]
    for old, new in OLD[name].items():
        values = []
        for option in (old, new):
            words = [option, "7", *(["--topology", "x"] if name == "preflight" else [])]
            context = command.make_context(name, [*words, *(["ls"] if name == "run" else [])])
            values.append(context.params)
        assert values[0] == values[1]
        assert old not in command.get_help(context)


def test_a_name_is_in_one_panel() -> None:
    listed = [name for names in PANELS.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    known = {name for command in LEAVES.values() for one in options(command) for name in one.opts}
    assert set(listed) <= known


def test_long_helps_have_panels() -> None:
    long = [command for command in LEAVES.values() if len(options(command)) >= LONG]
    assert len(long) >= 8
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
        # A compiler that hangs is ended; a run has the limit that its user gives.
        "--timeout": {"preflight": 600.0, "plan": 600.0, "crosscheck": None},
    }
    for function in (pr.preflight, pr.plan):
        assert inspect.signature(function).parameters["dtype"].default == "float32"


def words(command: Command, name: str) -> list[str]:
    """A command line's part for an option or an argument."""
    found = [one for one in options(command) if name in (*one.opts, *one.secondary_opts)]
    if not found:
        return ["1"]
    return [name] if found[0].is_flag else [name, "1"]


REFUSED = [
    (command, one, other)
    for command, table in NOT_WITH.items()
    for one, others in table.items()
    for other in others.split()
]


@pytest.mark.parametrize(("name", "one", "other"), REFUSED)
def test_options_that_contradict_each_other(name: str, one: str, other: str) -> None:
    command = LEAVES[name]
    named = [one, other]
    named.sort(key=lambda text: not text.startswith("-"))  # arguments last
    line = [*name.split(), *(word for text in named for word in words(command, text))]
    if name == "jobs submit" or name.split()[-1] in ("status", "logs"):
        line.append("1")
    with pytest.raises(InvalidArgumentError, match=f"give {one} or {other}, not both"):
        TREE.main(line, standalone_mode=False, prog_name="pyreactant")


@pytest.mark.parametrize(
    ("name", "one", "needed"),
    [(name, *pair) for name, table in ONLY_WITH.items() for pair in table.items()],
)
def test_options_that_need_another(name: str, one: str, needed: str) -> None:
    known = {
        text for option in options(LEAVES[name]) for text in (*option.opts, *option.secondary_opts)
    }
    assert {one, *needed.split()} <= known
    for each in needed.split():
        check_together(name, {one, each})
    with pytest.raises(InvalidArgumentError, match=f"{one} needs {' or '.join(needed.split())}"):
        check_together(name, {one})
