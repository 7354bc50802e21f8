"""A cloud for tests: the stand-in API, and an environment in which all commands use it."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyreactant.base.slices.topology import topology
from tests.gcloud.tpu_api import TpuApi
from tests.gcloud.tpu_server import serve
from tests.gcloud.workers import Workers, workers
from tests.harness import environment, require

if TYPE_CHECKING:
    from pyreactant.runs.queued.request import SliceRequest

REQUEST = {
    "QR_ID": "test",
    "PROJECT": "my-project",
    "ZONE": "asia-northeast1-b",
    "ACCELERATOR_TYPE": "v6e-16",
    "RUNTIME_VERSION": "v2-alpha-tpuv6e",
}


def slice_request(**changed: Any) -> "SliceRequest":
    """The request of `REQUEST`, with some fields changed."""
    from pyreactant.runs.queued.request import SliceRequest

    fields = {
        "name": "test",
        "project": "my-project",
        "zone": "asia-northeast1-b",
        "accelerator_type": "v6e-16",
    }
    return SliceRequest(**{**fields, **changed})


@dataclass
class Cloud:
    """The API, its workers, and the settings of a user's shell."""

    api: TpuApi
    folder: Path
    settings: dict[str, str]
    workers: Workers | None = None

    @property
    def state(self) -> Path:
        """The folder of the journal."""
        return Path(self.settings["XDG_STATE_HOME"], "pyreactant")

    def argv(self, *arguments: str) -> list[str]:
        """`pyreactant run ...` or `crosscheck ...`, else `pyreactant tpu ...`."""
        group = [] if arguments[:1] in (("run",), ("crosscheck",)) else ["tpu"]
        return [sys.executable, "-m", "pyreactant", *group, *arguments]

    def start(self, *arguments: str, log: Path | None = None) -> subprocess.Popen[str]:
        """Start a launcher in a new session."""
        out = (log or self.folder / "launcher.log").open("w")
        with out:
            return subprocess.Popen(
                self.argv(*arguments),
                env=self.settings,
                cwd=self.folder,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, *arguments: str, timeout: float = 120) -> tuple[int, str]:
        """Run a launcher; return its exit code and output."""
        log = self.folder / f"launcher-{time.monotonic_ns()}.log"
        process = self.start(*arguments, log=log)
        try:
            code = process.wait(timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return code, log.read_text()

    def run_options(self, *, gcloud: bool = False, script: bool = False) -> list[str]:
        """A run on these workers with this Python, on CPUs.

        They are those of the product, or of a script.

        Either two VMs, reached by ssh with the user's key, or four, reached through gcloud.
        """
        assert self.workers is not None
        key = self.workers.folder / "user"
        small = [
            "--topology",
            "v5p-16",
            "--runtime-version",
            "v2-alpha-tpuv5",
            "--reach",
            "ssh",
            f"--ssh-flag=-i{key}",
            f"--ssh-flag=-oUserKnownHostsFile={key}-hosts",
        ]
        product = ["crosscheck", "--on", "tpu", "--backends", "jax", "--size", "64"]
        return [
            *(["run", "--on", "tpu", "--backend", "jax"] if script else product),
            "--platform",
            "cpu",
            "--devices-per-process",
            "2",
            "--python",
            sys.executable,
            f"--ssh-flag=-p{self.workers.port}",
            *([] if gcloud else small),
        ]

    def target(self, **more: object) -> str:
        """The TPU target as an expression: two VMs, reached with the user's key, on CPUs."""
        assert self.workers is not None
        key = self.workers.folder / "user"
        flags = (f"-p{self.workers.port}", f"-i{key}", f"-oUserKnownHostsFile={key}-hosts")
        settings = {
            "runtime_version": "v2-alpha-tpuv5",
            "reach": "ssh",
            "ssh_flags": flags,
            "python": sys.executable,
            "platform": "cpu",
            "devices_per_process": 1,
            **more,
        }
        return f"pr.targets.TPU('v5p-16', **{settings!r})"


@contextlib.contextmanager
def cloud(folder: Path, api: TpuApi, count: int = 0) -> Iterator[Cloud]:
    """A cloud with `count` reachable workers; 0 for the API alone."""
    require(importlib.util.find_spec("google.cloud.tpu_v2"), "google-cloud-tpu")
    home = folder / "home"
    home.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        running = None
        if count:
            require(shutil.which("gcloud"), "gcloud")
            running = stack.enter_context(workers(folder / "workers", count))
            api.hosts, api.on_patch = tuple(running.addresses), running.authorize
        url = stack.enter_context(serve(api))
        kept = {k: v for k, v in environment().items() if not k.startswith("CLOUDSDK_")}
        settings = {
            **kept,
            **REQUEST,
            "HOME": str(home),
            "CLOUDSDK_CONFIG": str(folder / "gcloud"),
            "XDG_STATE_HOME": str(home / "state"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": "my-project",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        }
        settings.pop("SSH_AUTH_SOCK", None)
        yield Cloud(api, folder, settings, running)


def hosts_of(kind: str) -> int:
    """Number of VMs of a slice."""
    return topology(kind).hosts
