"""Several processes that share one GPU, with NCCL among them."""

import json
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.gpu.common import ON_GPU, SHARE_ONE, cannot_share
from tests.harness import check_all_passed, environment, run_environments, run_program, spawn
from tests.launch.runs import FAULTY, left_behind, run_local
from tests.launch.test_faults import CAUSES
from tests.multiprocess.test_programs import ON_ALL, ON_TWO

pytestmark = [
    pytest.mark.skipif(cannot_share() is not None, reason=str(cannot_share())),
]


@pytest.mark.parametrize(("names", "count"), [(ON_ALL, 2), (ON_ALL, 4), (ON_TWO, 2)])
def test_programs(names: str, count: int, tmp_path: Path) -> None:
    """The programs of tests/multiprocess, one GPU for all."""
    check_all_passed(
        run_program(names, tmp_path, processes=count, devices=1, timeout=200, settings=SHARE_ONE)
    )


@pytest.mark.parametrize("name", ["functions_of_trees", "used_before"])
def test_programs_of_jax(name: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.multiprocess.jax_programs", name]
    environments = run_environments(2, 1, SHARE_ONE)
    check_all_passed(spawn([argv] * 2, environments, tmp_path, timeout=120))


def test_every_program_is_right(tmp_path: Path) -> None:
    """The command itself gives each of two processes half of the GPU's memory that XLA reserves."""
    settings = {**ON_GPU, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    argv = [sys.executable, "-m", "pyreactant", "crosscheck", "--all", "-n", "2", "--json"]
    options = ["--backends", "jax", "--platform", "gpu", "--quick"]
    env = environment(**settings, XDG_STATE_HOME=str(tmp_path / "state"))
    ran = harness.run([*argv, *options], env=env, cwd=tmp_path, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["passed"]
    assert len(report["rows"]) == 21


@pytest.mark.parametrize("when", ["cold", "warm"])
@pytest.mark.parametrize("fault", ["raise", "kill", "stop", "exit3"])
def test_fault(fault: str, when: str, tmp_path: Path) -> None:
    """The other process waits in NCCL, which has no time limit, and yet the run ends."""
    arguments = ["--processes", "2", "--stall-timeout", "6", "--", FAULTY, fault, "1", when]
    run = run_local(tmp_path, *arguments, settings=SHARE_ONE)
    cause, code, words = CAUSES[fault]
    report = run.report
    assert run.code == code, run
    assert (report["cause"], report["first_error"]["process"]) == (cause, 1), run
    assert words in report["summary"], run
    assert not left_behind(tmp_path)
