"""The pages that mirror the code: commands, public names, error texts, and the site itself."""

import re
from collections.abc import Iterator

import pytest
import typer

import pyreactant as pr
from pyreactant.check.records.verdict import Kind
from pyreactant.cli import main  # noqa: F401 - the commands
from pyreactant.cli.app import app
from tests.harness import REPOSITORY

DOCS = REPOSITORY / "docs"
COMMANDS = (DOCS / "reference" / "commands.md").read_text()
TROUBLES = (DOCS / "troubleshooting.md").read_text()


def sources() -> str:
    """The package's sources; strings that Python joins are joined."""
    texts = (path.read_text() for path in (REPOSITORY / "pyreactant").rglob("*.py"))
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts))


def commands(
    command: typer.core.TyperGroup, words: str
) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    for name, child in command.commands.items():
        if isinstance(child, typer.core.TyperGroup):
            yield from commands(child, f"{words} {name}")
        else:
            assert isinstance(child, typer.core.TyperCommand)
            yield f"{words} {name}", child


def test_every_command_and_option_is_documented() -> None:
    """If this fails, run `make docs`."""
    sections = dict(re.findall(r"^##+ `([^`]+)`\n(.*?)(?=^##|\Z)", COMMANDS, re.M | re.S))
    tree = typer.main.get_command(app)
    assert isinstance(tree, typer.core.TyperGroup)
    for words, command in commands(tree, "pyreactant"):
        text = " ".join(sections.pop(words).split())
        for parameter in command.params:
            if isinstance(parameter, typer.core.TyperOption) and not parameter.hidden:
                assert parameter.opts[0] in text, (words, parameter.opts)
                assert " ".join((parameter.help or "").split()[:6]) in text, parameter.opts
    left = [
        words
        for words in sections
        if words.count(" ") > 1 or words.split()[-1] not in tree.commands
    ]
    assert not left, f"these commands are gone: {left}"


def test_every_public_name_is_documented() -> None:
    text = (DOCS / "reference" / "api.md").read_text()
    named = set(re.findall(r"^### `pr\.(\w+)", text, re.MULTILINE))
    assert set(pr.__all__) - {"__version__"} <= named
    for name in re.findall(r"^### `pr\.([\w.]+)`", text, re.MULTILINE):
        thing = pr
        for part in name.split("."):
            thing = getattr(thing, part)


@pytest.mark.parametrize(
    "text", re.findall(r'"([^"]+)"', "".join(re.findall("^### .*", TROUBLES, re.M)))
)
def test_an_error_text_is_one_of_ours(text: str) -> None:
    assert text in sources()


WORDS = [
    "out_sharding",
    "static",
    "donate",
    "shard_map",
    "num_cpu_devices",
    "jit",
    "x64",
    "checkpoint",
    "metrics",
    "preemption",
    "spot",
    "placement",
    "replicated",
    "halo",
    "roofline",
    "mTLS",
    "collective",
    "requeue",
    "StableHLO",
]


def test_a_word_that_a_newcomer_looks_for_has_an_entry() -> None:
    glossary = (DOCS / "glossary.md").read_text()
    assert not [w for w in WORDS if not re.search(rf"^\| `?{w}`? \|", glossary, re.MULTILINE)]


def test_every_kind_of_wrong_says_where_to_look() -> None:
    text = (DOCS / "crosscheck.md").read_text().partition("### Kinds of wrong")[2]
    rows = {word for row in re.findall(r"^\| ([^|]*) \|", text, re.M) for word in row.split(", ")}
    assert {str(kind) for kind in Kind} <= rows


def test_every_kind_of_wrong_has_its_evidence() -> None:
    text = (DOCS / "checks.md").read_text().partition("## How a fault is named")[2].lower()
    assert [kind for kind in Kind if str(kind).lower() not in text] == [Kind.UNKNOWN]
