"""A process on one GPU: commands, the cross-check, and the facts that are reported."""

import json
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.gpu.common import ON_GPU, absent
from tests.harness import environment

pytestmark = pytest.mark.skipif(absent() is not None, reason=str(absent()))


def pyreactant(*arguments: str, folder: Path, **settings: str) -> str:
    """What a command prints; it must succeed."""
    argv = [sys.executable, "-m", "pyreactant", *arguments]
    env = environment(**ON_GPU, XDG_STATE_HOME=str(folder / "state"), **settings)
    ran = harness.run(argv, env=env, cwd=folder, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float32", "default"),
        ("float32", "high"),
        ("float32", "highest"),
        ("bfloat16", "default"),
        ("float64", "default"),
        ("complex64", "default"),
        ("int8", "default"),
    ],
)
def test_product(dtype: str, precision: str, tmp_path: Path) -> None:
    options = ["--size", "1024", "--dtype", dtype, "--precision", precision, "--json"]
    report = json.loads(pyreactant("matmul", *options, folder=tmp_path))
    assert report["platform"] == "gpu"
    assert report["check"]["passed"], report["check"]
    assert report["check"]["error"] <= report["check"]["tolerance"]


def test_tf32_is_told_from_float32(tmp_path: Path) -> None:
    """JAX's default rounds operands to TF32 on GPUs that have it, "highest" does not."""
    found = {}
    for precision in ("default", "highest"):
        options = ["--size", "1024", "--precision", precision, "--json"]
        report = json.loads(pyreactant("matmul", *options, folder=tmp_path))
        found[precision] = report["check"]["error"], report["check"]["tolerance"]
    (rounded, wide), (exact, narrow) = found["default"], found["highest"]
    assert exact <= narrow < rounded <= wide, found


def test_every_program_is_right(tmp_path: Path) -> None:
    options = ["--all", "-n", "1", "--backends", "jax", "--platform", "gpu", "--json"]
    report = json.loads(pyreactant("crosscheck", *options, folder=tmp_path))
    assert len(report["rows"]) == 21
    assert report["passed"]


def test_doctor(tmp_path: Path) -> None:
    found = json.loads(pyreactant("doctor", "--deep", "--json", folder=tmp_path))
    rows = {row["name"]: row for row in found["checks"]}
    assert rows["JAX product"]["status"] == "pass", rows
    assert "gpu" in rows["JAX product"]["found"], rows


def test_more_processes_than_gpus_are_refused(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pyreactant", "run", "--processes", "64", "--platform", "gpu"]
    env = environment(**ON_GPU)
    ran = harness.run([*argv, "-m", "--", "site"], env=env, cwd=tmp_path)
    assert ran.returncode == 2
    assert "64 processes with 1 GPU each were requested, but this machine has" in ran.stderr
