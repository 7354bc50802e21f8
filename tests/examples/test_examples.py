"""The examples run on two processes, do what hand-written JAX does, and are about as long."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import pyreactant as pr
from tests.harness import REPOSITORY
from tests.julia import place
from tests.launch.runs import run_local

pytestmark = pytest.mark.only("jax")

EXAMPLES = REPOSITORY / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/main.py"))

LINES = 1.2
"""Lines of main.py for each line of plain_jax.py."""

ROUNDING = 1e-5
"""Relative. Both programs do the same operations, and only the order of a sum may differ. A float32
mean of 1000 numbers moves by about sqrt(1000) * 6e-8 = 2e-6 then, and some steps add up."""


OPTIONS = ("--processes", "2", "--devices-per-process", "4", "--platform", "cpu")


def numbers(folder: Path, file: Path, **settings: str) -> list[list[float]]:
    """What a program prints on two processes with four devices each: the numbers of each line."""
    folder.mkdir()
    run = run_local(folder, *OPTIONS, "--", str(file), settings=settings, timeout=200)
    assert run.code == 0, f"{run}\n{run.log(0).decode()}"
    printed, silent = (
        [line for line in run.log(n).decode().splitlines() if line.startswith(("step ", "heat "))]
        for n in range(2)
    )
    assert not silent, "one process prints for all"
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")
    return [[float(x) for x in number.findall(line)] for line in printed]


def check_equal(ours: list[list[float]], theirs: list[list[float]]) -> None:
    assert len(ours) == len(theirs) > 0
    for line, wanted in zip(ours, theirs, strict=True):
        assert line == pytest.approx(wanted, rel=ROUNDING, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_plain_jax(name: str, tmp_path: Path) -> None:
    ours = numbers(tmp_path / "ours", EXAMPLES / name / "main.py")
    check_equal(ours, numbers(tmp_path / "theirs", EXAMPLES / name / "plain_jax.py"))
    if name != "heat":
        losses = [line[-1] for line in ours]
        assert len(losses) == 8
        assert losses[-1] < 0.9 * losses[0], "it learns"


@pytest.mark.julia
def test_the_julia_model_in_julia(tmp_path: Path) -> None:
    """On the stand-in for Reactant; the JAX body that runs elsewhere is another program."""
    model, settings = EXAMPLES / "julia_model", place.stand_in()
    settings = {"PYREACTANT_BACKEND": "reactant", **settings}
    ours = numbers(tmp_path / "ours", model / "main.py", **settings)
    check_equal(ours, numbers(tmp_path / "theirs", model / "plain_jax.py"))


def test_programs_with_an_oracle_are_cross_checked() -> None:
    programs = [f"{EXAMPLES}/heat/main.py:evolve", f"{EXAMPLES}/julia_model/main.py:gradients"]
    report = pr.crosscheck(
        programs, backends="jax", platform="cpu", processes=1, devices_per_process=8
    )
    assert report.passed, report.to_text()
    assert [row.program for row in report.rows] == programs


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    text = path.read_text()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped | {tokenize.ENDMARKER}
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines -= {*range(first.lineno, (first.end_lineno or first.lineno) + 1)}
    return len(lines)


COUNTED = '''"""Two
lines."""

x = (  # code
    1,
)


def f():
    """A docstring."""
    # why
    return x
'''


def test_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "counted.py"
    path.write_text(COUNTED)
    assert code_lines(path) == 5


@pytest.mark.parametrize("name", NAMES)
def test_length(name: str) -> None:
    ours, theirs = (code_lines(EXAMPLES / name / f) for f in ("main.py", "plain_jax.py"))
    assert ours <= LINES * theirs, f"{ours} lines for {theirs} of hand-written JAX"


def test_lines_are_as_the_formatter_makes_them() -> None:
    argv = [sys.executable, "-m", "ruff", "format", "--check", str(EXAMPLES)]
    ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", NAMES)
def test_both_files_are_the_same_program(name: str) -> None:
    """They differ only in how they start and place arrays."""

    def functions(file: str) -> dict[str, str]:
        tree = ast.parse((EXAMPLES / name / file).read_text())
        return {
            node.name: ast.dump(node) for node in tree.body if isinstance(node, ast.FunctionDef)
        }

    ours, theirs = functions("main.py"), functions("plain_jax.py")
    shared = (ours.keys() & theirs.keys()) - {"start", "main"}
    assert len(shared) >= 2
    for function in shared - {"evolve"}:  # whose decorator makes it a Program
        assert ours[function] == theirs[function], function


@pytest.mark.parametrize("name", NAMES)
def test_readme_has_the_command(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    assert f"pyreactant run {' '.join(OPTIONS)} -- examples/{name}/main.py" in text
