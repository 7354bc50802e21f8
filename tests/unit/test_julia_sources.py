"""The Julia sources, without running Julia; `make lint` checks their format and lints them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, require

JULIA = REPOSITORY / "julia"
SOURCES = sorted(JULIA.rglob("*.jl"))
LINES = 260
"""Of one file; what is longer is two things."""

names = [str(path.relative_to(JULIA)) for path in SOURCES]


def fatou(*arguments: str, folder: Path = JULIA) -> subprocess.CompletedProcess[str]:
    """Run the formatter and linter with the settings of julia/fatou.toml, without Julia."""
    program = Path(sys.executable).with_name("fatou")
    require(program.exists(), "fatou is not installed beside this Python (pip install fatou)")
    argv = [str(program), "--color", "never", *arguments, "."]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60)


def test_there_are_sources() -> None:
    assert {"src/PyReactant.jl", "src/programs/Programs.jl"} <= set(names)


def test_what_does_not_parse_is_found(tmp_path: Path) -> None:
    """fatou's parser knows current Julia (const fields), which tree-sitter-julia does not."""
    text = (JULIA / "src" / "meshes.jl").read_text()
    (tmp_path / "cut.jl").write_text(text[: text.rindex("end")])
    ran = fatou("lint", folder=tmp_path)
    assert ran.returncode == 1
    assert "parse-error" in ran.stdout + ran.stderr


@pytest.mark.parametrize("path", SOURCES, ids=names)
def test_lines(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= LINES
    for number, line in enumerate(lines, 1):
        assert len(line) <= 100, f"{path.name}:{number} has {len(line)} characters"
        assert "\t" not in line, f"{path.name}:{number} has a tab"
        assert line == line.rstrip(), f"{path.name}:{number} ends in blanks"


@pytest.mark.parametrize("path", [p for p in SOURCES if "src" in p.parts], ids=str)
def test_nothing_is_evaluated_as_text(path: Path) -> None:
    """Python passes names and values to Julia, never code."""
    if "test" not in path.relative_to(JULIA).parts:
        assert not re.search(r"\b(Meta\.parse|include_string|eval)\b", path.read_text())


def test_what_is_included_is_there_and_nothing_else() -> None:
    for folder in (JULIA / "src", JULIA / "test" / "Reactant" / "src"):
        included = set()
        for path in folder.glob("*.jl"):
            included |= set(re.findall(r'include\("([^"]+)"\)', path.read_text()))
        there = {path.name for path in folder.glob("*.jl")} - {"PyReactant.jl", "Reactant.jl"}
        assert there == {name for name in included if "/" not in name}
