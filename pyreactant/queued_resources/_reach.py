"""How a worker is reached: the ssh command that gcloud would use.

`gcloud compute tpus tpu-vm ssh --dry-run` prints it for every worker. Running that command directly
gives each worker its own exit status, log and standard input. gcloud's ``--worker=all`` does not,
and it runs a command up to ten times when it exits with 255.
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
from ._request import CloudError, Request, Worker

if TYPE_CHECKING:
    from ._client import Client

_PLACEHOLDER = "pyreactant-command"
_SSH_OPTIONS = (
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=3",
    "-oServerAliveCountMax=2",
    "-oLogLevel=ERROR",
)
_GCLOUD_TIMEOUT = 180.0  # seconds


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How to reach workers.

    Attributes:
        method: "gcloud" (it creates a key and copies it to the VMs), or "ssh" (the user's own key
            and configuration).
        user: User on the workers; None for the default of gcloud or ssh.
        flags: Further options of ssh, such as "-p2222".
    """

    method: str = "gcloud"
    user: str | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.method not in ("gcloud", "ssh"):
            raise InvalidArgumentError(
                f"workers are reached with 'gcloud' or 'ssh', got {self.method!r}"
            )
        if self.user is not None and not re.fullmatch(r"[A-Za-z_][-.\w]{0,63}", self.user):
            raise InvalidArgumentError(f"the user must be a login name, got {self.user!r}")
        wrong = [flag for flag in self.flags if not flag.startswith("-")]
        if wrong:
            raise InvalidArgumentError(f"an ssh flag must start with '-', got {wrong[0]!r}")

    def check(self, environ: Mapping[str, str] = os.environ) -> None:
        """Check that the tools and the key are usable, before anything costs money.

        Raises:
            RequirementError: Something is missing; the message has the command to run.
        """
        for tool in ("gcloud", "ssh") if self.method == "gcloud" else ("ssh",):
            if shutil.which(tool, path=environ.get("PATH")) is None:
                source = {"gcloud": "https://cloud.google.com/sdk/docs/install", "ssh": "OpenSSH"}
                raise RequirementError(f"{tool} is not in PATH; install it: {source[tool]}")
        if self.method == "gcloud":
            _check_key(environ)

    def commands(
        self, request: Request, workers: Sequence[Worker], environ: Mapping[str, str] = os.environ
    ) -> dict[Worker, list[str]]:
        """For each worker the argument list to which a remote command is appended.

        Raises:
            CloudError: gcloud failed, or lists other workers than the API.
        """
        if self.method == "gcloud":
            return _gcloud_commands(self, request, workers, environ)
        return {worker: self._ssh_command(request, worker) for worker in workers}

    def _ssh_command(self, request: Request, worker: Worker) -> list[str]:
        address = worker.internal if request.internal_ips else worker.external or worker.internal
        user = [f"-l{self.user}"] if self.user else []
        # Other VMs get the same addresses later; a node's number is never reused.
        alias = f"-oHostKeyAlias=tpu.{worker.node_id}-{worker.index}"
        host = ["-oStrictHostKeyChecking=accept-new", alias, *user, "--", address]
        return ["ssh", "-T", *_SSH_OPTIONS, *self.flags, *host]


def command_on(
    client: "Client",
    request: Request,
    ssh: SshOptions,
    index: int,
    *,
    command: Sequence[str] = (),
    terminal: bool = False,
) -> list[str]:
    """The argument list that runs a command on one worker.

    Args:
        client: Client of the API.
        request: The slices, which must be ACTIVE.
        ssh: How workers are reached.
        index: Index of the worker over all slices, from 0.
        command: Argument list of the command; () for a shell.
        terminal: Whether to request a terminal.

    Raises:
        CloudError: The worker does not exist.
    """
    workers = client.workers(request)
    if not 0 <= index < len(workers):
        raise CloudError(
            f"there is no worker {index}: {request.name} has {len(workers)} workers, counted from 0"
        )
    worker = workers[index]
    argv = ssh.commands(request, [w for w in workers if w.node == worker.node])[worker]
    if terminal:
        argv = [argv[0], "-t", *(part for part in argv[1:] if part != "-T")]
    return [*argv, *([shlex.join(command)] if command else [])]


def _check_key(environ: Mapping[str, str]) -> None:
    """Raise RequirementError if gcloud's key has a passphrase and no agent holds the key."""
    key = os.path.join(environ.get("HOME", ""), ".ssh", "google_compute_engine")  # noqa: PTH118
    if not os.path.exists(key):  # noqa: PTH110 - gcloud creates it
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
    agent = subprocess.run(
        ["ssh-add", "-T", f"{key}.pub"],
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


def _gcloud_commands(
    ssh: SshOptions, request: Request, workers: Sequence[Worker], environ: Mapping[str, str]
) -> dict[Worker, list[str]]:
    commands = {}
    for node in dict.fromkeys(worker.node for worker in workers):
        base = [
            *("gcloud", "compute", "tpus", "tpu-vm", "ssh"),
            f"{ssh.user}@{node}" if ssh.user else node,
            f"--project={request.project}",
            f"--zone={request.zone}",
            "--quiet",
            *(["--internal-ip"] if request.internal_ips else []),
            *(f"--ssh-flag={flag}" for flag in ssh.flags),
        ]
        # The first call copies the key into the node's metadata. It may fail, because the guest
        # agent of the VM may not have read the key yet.
        _gcloud([*base, "--worker=0", "--command=true"], environ, may_fail=True)
        every = [*base, "--worker=all", "--dry-run", f"--command={_PLACEHOLDER}"]
        output = _gcloud(every, environ)
        lines = [line for line in output.splitlines() if line.endswith(f"-- {_PLACEHOLDER}")]
        of_node = [worker for worker in workers if worker.node == node]
        if len(lines) != len(of_node):
            raise CloudError(
                f"gcloud lists {len(lines)} workers of {node}, but the API lists {len(of_node)}: "
                f"{output}"
            )
        for worker, line in zip(of_node, lines, strict=True):
            program, *arguments = shlex.split(line)[:-1]
            commands[worker] = [program, *_SSH_OPTIONS, *arguments]
    return commands


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
            timeout=_GCLOUD_TIMEOUT,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        if may_fail:
            return ""
        raise CloudError(
            f"gcloud did not answer within {_GCLOUD_TIMEOUT:.0f} s: {shlex.join(argv)}"
        ) from None
    if done.returncode and not may_fail:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise CloudError(f"{shlex.join(argv)} failed: {' '.join(last)}")
    return done.stdout
