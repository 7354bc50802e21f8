"""The drivers of the tests of this folder: each uses the cluster, and runs until its end.

They run at the same time. Two of them need the whole slice, and take turns.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import harness
from tests.harness import REPOSITORY, logs, spawn
from tests.jobs.disk import small_disk
from tests.ray.cluster import Cluster

HERE = Path(__file__).parent
LIMIT = 500


def trained(on_ray: Cluster, folder: Path) -> dict[str, Any]:
    """A fit of JaxTrainer: what the driver printed, and what each worker found."""
    words = [str(HERE / "train_jax.py"), str(folder / "storage"), str(folder)]
    log = run(on_ray, words, folder)
    printed = [line for line in log.splitlines() if line.startswith('{"metrics"')]
    workers = [json.loads((folder / f"{i}.json").read_text()) for i in range(4)]
    return {**json.loads(printed[-1]), "log": log, "workers": workers}


def reduced(on_ray: Cluster, folder: Path) -> str:
    """The log of a Ray Job: Kithara's recipe, by ``ray job submit`` from a folder."""
    shutil.copy(HERE / "kithara.py", folder)
    submit = ["-m", "ray.scripts.scripts", "job", "submit", "--address", on_ray.dashboard_address]
    words = ["--working-dir", str(folder), "--", sys.executable, "kithara.py"]
    return run(on_ray, submit + words, folder)


def lost(on_ray: Cluster, folder: Path) -> str:
    """The log of a driver whose job loses a Ray worker; then it leaves a queue."""
    shutil.copy(HERE / "lost.py", folder)
    return run(on_ray, ["lost.py"], folder)


def from_outside(on_ray: Cluster, folder: Path) -> str:
    """The law of values by Ray's client, as from a laptop."""
    target = f"pr.targets.Ray(hosts=2, platform='cpu', address='{on_ray.client_address}')"
    return hold(on_ray, ["value", target], folder)


def lawful(on_ray: Cluster, folder: Path) -> str:
    """Exceptions, a killed process, cancel, another shell, and `jobs clean`."""
    target = "pr.targets.Ray(hosts=2, num_cpus=0.5, platform='cpu')"
    return hold(on_ray, ["raises,dies,cancelled,cleaned", target], folder)


def full(on_ray: Cluster, folder: Path) -> str:
    """A full disk, in a mount namespace."""
    words = ["full_disk", "pr.targets.Ray(hosts=1, num_cpus=0.5, platform='cpu')"]
    return hold(on_ray, words, folder, before=small_disk(folder / "state", 30))


def killed(on_ray: Cluster, folder: Path) -> str:
    """The submitting process is killed while it packs the job, and when the cluster has it."""
    target = "pr.targets.Ray(hosts=1, num_cpus=0.5, platform='cpu')"
    return hold(on_ray, ["killed", target, "0.5 1"], folder)


def run(on_ray: Cluster, words: list[str], folder: Path) -> str:
    """Run a Python program in a folder, which also has its jobs; its log."""
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(folder / "state")}
    (finished,) = spawn([[sys.executable, *words]], [settings], folder, LIMIT)
    assert finished.code == 0, logs([finished])
    return finished.log


def hold(on_ray: Cluster, words: list[str], folder: Path, *, before: tuple[str, ...] = ()) -> str:
    """Check laws of targets; what was printed."""
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", folder)
    settings = {**on_ray.settings, "XDG_STATE_HOME": str(folder / "state")}
    if "address=" in words[1]:
        del settings["RAY_ADDRESS"]
    argv = [*before, sys.executable, "-m", "tests.jobs.laws", *words]
    ran = harness.run(argv, env=settings, cwd=folder, timeout=LIMIT)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    return str(ran.stdout)


ALL: dict[str, Callable[[Cluster, Path], Any]] = {
    driver.__name__: driver
    for driver in (trained, reduced, lost, from_outside, lawful, full, killed)
}
