"""A real Ray cluster for tests: a head and the four hosts of a pretended v6e-16, on loopback.

Ray detects a TPU from the environment of the process that starts a node. Each node has an address
of its own, a token guards the cluster, and every process of it is found again by a variable in its
environment or by its folder, so that nothing is left and no other cluster is touched.
"""

import contextlib
import functools
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness import environment, free_port, require

MARK = "TEST_RAY_CLUSTER"
"""Set in every process of a cluster to its folder."""

HOSTS = 4

_WITHOUT_DASHBOARD = """
import sys
sys.modules["aiohttp_cors"] = None
from ray.scripts.scripts import main
main()
"""
"""A host that has Ray without its extra "default" starts smaller agents."""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        folder: Its folder: token, logs, Ray's sessions.
        port: Port of the head.
        client_port: Port of Ray's client server.
        dashboard_port: Port of Ray's dashboard, which takes Ray Jobs.
        settings: The environment of a program that uses the cluster.
    """

    folder: Path
    port: int
    client_port: int
    dashboard_port: int
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The head's address."""
        return f"127.0.1.100:{self.port}"

    @property
    def client_address(self) -> str:
        """The address for drivers on other machines."""
        return f"ray://127.0.1.100:{self.client_port}"

    @property
    def dashboard_address(self) -> str:
        """The address for ``ray job submit``."""
        return f"http://127.0.1.100:{self.dashboard_port}"

    def start_node(self, name: str, *options: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start ``ray start``, which ends when its node is up."""
        ray = ["-m", "ray.scripts.scripts"] if name == "head" else ["-c", _WITHOUT_DASHBOARD]
        argv = [sys.executable, *ray, "start", *options]
        argv += ["--disable-usage-stats", "--object-store-memory=100000000"]
        argv += ["--include-log-monitor=false"]
        # A raylet that has to find out the ports of its agents gives up after 15 s.
        ports = ("runtime-env-agent", "dashboard-agent-listen", "dashboard-agent-grpc")
        argv += [f"--{name}-port={free_port()}" for name in ports]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self.settings, MARK: str(self.folder), **settings},
                cwd=self.folder,
                start_new_session=True,
            )

    def start_host(self, index: int) -> subprocess.Popen[bytes]:
        """Start one host of the slice."""
        return self.start_node(
            f"host-{index}",
            f"--address={self.address}",
            f"--node-ip-address=127.0.1.{index + 1}",
            "--num-cpus=1",
            f"--temp-dir={self.folder / str(index)}",  # hosts that start together would share names
            '--resources={"TPU": 4}',
            TPU_ACCELERATOR_TYPE="v6e-16",
            TPU_NAME="slice0",
            TPU_WORKER_ID=str(index),
            TPU_TOPOLOGY="4x4",
        )

    def processes(self) -> list[int]:
        """Every process of the cluster that runs.

        The title that Ray's agents give themselves lies where their environment was; they still
        work in the cluster's folder.
        """
        wanted, here = f"{MARK}={self.folder}".encode(), str(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    marked = wanted in (entry / "environ").read_bytes().split(b"\0")
                    if marked or os.readlink(entry / "cwd").startswith(here):
                        found.append(int(entry.name))
        return found

    def cpu_seconds(self) -> float:
        """What the processes of the cluster have used so far, with those that ended."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End every process of the cluster."""
        deadline = time.monotonic() + 30
        while (found := self.processes()) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        assert not found, f"processes {found} of the Ray cluster cannot be ended"


def start(
    nodes: Mapping[str, Callable[[], subprocess.Popen[bytes]]],
    folder: Path,
    clear: Callable[[], None] = lambda: None,
) -> None:
    """Start nodes at the same time, and again those that a busy machine did not start.

    Args:
        nodes: What starts each node.
        folder: Folder with their logs.
        clear: Called after a failure, before the next attempt.
    """
    for _ in range(3):
        starting = {name: node() for name, node in nodes.items()}
        nodes = {name: nodes[name] for name, p in starting.items() if p.wait(200)}
        if not nodes:
            return
        clear()
    logs = [(folder / f"{name}.log").read_text(errors="replace") for name in nodes]
    raise AssertionError(f"no node of {', '.join(nodes)} after 3 attempts: {logs}")


@contextlib.contextmanager
def cluster(*, hosts: int = HOSTS, head_cpus: int = 4) -> Iterator[Cluster]:
    """Start a head and the hosts of a slice; end them and remove their folder."""
    lacks = [name for name in ("ray", "aiohttp_cors") if not importlib.util.find_spec(name)]
    require(not lacks, f"{', '.join(lacks)} (pip install 'ray[client,default,train]')")
    # Ray's sockets lie in this folder, and a socket's path has a limit of 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="pr-ray-"))
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    made = Cluster(folder, free_port(), free_port(), free_port())
    made.settings = {
        **{k: v for k, v in environment().items() if not k.startswith(("RAY_", "TPU_"))},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ADDRESS": made.address,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "90",
        "RAY_prestart_worker_first_driver": "0",  # workers that no test would use
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",  # else the end of a fit is seen 2 s later
        "RAY_worker_niceness": "0",  # else the other tests' processes go first (Ray: 15)
        "JAX_PLATFORMS": "cpu",
        "OPENBLAS_NUM_THREADS": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    try:
        head = functools.partial(
            made.start_node,
            "head",
            "--head",
            f"--port={made.port}",
            f"--ray-client-server-port={made.client_port}",
            "--node-ip-address=127.0.1.100",
            f"--num-cpus={head_cpus}",
            f"--temp-dir={folder / 'r'}",
            "--include-dashboard=true",
            "--dashboard-host=127.0.1.100",
            f"--dashboard-port={made.dashboard_port}",
        )
        # What is left of a head that did not start would answer in place of the next one.
        start({"head": head}, folder, made.stop)
        start({f"host-{i}": functools.partial(made.start_host, i) for i in range(hosts)}, folder)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)
