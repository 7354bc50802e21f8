"""One Ray cluster: a Ray Job, the laws of jobs, failures, and a train loop of JaxTrainer."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import harness
from tests.harness import REPOSITORY, logs, spawn
from tests.jobs.disk import small_disk
from tests.ray.cluster import Cluster, cluster

pytestmark = pytest.mark.timeout(900)  # the first test starts the cluster

HERE = Path(__file__).parent
LIMIT = 500
LAWS = "raises,dies,cancelled,cleaned"


@pytest.fixture(scope="module")
def on_ray() -> Iterator[Cluster]:
    """A head and the four hosts of a pretended v6e-16."""
    with cluster() as made:
        yield made


def run(on_ray: Cluster, words: list[str], folder: Path) -> str:
    """Run a Python program in a folder, which also has its jobs; its log."""
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(folder / "state")}
    (finished,) = spawn([[sys.executable, *words]], [settings], folder, LIMIT)
    assert finished.code == 0, logs([finished])
    return finished.log


def hold(on_ray: Cluster, words: list[str], folder: Path, *, before: tuple[str, ...] = ()) -> None:
    """Check laws of targets."""
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", folder)
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(folder / "state")}
    if "address=" in words[1]:
        del settings["RAY_ADDRESS"]
    argv = [*before, sys.executable, "-m", "tests.jobs.laws", *words]
    ran = harness.run(argv, env=settings, cwd=folder, timeout=LIMIT)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert ran.stdout.endswith("the law holds\n")


def target(hosts: int, **options: object) -> str:
    """The expression of a target, as a program has it."""
    words = [f"{name}={value!r}" for name, value in options.items()]
    return f"pr.targets.Ray({', '.join([f'hosts={hosts}', *words])}, platform='cpu')"


def test_a_reduction_over_a_slice_as_a_ray_job(on_ray: Cluster, tmp_path: Path) -> None:
    """Kithara's recipe, by ``ray job submit`` from a folder.

    Every host runs the function, in the slice's order, and process 0's value comes back.
    """
    shutil.copy(HERE / "kithara.py", tmp_path)
    submit = ["-m", "ray.scripts.scripts", "job", "submit", "--address", on_ray.dashboard_address]
    words = ["--working-dir", str(tmp_path), "--", sys.executable, "kithara.py"]
    log = run(on_ray, submit + words, tmp_path)
    assert "result {'hosts': 4, 'devices': 4, 'sum': array(240., dtype=float32)}" in log
    assert "process 0 on TPU worker 0\n" in log
    assert "process 1 on TPU worker" not in log, "a blocking call shows process 0's lines"
    assert "succeeded" in log


def test_a_killed_worker_is_named_and_a_queue_can_be_left(on_ray: Cluster, tmp_path: Path) -> None:
    shutil.copy(HERE / "lost.py", tmp_path)
    log = run(on_ray, ["lost.py"], tmp_path)
    assert "lost was named\n" in log
    assert (
        "waits for 1 host with 1 CPU and 1 GPU; the cluster has 8 CPU and 0 GPU in total\n" in log
    )
    assert "cancelled: cancelled 130\n" in log


@pytest.mark.slow
def test_the_law_of_values_from_a_machine_outside(on_ray: Cluster, tmp_path: Path) -> None:
    """By Ray's client, as from a laptop."""
    hold(on_ray, ["value", target(2, address=on_ray.client_address)], tmp_path)


@pytest.mark.slow
def test_the_other_laws(on_ray: Cluster, tmp_path: Path) -> None:
    """Exceptions, a killed process, cancel, another shell, and `jobs clean`."""
    hold(on_ray, [LAWS, target(2, num_cpus=0.5)], tmp_path)


@pytest.mark.slow
def test_a_burn_in_whose_certificate_comes_back(on_ray: Cluster, tmp_path: Path) -> None:
    words = "burnin --on ray --hosts 2 --platform cpu --size 48 --minutes 0.05"
    log = run(on_ray, ["-m", "pyreactant", *words.split()], tmp_path)
    assert " of 2 devices passed in " in log
    made = json.loads((tmp_path / "burnin.json").read_text())
    assert [host["process"] for host in made["hosts"]] == [0, 1]
    assert "products of float32" in made["ran"]


@pytest.mark.slow
def test_a_full_disk(on_ray: Cluster, tmp_path: Path) -> None:
    disk = small_disk(tmp_path / "state", 30)
    hold(on_ray, ["full_disk", target(1, num_cpus=0.5)], tmp_path, before=disk)


