"""The numbers of exit codes are in one file; errors, commands and keepers have names for them."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyreactant
from pyreactant.base.errors import ExitCode, PyReactantError, code_of, code_of_signal

PACKAGE = Path(pyreactant.__file__).parent


def test_the_help_names_all_of_them() -> None:
    from pyreactant.cli.app import app

    for code in ExitCode:
        assert re.search(rf"\b{code:d} [A-Za-z]", str(app.info.epilog)), code


ALONE = {"julia/setup/guard.py"}
"""Scripts that import nothing of the package, since they must start at once."""

ENDS = {"Exit", "SystemExit", "exit", "_exit", "end_at_once", "Status", "CannotStartError"}
NAMES = {"exit_code", "code", "refusal_code"}
OF_SHELLS = {126, 127, 130, 141, 143}


def _number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)  # report.get("exit_code")
    return getattr(node, "attr", getattr(node, "id", ""))


def numbers(source: str) -> Iterator[int]:
    """Lines that write the number of an exit code."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=int(value)) if value in OF_SHELLS:
                yield node.lineno
            case ast.Call(func=func, args=args) if _name(func) in ENDS and any(map(_number, args)):
                yield node.lineno
            case ast.keyword(arg=str(name), value=value) if name in NAMES and _number(value):
                yield value.lineno
            case ast.AnnAssign(target=target, value=value) if _name(target) in NAMES:
                if _number(value):
                    yield node.lineno
            case ast.Assign(targets=[target], value=value) if _name(target) in NAMES:
                if _number(value):
                    yield node.lineno
            case ast.Compare(left=left, comparators=[right]) if _name(left) in NAMES:
                if _number(right):
                    yield node.lineno
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in NAMES and _number(value):
                        yield node.lineno
            case ast.BinOp(left=ast.Constant(value=128), op=ast.Add() | ast.Sub()):
                yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        "raise typer.Exit(8)",
        "raise SystemExit(2)",
        "os._exit(6)",
        "sys.exit(1)",
        "end_at_once(3)",
        "ok = error['exit_code'] == 5",
        "ok = run.exit_code == 6",
        "ok = report.get('exit_code') == 4",
        "Status('lost', why, 6)",
        "RunReport(exit_code=6)",
        "exit_code = 5",
        "exit_code: int = 8",
        "row = {'exit_code': 7}",
        "code = 128 + number",
        "code = 128 - code",
        "return 130",
    ],
)
def test_the_search_sees_a_number(line: str) -> None:
    assert list(numbers(f"def f():\n    {line}\n"))


def test_one_file_has_the_numbers() -> None:
    files = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    assert len(files) > 200
    seen = [
        f"{name}:{line}"
        for name, path in files.items()
        if name not in {"base/errors.py", *ALONE}
        for line in numbers(path.read_text())
    ]
    assert seen == []


def _errors(kind: type[PyReactantError]) -> Iterator[type[PyReactantError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _errors(below)


def test_every_error_has_one_of_the_codes() -> None:
    import pyreactant.runs.queued.workers  # noqa: F401 - it declares errors

    for kind in _errors(PyReactantError):
        assert isinstance(kind.exit_code, ExitCode), kind


def test_the_codes_of_exceptions_and_signals() -> None:
    assert [code_of(KeyboardInterrupt()), code_of_signal(2)] == [ExitCode.INTERRUPTED, 130]
    assert [code_of_signal(13), ExitCode.UNREAD] == [141, 141]
    assert code_of(pyreactant.MismatchError("no")) == 5
    assert code_of(ValueError("no")) == 1


def test_a_code_is_written_as_its_number() -> None:
    assert json.dumps([ExitCode.LOST]) == "[6]"
    assert f"{ExitCode.LOST} {ExitCode.LOST!r}" == "6 6"
