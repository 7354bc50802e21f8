"""Every command that the package prints can be pasted: the command line takes its words."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyreactant
from tests.cli.tree import LEAVES, TREE

PACKAGE = Path(pyreactant.__file__).parent
NAMES = "|".join(TREE.commands)
# A command ends where its sentence goes on, or with its line.
COMMAND = re.compile(rf"(?<![\w/.-])pyreactant ((?:{NAMES})\b[^\n`;]*)")
_ON = (
    "or and to on with shows prints that then first for in is will wrote chose has can found needs "
    "decides"
)
END = re.compile(
    rf"[,:)]? (?=(?:{_ON.replace(' ', '|')})\b)|, |\)| \(|  +|(?<!\.)\.$|\. |&&|: |' | > |^-"
)
HOLE = "3"
"""In the place of what a message fills in: a text, a number and a folder at once."""


def texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module, without its docstrings."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = ""
            for part in node.values:
                hole = "" if text[-1:].isalpha() else HOLE  # the rest of a sentence, not a word
                text += str(part.value) if isinstance(part, ast.Constant) else hole
            yield text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parent = parents[id(node)]
            if not isinstance(parent, ast.Expr | ast.JoinedStr):
                yield node.value


def commands(text: str) -> Iterator[str]:
    """The commands that a text names, as a reader would paste them."""
    for match in COMMAND.finditer(text.replace("\\\n", " ")):
        words = END.split(match[1], maxsplit=1)[0].strip()
        yield words if words.endswith("...") else words.rstrip(".,:")


def check(words: str) -> None:
    """Raise if the command line does not take the words."""
    split = shlex.split(words)
    depth = 2 if " ".join(split[:2]) in LEAVES else 1
    name, rest = " ".join(split[:depth]), split[depth:]
    assert name in LEAVES or name in TREE.commands, f"no command {name!r}"
    if name in LEAVES and (rest or not any(one.required for one in LEAVES[name].params)):
        LEAVES[name].make_context(name, rest)  # raises if the words are not its own


def test_printed_commands() -> None:
    """All modules in one test, which parses them once; each wrong command is shown.

    No message needs a checkout, either.
    """
    printed = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for text in texts(ast.parse(path.read_text())):
            assert "sbatch slurm/" not in text, path
            printed |= {(f"{path.relative_to(PACKAGE)}", words) for words in commands(text)}
    assert len({words for _, words in printed}) > 60
    wrong = []
    for where, words in sorted(printed):
        try:
            check(words)
        except Exception as error:
            wrong.append(f"{where}: pyreactant {words}: {error}")
    assert not wrong, "\n".join(wrong)
