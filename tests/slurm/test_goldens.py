"""The exact commands of `pyreactant crosscheck --on slurm`; docs/slurm.md shows the same."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant import InvalidArgumentError
from pyreactant.runs.places.slurm_jobs import (
    check_once,
    check_possible,
    number_of,
    waits_for,
)
from tests import harness
from tests.harness import REPOSITORY, environment, pyreactant

DOCS = (REPOSITORY / "docs" / "slurm.md").read_text()
# Each recipe is a command with --dry-run, followed by a block with its output.
RECIPES = re.findall(
    r"```bash\n(pyreactant crosscheck [^`]*--dry-run[^`]*)\n```\n+```text\n([^`]*)```", DOCS
)


@pytest.mark.parametrize(("command", "printed"), RECIPES)
def test_recipe(command: str, printed: str) -> None:
    _, *arguments = shlex.split(command.replace("\\\n", " "))
    done = pyreactant(*arguments, folder=REPOSITORY, PYREACTANT_PYTHON=sys.executable)
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


WRONG = {
    "--array=0-1": "one run is not an array; start one run for each task",
    "--arr=0-1": "one run is not an array",
    "-a0-1": "one run is not an array",
    "--test-only": "with it sbatch submits no job; use --dry-run, or sbatch itself",
    "--help": "with it sbatch submits no job",
    "--usage": "with it sbatch submits no job",
    "--version": "with it sbatch submits no job",
    "-V": "with it sbatch submits no job",
    "--wait": "with it sbatch does not return before the job's end",
    "-vW": "with it sbatch does not return",
    "--quiet": "with it sbatch does not say the number of the job",
    "--qui": "with it sbatch does not say the number of the job",
    "-HQ": "with it sbatch does not say the number of the job",
    "--wrap=true": "the script is pyreactant's",
    "-Mother": "jobs are looked for on this cluster",
}


@pytest.mark.slow
@pytest.mark.parametrize("option", WRONG)
def test_options_of_sbatch_with_which_there_is_no_job_to_follow(
    option: str, tmp_path: Path
) -> None:
    """They are refused before sbatch, and no record of a job is left."""
    run = ["run", "--on", "slurm", f"--sbatch={option}", "--detach", "--", "true"]
    check = ["crosscheck", "--on", "slurm", f"--sbatch={option}"]
    env = environment(XDG_STATE_HOME=str(tmp_path))
    for words in (run, check):
        more = ["--dry-run"] if "is not an array" in WRONG[option] and words is check else []
        argv = [sys.executable, "-m", "pyreactant", *words[:3], *more, *words[3:]]
        done = harness.run(argv, cwd=tmp_path, env=env)
        if more:
            assert (done.returncode, option in done.stdout) == (0, True), done
            continue
        assert done.returncode == 2, done
        assert f"--sbatch={option} cannot be used: {WRONG[option]}" in done.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--on", "slurm", "--time", "abc", "--dry-run", "--", "true"], "got 'abc'"),
        (["crosscheck", "--on", "slurm", "--time", "1y", "--dry-run"], "--time must be minutes, a"),
        (["crosscheck", "nosuch", "--on", "slurm", "--dry-run"], "no program 'nosuch'"),
    ],
)
def test_a_dry_run_refuses_what_the_job_would(words: list[str], message: str) -> None:
    done = pyreactant(*words)
    assert done.returncode == 2, done
    assert message in done.stderr


def test_a_time_limit_with_a_unit_is_slurms() -> None:
    words = ["crosscheck", "--on", "slurm", "--time", "90m", "--dry-run"]
    done = pyreactant(*words)
    assert done.returncode == 0, done
    assert "--time=01:30:00 " in done.stdout


@pytest.mark.parametrize("time", ["30", "10:00", "01:00:00", "1-0", "1-00:30", "2-01:00:00"])
def test_forms_of_a_time_limit(time: str) -> None:
    pr.targets.Slurm(time=time).check_settings()


def test_variables_of_sbatch_with_which_there_is_no_job_to_follow(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pyreactant", "run", "--on", "slurm", "--dry-run", "--", "true"]
    for name, value in (("SBATCH_ARRAY_INX", "0-1"), ("SBATCH_WAIT", "1")):
        done = harness.run(argv, cwd=tmp_path, env=environment(**{name: value}))
        assert done.returncode == 2, done
        assert f"{name}={value} cannot be used: " in done.stderr
        assert "; unset it" in done.stderr


def test_options_of_sbatch_that_only_look_so() -> None:
    check_possible(["--wait-all-nodes=1", "--account=a", "--hold", "-H", "-pW", "--verbose", "-v"])
    check_possible(["--array=0-1", "-a0-1"], array=True)


@pytest.mark.parametrize("word", ["--partition=b", "--part=b", "-pb", "-p=b", "-Hpb"])
def test_an_option_of_sbatch_that_says_what_is_asked_already(word: str) -> None:
    """In every form that sbatch takes; the beginning of a name once passed."""
    with pytest.raises(InvalidArgumentError, match=f"give --partition or --sbatch={word}, not"):
        check_once({"nodes": 1, "partition": "a"}, [word])
    check_once({"nodes": 1}, [word])


def test_options_of_sbatch_that_are_beginnings_of_others() -> None:
    check_once({"gpus-per-node": 1, "ntasks-per-node": 1, "time": 1}, ["--gpus=4", "--time-min=1"])


def test_what_a_job_waits_for() -> None:
    assert waits_for("PENDING", "Resources") == "Resources"
    assert waits_for("SUSPENDED", "None") == "suspended"
    assert waits_for("REQUEUE_HOLD", "JobHeldAdmin") == "requeue hold: JobHeldAdmin"


def test_an_answer_of_sbatch_without_a_number() -> None:
    assert number_of("4711;cluster\n") == 4711
    with pytest.raises(InvalidArgumentError, match="must print the number of a job, got 'slurm-wl"):
        number_of("slurm-wlm 22.05.8\n")


def test_the_table_has_every_variable_that_a_script_sets_or_drops() -> None:
    text = (REPOSITORY / "docs" / "run.md").read_text()
    table = text[text.index("### What is set, dropped or passed on") :]
    script = (REPOSITORY / "slurm" / "main.sbatch").read_text()
    patterns = (r"^export (\w+)=", r"^ *unset ([\w ]+?) *(?:#.*)?$", r"^[A-Z]\w+=\S* ([A-Z_ ]+)$")
    lines = [line for pattern in patterns for line in re.findall(pattern, script, re.MULTILINE)]
    names = {name for line in lines for name in line.split()} - {"PYREACTANT_PYTHON"}
    names = {name for name in names if not name.lower().endswith("_proxy")}  # one row has them all
    assert len(names) > 12
    rows = re.findall(r"`([A-Z]\w+?)(\*?)`", table)
    for name in names - {"PYREACTANT_BACKENDS"}:
        assert any(name == row or (star and name.startswith(row)) for row, star in rows), name
