"""Other programs' words are matched in one file, and ours nowhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyreactant
from pyreactant.base import words

PACKAGE = Path(pyreactant.__file__).parent
MATCHED = {"startswith", "endswith", "partition", "find", "index", "count", "removesuffix"}


def _is_text_of_error(node: ast.AST) -> bool:
    """Whether it is the text of an exception, such as `str(error)`."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in {"error", "exception", "raised", "caught"}
    return False


def matches(source: str) -> Iterator[int]:
    """Lines that look for words in the text of an exception."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[right]):
                if _is_text_of_error(right):
                    yield node.lineno
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                if _is_text_of_error(left) and isinstance(right, ast.Constant):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                first_line = name == "partition" and ast.unparse(args[0]) == r"'\n'"
                if _is_text_of_error(value) and name in MATCHED and not first_line:
                    yield node.lineno
                if name in {"search", "match", "fullmatch"} and any(map(_is_text_of_error, args)):
                    yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "x = 'closed' in str(error)",
        "x = str(error).startswith('no')",
        "x = str(error) == 'no room'",
        "x = re.search('no', str(error))",
        "x = _NO.match(str(error))",
    ],
)
def test_the_search_sees_words(line: str) -> None:
    assert list(matches(line))


def test_one_file_looks_for_words() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "words.py"]
    assert len(files) > 200
    seen = [f"{path.name}:{line}" for path in files for line in matches(path.read_text())]
    # What another Python or system says is the mend, so that one line goes.
    assert [text for text in seen if not text.startswith("software.py:")] == []


def test_words_of_others() -> None:
    assert (
        words.fatal("I1 a] b\nF0101 00:00:00 1 x.cc:3] Check failed: no\nz") == "Check failed: no"
    )
    assert words.fatal("nothing") is None
    assert words.unknown_flags("Unknown flag in XLA_FLAGS: --a --b") == ("XLA_FLAGS", "--a --b")
    assert words.owner("libtpu is already in use by process with pid 41") == 41
    assert words.busy("first\nDevice or resource busy (x)\nlast") == "Device or resource busy (x)"
    assert words.unknown_call("Custom emitter for lapack not found") == "lapack"
    assert words.unusable("Unable to initialize backend 'tpu': no chips") == "no chips"
    assert words.is_too_large("RESOURCE_EXHAUSTED: 9 bytes")
    assert words.is_thread_limit(RuntimeError("can't start new thread"))
    assert words.is_absent_key(KeyError) is False
    assert words.has_ended("error: Kill job error on job 7: Job already completing or completed")
