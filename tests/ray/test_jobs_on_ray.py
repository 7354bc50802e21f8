"""`pyreactant.targets.Ray` on a real cluster: the source document's example, the laws, failures."""

import shutil
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.harness import REPOSITORY, Finished, logs, spawn
from tests.jobs.disk import small_disk
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
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(tmp_path / "state")}
    del settings["RAY_ADDRESS"]
    target = f"pr.targets.Ray(hosts=2, platform='cpu', address='{on_ray.client_address}')"
    hold(["value", target], settings, tmp_path)


def test_the_other_laws(on_ray: Cluster, tmp_path: Path) -> None:
    """Exceptions, a killed process, cancel, another shell, `jobs clean`, and a full disk."""
    state = tmp_path / "state"
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(state)}
    laws = "raises,dies,cancelled,cleaned+full_disk"
    target = "pr.targets.Ray(hosts=2, num_cpus=0.5, platform='cpu')"
    hold([laws, target], settings, tmp_path, before=small_disk(state, 30))


def hold(
    words: list[str], settings: dict[str, str], folder: Path, *, before: tuple[str, ...] = ()
) -> None:
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", folder)
    argv = [*before, sys.executable, "-m", "tests.jobs.laws", *words]
    ran = processes.run(argv, env=settings, cwd=folder, timeout=500)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert ran.stdout.endswith("the law holds\n")
