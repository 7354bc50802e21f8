"""How a worker is reached: the ssh command that gcloud would use, asked of gcloud once per node.

`gcloud compute tpus tpu-vm ssh --dry-run` prints it for every worker. Running that ourselves
gives each worker an exit status, a log and a standard input of its own, which gcloud's
``--worker=all`` does not; nor does it run a command ten times when it ends with 255.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._errors import InvalidArgumentError, RequirementError
from ._request import Request
from ._resource import CloudError, Worker

if TYPE_CHECKING:
    from ._client import Client

_MARK = "pyreactant-command"
_OURS = (
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=3",
    "-oServerAliveCountMax=2",
    "-oLogLevel=ERROR",
)
_GCLOUD = 180.0  # seconds


@dataclass(frozen=True, slots=True)
class Way:
    """How to reach workers.

    Attributes:
        by: "gcloud" (it makes and spreads a key), or "ssh" (your own key and configuration).
        user: For ssh; None leaves it to gcloud or to ssh's configuration.
        flags: Further options of ssh, such as "-p2222".
    """

    by: str = "gcloud"
    user: str | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.by not in ("gcloud", "ssh"):
            raise InvalidArgumentError(f"workers are reached by 'gcloud' or 'ssh', got {self.by!r}")
        if self.user is not None and not re.fullmatch(r"[A-Za-z_][-.\w]{0,63}", self.user):
            raise InvalidArgumentError(f"no user is called {self.user!r}")
        wrong = [flag for flag in self.flags if not flag.startswith("-")]
        if wrong:
            raise InvalidArgumentError(f"options of ssh start with -, got {wrong[0]!r}")

    def check(self, environ: Mapping[str, str] = os.environ) -> None:
        """Look whether the tools and the key are here, before anything costs money.

        Raises:
            RequirementError: Something is missing; the message says what to run.
        """
        for tool in ("gcloud", "ssh") if self.by == "gcloud" else ("ssh",):
            if shutil.which(tool, path=environ.get("PATH")) is None:
                where = {"gcloud": "https://cloud.google.com/sdk/docs/install", "ssh": "OpenSSH"}
                raise RequirementError(f"{tool} is not on this machine; install it: {where[tool]}")
        if self.by == "gcloud":
            _check_key(environ)

    def commands(
        self, request: Request, workers: Sequence[Worker], environ: Mapping[str, str] = os.environ
    ) -> dict[Worker, list[str]]:
        """For each worker an argument list to which a remote command is added.

        Raises:
            CloudError: gcloud cannot say how to reach a node; its own words are in the message.
        """
        if self.by == "gcloud":
            return _ask_gcloud(self, request, workers, environ)
        return {worker: self._plain(request, worker) for worker in workers}

    def _plain(self, request: Request, worker: Worker) -> list[str]:
        address = worker.internal if request.internal_ips else worker.external or worker.internal
        user = [f"-l{self.user}"] if self.user else []
        # Addresses are given to other VMs later on; the node's number never is.
        alias = f"-oHostKeyAlias=tpu.{worker.node_id}-{worker.index}"
        host = ["-oStrictHostKeyChecking=accept-new", alias, *user, "--", address]
        return ["ssh", "-T", *_OURS, *self.flags, *host]


def command_on(
    client: "Client",
    request: Request,
    way: Way,
    worker: int,
    command: Sequence[str],
    *,
    terminal: bool = False,
) -> list[str]:
    """The argument list that runs a command on one worker.

    Args:
        client: The API.
        request: The slices, which are ACTIVE.
        way: How workers are reached.
        worker: Which, by slice and index, from 0.
        command: Its argument list; () for a shell.
        terminal: Whether a person sits there.

    Raises:
        CloudError: There is no such worker.
    """
    workers = client.workers(request)
    if not 0 <= worker < len(workers):
        raise CloudError(
            f"{request.name} has {len(workers)} workers now, so there is no worker {worker}"
        )
    argv = way.commands(request, [w for w in workers if w.node == workers[worker].node])
    found = [part for part in argv[workers[worker]] if not (terminal and part == "-T")]
    if terminal:
        found.insert(1, "-t")
    return [*found, *([shlex.join(command)] if command else [])]


def _check_key(environ: Mapping[str, str]) -> None:
    """A key with a passphrase works only through an agent; found out before the VMs cost."""
    key = os.path.join(environ.get("HOME", ""), ".ssh", "google_compute_engine")  # noqa: PTH118
    if not os.path.exists(key):  # noqa: PTH110 - gcloud will make one
        return
    opened = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", key],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    if opened.returncode == 0:
        return
    public = f"{key}.pub"
    agent = subprocess.run(
        ["ssh-add", "-T", public],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
        env=dict(environ),
    )
    if agent.returncode:
        raise RequirementError(
            f"the ssh key {key} has a passphrase and no agent holds it; run: "
            f"eval $(ssh-agent) && ssh-add {shlex.quote(key)}"
        )


def _ask_gcloud(
    way: Way, request: Request, workers: Sequence[Worker], environ: Mapping[str, str]
) -> dict[Worker, list[str]]:
    found = {}
    for node in dict.fromkeys(worker.node for worker in workers):
        where = f"{way.user}@{node}" if way.user else node
        base = [
            "gcloud",
            "compute",
            "tpus",
            "tpu-vm",
            "ssh",
            where,
            f"--project={request.project}",
            f"--zone={request.zone}",
            "--quiet",
            *(["--internal-ip"] if request.internal_ips else []),
            *(f"--ssh-flag={flag}" for flag in way.flags),
        ]
        # The first call puts the key into the node's metadata. That a worker does not answer yet
        # is no error here: the agent on the VM may not have seen the key.
        _gcloud([*base, "--worker=0", "--command=true"], environ, may_fail=True)
        said = _gcloud([*base, "--worker=all", "--dry-run", f"--command={_MARK}"], environ)
        lines = [shlex.split(line) for line in said.splitlines() if line.endswith(f"-- {_MARK}")]
        mine = [worker for worker in workers if worker.node == node]
        if len(lines) != len(mine):
            raise CloudError(
                f"gcloud knows {len(lines)} workers of {node}, and the API {len(mine)}: {said}"
            )
        for worker, line in zip(mine, lines, strict=True):
            found[worker] = [line[0], *_OURS, *line[1:-1]]
    return found


def _gcloud(argv: list[str], environ: Mapping[str, str], *, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_GCLOUD,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        if may_fail:
            return ""
        raise CloudError(f"gcloud did not answer within {_GCLOUD:.0f} s: {argv}") from None
    if done.returncode and not may_fail:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise CloudError(f"{shlex.join(argv)} failed: {' '.join(last)}")
    return done.stdout
