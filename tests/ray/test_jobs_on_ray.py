"""`pyreactant.targets.Ray` on a real cluster: the source document's example, the laws, failures."""

import shutil
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.harness import REPOSITORY, Finished, logs, spawn
from tests.ray.cluster import Cluster

pytestmark = pytest.mark.timeout(900)  # the first test may start the cluster

HERE = Path(__file__).parent


def run(on_ray: Cluster, program: str, folder: Path, **settings: str) -> Finished:
    """Run a driver in an empty folder; its state folder is there."""
    shutil.copy(HERE / program, folder)
    own = {**on_ray.settings, "XDG_STATE_HOME": str(folder / "state"), **settings}
    (finished,) = spawn([[sys.executable, program]], [own], folder, 500, imported=())
    assert finished.code == 0, logs([finished])
    return finished


def test_a_reduction_over_a_slice(on_ray: Cluster, tmp_path: Path) -> None:
    """Every host runs the function, in the slice's order, and process 0's value comes back."""
    log = run(on_ray, "kithara.py", tmp_path).log
    assert "result {'hosts': 4, 'devices': 4, 'sum': array(240., dtype=float32)}" in log
    assert "process 0 on TPU worker 0\n" in log
    assert "process 1 on TPU worker" not in log, "a blocking call shows the lines of process 0"
    assert not list(on_ray.folder.glob("r/**/pyreactant-*"))


def test_a_killed_worker_is_named_and_a_queue_can_be_left(on_ray: Cluster, tmp_path: Path) -> None:
    log = run(on_ray, "lost.py", tmp_path).log
    assert "lost was named\n" in log
    assert "reason: waits for 1 host with 1 CPU and 1 GPU\n" in log
    assert "cancelled: cancelled 130\n" in log


def test_the_law_of_values_from_a_machine_outside(on_ray: Cluster, tmp_path: Path) -> None:
    """By Ray's client, as from a laptop: what every target must do with arguments and values."""
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    target = f"pr.targets.Ray(hosts=2, platform='cpu', address='{on_ray.client_address}')"
    argv = [sys.executable, "-m", "tests.jobs.laws", "value", target]
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(tmp_path / "state")}
    del settings["RAY_ADDRESS"]
    ran = processes.run(argv, env=settings, cwd=tmp_path, timeout=500)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert ran.stdout.endswith("the law holds\n")
