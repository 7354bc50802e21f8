"""Run the blocks of pages that are no guides, and compare the README's picture and report.

CI runs the README's blocks from the wheel: tests/docs/from_wheel.py.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pyreactant.cli import app
from pyreactant.fit.compiler import ask
from tests import harness
from tests.docs.pages import followed
from tests.harness import REPOSITORY, environment, free_port, require
from tests.tpu.recorded import Recorded

README = (REPOSITORY / "README.md").read_text()
FOLDER = REPOSITORY / "docs"
DOCS = {str(p.relative_to(FOLDER)): p.read_text() for p in sorted(FOLDER.rglob("*.md"))}
# tests/docs follows these pages from top to bottom.
FOLLOWED = {str(page.relative_to(FOLDER)) for page in followed()}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# These run in test_the_two_commands, on the Slurm cluster of tests/slurm, on the cloud of
# tests/gcloud, in tests/jobs, and as goldens of those folders.
ELSEWHERE = (
    "make",
    "sbatch",
    "pyreactant crosscheck --on",
    "pyreactant run --detach",
    "pyreactant run --on",
    "gcloud/run.sh",
    "pyreactant tpu",
    "pyreactant jobs",
)


def _blocks(language: str, text: str = README) -> list[str]:
    return [code for kind, code in BLOCK.findall(text) if kind == language]


def _everywhere(language: str) -> list[str]:
    texts = [text for name, text in DOCS.items() if name not in FOLLOWED]
    return list(dict.fromkeys(code for text in texts for code in _blocks(language, text)))


@pytest.fixture
def reader() -> dict[str, str]:
    """The environment of a reader."""
    tools = Path(sys.executable).parent
    return environment(PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("code", _everywhere("python"))
def test_python(code: str, tmp_path: Path, reader: dict[str, str]) -> None:
    argv = [sys.executable, "-c", code]
    ran = harness.run(argv, env=reader, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("code", [b for b in _everywhere("bash") if not b.startswith(ELSEWHERE)])
def test_shell(
    code: str, tmp_path: Path, reader: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dict(reader)
    if code.startswith(("pyreactant preflight", "pyreactant plan")):
        require(importlib.util.find_spec("libtpu"), "libtpu, of jax[tpu]")
        settings["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        del settings["XLA_FLAGS"]  # answers are kept for these flags
        with monkeypatch.context() as patch:  # libtpu's recorded answers, into the cache
            patch.setenv("XDG_CACHE_HOME", settings["XDG_CACHE_HOME"])
            patch.setattr(ask, "compile_in_child", Recorded(ask.compile_in_child))
            app.app(shlex.split(code)[1:], standalone_mode=False)
    code = code.replace("29517", str(free_port()))
    argv = ["bash", "-euo", "pipefail", "-c", code]
    ran = subprocess.run(argv, env=settings, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "right" in ran.stdout or "pyreactant matmul" not in code


def test_the_two_commands() -> None:
    commands = re.findall("^make (\\w+)", _blocks("bash")[0], re.MULTILINE)
    assert commands == ["matmul", "test"]
    made = (Path(sys.prefix) / ".installed").exists()
    require(made, "this Python's environment was not made by make, which would install into it")
    ran = subprocess.run(
        ["make", "matmul", f"VENV={sys.prefix}"],
        # Variables of a make that runs these tests (ARGS, PYTHON) must not reach this one.
        env=environment(MAKEFLAGS="", ARGS=""),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    ours, readme = (re.findall("[│├┌└].*", text) for text in (ran.stdout, _blocks("text")[0]))
    assert ours == readme, "the picture in the README is not what the command draws"


def test_the_wrong_block(tmp_path: Path, reader: dict[str, str]) -> None:
    """The README quotes the report on docs/swapped.py, and shows a part of its page."""
    command = re.search(r"^\$ pyreactant (crosscheck .*swapped.*)$", README, re.MULTILINE)
    assert command is not None
    argv = [sys.executable, "-m", "pyreactant", *command[1].split(), "--platform", "cpu"]
    argv += ["--backends", "jax", "--out", str(tmp_path / "out")]
    ran = harness.run(argv, env=reader, cwd=REPOSITORY)
    assert ran.returncode == 5, ran.stderr
    quoted = README[command.end() :].lstrip().partition(", ...")[0]
    assert quoted in " ".join(ran.stdout.split())
    picture = re.search(r"!\[Blocks on devices ([^\]]*) are wrong.*\]\((docs/.*)\)", README)
    assert picture is not None
    assert (REPOSITORY / picture[2]).exists()
    marked = re.findall(r"✗</span><span>d(\d+) ", (tmp_path / "out" / "report.html").read_text())
    assert marked == re.findall(r"\d+", picture[1])


def test_architecture_names_what_there_is() -> None:
    """Every path of docs/architecture.md exists, and every folder of the package stands there."""
    text = DOCS["architecture.md"]
    package = REPOSITORY / "pyreactant"
    for path in re.findall(r"`([\w./]+/[\w.]*)`", text):
        places = (REPOSITORY / path, package / path, package / f"{path}.py")
        inner = [*package.glob(f"*/{path}")]  # such as `preflight/` of fit/
        assert any(place.exists() for place in places) or inner or path == "pyreactant/", path
    named = set(re.findall(r"`(\w+)/`", text))
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    assert folders <= named, folders - named
    assert len(text.splitlines()) <= 60