@pytest.mark.slow
def test_the_submitting_process_is_killed(on_ray: Cluster, tmp_path: Path) -> None:
    """While it packs the job, and when the cluster has it."""
    hold(on_ray, ["killed", target(1, num_cpus=0.5), "0.5 1"], tmp_path)


@pytest.fixture(scope="module")
def trained(on_ray: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A fit of JaxTrainer: what the driver printed, and what each worker found."""
    folder = tmp_path_factory.mktemp("trained")
    words = [str(HERE / "train_jax.py"), str(folder / "storage"), str(folder)]
    log = run(on_ray, words, folder)
    printed = [line for line in log.splitlines() if line.startswith('{"metrics"')]
    workers = [json.loads((folder / f"{i}.json").read_text()) for i in range(4)]
    return {**json.loads(printed[-1]), "log": log, "workers": workers}


@pytest.mark.slow
def test_initialize_takes_over_the_trainers_processes(trained: dict[str, Any]) -> None:
    for index, worker in enumerate(trained["workers"]):
        assert (worker["num_processes"], worker["process"], worker["rank"]) == (4, index, index)
        assert worker["sum"] == 2016.0


@pytest.mark.slow
def test_metrics_and_checkpoint_come_back(trained: dict[str, Any]) -> None:
    """The numbers are process 0's or over all; the files are those of all processes."""
    metrics = trained["metrics"]
    mean = sum(worker["loss"] for worker in trained["workers"]) / 4
    assert metrics == {"loss": pytest.approx(mean), "epoch": 4, "step": 6, "process": 3}
    files = sorted(path.name for path in Path(trained["checkpoint"]).iterdir())
    assert [name for name in files if name.startswith("params")] == [
        f"params-{i}.json" for i in range(4)
    ]
    assert f"Training finished. Final loss: {metrics['loss']:.4f}" in trained["log"]


@pytest.mark.slow
def test_preemption_is_asked_of_ray(trained: dict[str, Any]) -> None:
    assert [(w["before"], w["after"]) for w in trained["workers"]] == [(False, True)] * 4


@pytest.mark.slow
def test_mistakes_in_a_train_loop(trained: dict[str, Any]) -> None:
    """A folder that is absent on one process is an error on all."""
    for index, worker in enumerate(trained["workers"]):
        backend, count, folder, different, unknown = worker["mistakes"]
        assert different == (
            "report(reduce=) must be the same on every process, got {} on process 0 and "
            "{'loss': 'mean'} on process 1"
        )
        assert "reduce names 'absent', which the last pr.log of this process" in unknown
        assert "backend 'reactant' was requested in a train loop of Ray Train" in backend
        assert "initialize was asked for num_processes=3, but" in count
        prefix = "" if index == 2 else "report failed on process 2: "
        assert folder == f"{prefix}the checkpoint 'absent' is not a folder"


def test_nothing_is_left_on_the_hosts(on_ray: Cluster) -> None:
    """After the tests above."""

    def found() -> list[Path]:
        patterns = "r/**/pyreactant-*", "pyreactant-*", "pyreactant-*/**/*"
        return [path for pattern in patterns for path in on_ray.folder.glob(pattern)]

    deadline = time.monotonic() + 60
    while found() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found() == []


@pytest.mark.slow
def test_a_head_that_is_killed(on_ray: Cluster, tmp_path: Path) -> None:
    """Whoever waits for a job learns it; the last test, since the cluster ends by it."""
    (tmp_path / "waits.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(tmp_path / "state")}
    settings["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"  # by default a minute
    words = [
        "run",
        "--on",
        "ray",
        "--hosts=1",
        "--num-cpus=0.5",
        "--platform=cpu",
        "--",
        "waits.py",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "pyreactant", *words],
        env=settings,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        try:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "up\n", waiting.communicate()
            commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in on_ray.processes()}
            (head,) = [pid for pid, line in commands.items() if b"gcs_server" in line.read_bytes()]
            os.kill(head, signal.SIGKILL)
            _, said = waiting.communicate(timeout=LIMIT)
        finally:
            waiting.kill()
    assert waiting.returncode == 6, said
    why = f"lost: the Ray cluster at {on_ray.address} cannot be reached: nothing listens there; see"
    assert why in said, said
    assert "note its end with: pyreactant jobs cancel 2" in said
