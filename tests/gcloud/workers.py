"""TPU VMs for tests: real sshd on loopback addresses, each with its own host key."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import QUICK_COMPILING, free_port, require

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

_AS_ASKED = 'cd "$HOME" && exec bash -c "$SSH_ORIGINAL_COMMAND"'


@dataclass
class Workers:
    """Running sshds.

    Attributes:
        port: Port of all workers, each on its own address.
        addresses: One address per worker.
        folder: Folder of keys and logs; "home-ADDRESS" is the home of a worker.
    """

    port: int
    addresses: Sequence[str]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def authorize(self, node: dict[str, Any]) -> None:
        """Accept the keys that gcloud puts into the metadata, as the VM's guest agent does."""
        lines = node.get("metadata", {}).get("ssh-keys", "").splitlines()
        keys = [line.partition(":")[2] for line in lines]
        keys.append((self.folder / "user.pub").read_text().strip())
        (self.folder / "authorized_keys").write_text("\n".join(keys) + "\n")

    def start(self, address: str, command: str = _AS_ASKED) -> None:
        """Start, or restart as after a reboot; every connection runs `command`."""
        assert SSHD is not None
        key = self.folder / f"host-{address}"
        if not key.exists():
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=20
            )
        home = self.folder / f"home-{address}"
        home.mkdir(exist_ok=True)
        options = [
            f"Port={self.port}",
            f"ListenAddress={address}",
            f"HostKey={key}",
            "StrictModes=no",
            f"AuthorizedKeysFile={self.folder / 'authorized_keys'}",
            "UsePAM=no",
            "PidFile=none",
            "PasswordAuthentication=no",
            "PermitRootLogin=yes",
            "MaxStartups=100",
            f"SetEnv=HOME={self.folder / 'home'} 'XLA_FLAGS={QUICK_COMPILING}'",
            "KexAlgorithms=curve25519-sha256",  # a tenth of the cost of the default
            "Subsystem=sftp internal-sftp",
            f"ForceCommand={command}",
        ]
        # Every VM has its own file system, in which the home has the same name.
        own = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        sshd = [SSHD, "-f", "/dev/null", "-D", "-e", *(f"-o{option}" for option in options)]
        argv = ["unshare", "-m", "sh", "-c", own, "_", home, self.folder / "home", *sshd]
        with (self.folder / f"sshd-{address}.log").open("ab") as log:
            self.processes[address] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((address, self.port), 1):
                return
            time.sleep(0.05)
        raise AssertionError((self.folder / f"sshd-{address}.log").read_text())

    def stop(self, address: str) -> None:
        """Remove a VM: end its sshd and all processes of its connections."""
        process = self.processes.pop(address)
        for pid in [*descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def descendants(pid: int) -> list[int]:
    """All descendants of a process, the youngest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):  # the process has just ended
            for child in task.read_text().split():
                found = [*descendants(int(child)), int(child), *found]
    return found


@contextlib.contextmanager
def workers(folder: Path, count: int) -> Iterator[Workers]:
    """Start `count` workers on 127.0.0.2, 127.0.0.3, ..."""
    require(SSHD, "sshd (Debian's openssh-server)")
    require(shutil.which("unshare") and os.geteuid() == 0, "root, for workers' file systems")
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd needs it; normally Debian's service creates it
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "user"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (folder / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    (folder / "home").mkdir(exist_ok=True)
    running = Workers(free_port(), [f"127.0.0.{i + 2}" for i in range(count)], folder)
    try:
        for address in running.addresses:
            running.start(address)
        yield running
    finally:
        for address in list(running.processes):
            running.stop(address)
