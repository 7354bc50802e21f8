"""docs/install.md: its commands install the package, without the index, into a folder."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pyreactant import __version__
from tests.docs.pages import blocks
from tests.harness import REPOSITORY, environment

pytestmark = pytest.mark.slow

PAGE = REPOSITORY / "docs" / "install.md"
WHEEL = f"dist/pyreactant-{__version__}-py3-none-any.whl"
COMMANDS = [
    line.removeprefix("$ ")
    for block in blocks(PAGE)
    if block.note.startswith("run by: ")
    for line in block.code.splitlines()
    if line.startswith("$ ")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with what a wheel is made of, with the wheel of `make wheel`."""
    made = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True)
    for name in listed.stdout.decode().split("\0")[:-1]:
        if not name.startswith(("tests/", "docs/")) and (REPOSITORY / name).is_file():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, made / name)
    # Hatchling is here, so pip need not ask the index for it.
    own = {"PIP_NO_BUILD_ISOLATION": "0", "PYTHON": sys.executable}
    for name in ("MAKEFLAGS", "MAKELEVEL"):
        own[name] = ""
    ran = subprocess.run(
        ["make", "wheel"],
        cwd=made,
        env=environment(**own),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"the wheel is {WHEEL}\n" in ran.stdout
    shutil.copytree(made / "dist", made / "wheels")
    return made


@pytest.mark.parametrize("command", [text for text in COMMANDS if " pip " in text])
def test_a_command_that_installs(command: str, folder: Path, tmp_path: Path) -> None:
    """Into a folder, and without dependencies, which this environment has."""
    words = [sys.executable, *shlex.split(command)[1:], "--no-deps", "--target", str(tmp_path)]
    ran = subprocess.run(
        [*words, "--no-index", "--no-build-isolation"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "pyreactant" / "__init__.py").exists()
    assert (tmp_path / "pyreactant" / "_julia_package" / "src").is_dir()


def test_the_page_names_the_version_and_every_extra() -> None:
    text = PAGE.read_text()
    assert set(re.findall(r"pyreactant-[\w.-]+?\.whl", text)) == {Path(WHEEL).name}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    extras = set(project["optional-dependencies"]) - {"docs", "dev"}
    assert set(re.findall("`([a-z0-9]+)`", table.replace("`pyreactant", ""))) == extras
