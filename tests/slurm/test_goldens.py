"""The exact commands of `pyreactant crosscheck --on slurm`; docs/slurm.md shows the same."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.harness import REPOSITORY, environment

DOCS = (REPOSITORY / "docs" / "slurm.md").read_text()
# Each recipe is a command with --dry-run, followed by a block with its output.
RECIPES = re.findall(
    r"```bash\n(pyreactant crosscheck [^`]*--dry-run[^`]*)\n```\n+```text\n([^`]*)```", DOCS
)


@pytest.mark.parametrize(("command", "printed"), RECIPES)
def test_recipe(command: str, printed: str) -> None:
    _, *arguments = shlex.split(command.replace("\\\n", " "))
    done = harness.run(
        [sys.executable, "-m", "pyreactant", *arguments],
        cwd=REPOSITORY,
        env=environment(PYREACTANT_PYTHON=sys.executable),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(str(REPOSITORY), "/home/me/pyreactant") == printed


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 6


def test_main_sbatch_has_the_example_it_is_made_of() -> None:
    """Nodes, tasks, CPUs and feature match Reactant's own Slurm example."""
    lines = (REPOSITORY / "slurm" / "main.sbatch").read_text().splitlines()
    options = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    assert {
        "nodes=2",
        "ntasks-per-node=1",
        "cpus-per-task=72",
        "constraint=gpu",
        "requeue",
        "open-mode=append",
        "time=00:20:00",
    } <= options


@pytest.mark.parametrize(
    "script", sorted((REPOSITORY / "slurm").glob("*.s*")), ids=lambda p: p.name
)
def test_scripts_parse(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_table_has_every_variable_that_a_script_sets_or_drops() -> None:
    text = (REPOSITORY / "docs" / "run.md").read_text()
    table = text[text.index("### What is set, dropped or passed on") :]
    script = (REPOSITORY / "slurm" / "main.sbatch").read_text()
    patterns = (r"^export (\w+)=", r"^  ?unset (?!\$)([\w ]+)$", r"^[A-Z]\S+= ([\w ]+)$")
    lines = [line for pattern in patterns for line in re.findall(pattern, script, re.MULTILINE)]
    names = {name for line in lines for name in line.split()} - {"PYREACTANT_PYTHON"}
    assert len(names) > 12
    rows = re.findall(r"`([A-Z]\w+?)(\*?)`", table)
    for name in names - {"PYREACTANT_BACKENDS"}:
        assert any(name == row or (star and name.startswith(row)) for row, star in rows), name
