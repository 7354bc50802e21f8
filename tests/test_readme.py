"""Every command and example of the README, run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, environment, free_port, require

README = (REPOSITORY / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def _blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def _environment() -> dict[str, str]:
    tools = Path(sys.executable).parent
    return environment(PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("code", _blocks("python"))
def test_python(code: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=_environment(), cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("code", [b for b in _blocks("bash") if not b.startswith("make")])
def test_shell(code: str, tmp_path: Path) -> None:
    code = code.replace("29517", str(free_port()))
    argv = ["bash", "-euo", "pipefail", "-c", code]
    ran = subprocess.run(argv, env=_environment(), cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "right" in ran.stdout


def test_the_two_commands() -> None:
    commands = re.findall("^make (\\w+)", _blocks("bash")[0], re.MULTILINE)
    assert commands == ["matmul", "test"]
    made = (Path(sys.prefix) / ".installed").exists()
    require(made, "this Python's environment was not made by make, which would install into it")
    ran = subprocess.run(
        ["make", "matmul", f"VENV={sys.prefix}"],
        env=environment(), cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    ours, readme = (re.findall("[│├┌└].*", text) for text in (ran.stdout, _blocks("text")[0]))
    assert ours == readme, "the picture in the README is not what the command draws"


def test_links() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (REPOSITORY / target).exists(), target
