"""Two hosts: network namespaces joined by a cable, each with its own name and address."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness import require

NAMES = ("hosta", "hostb")

_HOST = Path(__file__).with_name("host.sh")


@contextmanager
def two_hosts(folder: Path) -> Iterator[list[str]]:
    """Create the namespaces of `NAMES`, and the file "hosts" of both in the folder."""
    require(os.geteuid() == 0, "network namespaces need root")
    require(shutil.which("ip") and shutil.which("unshare"), "iproute2 and util-linux are needed")
    run = uuid.uuid4().hex[:6]
    found = [f"pyreactant-{run}-{name}" for name in NAMES]
    lines = [f"10.77.0.{i + 1} {name}" for i, name in enumerate(NAMES)]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    made = []
    try:
        for namespace in found:
            _ip("netns", "add", namespace)
            made.append(namespace)
        _ip(
            "link",
            "add",
            "cable",
            "netns",
            found[0],
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            found[1],
        )
        for i, namespace in enumerate(found):
            _ip("-n", namespace, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", namespace, "link", "set", device, "up")
        yield found
    finally:
        for namespace in made:
            _ip("netns", "del", namespace)


def on_hosts(namespaces: Sequence[str], folder: Path, *argv: str) -> list[list[str]]:
    """Command lines that run a command on each host."""
    return [
        [
            "ip",
            "netns",
            "exec",
            namespace,
            "unshare",
            "--uts",
            "--mount",
            "bash",
            str(_HOST),
            name,
            str(folder / "hosts"),
            *argv,
        ]
        for namespace, name in zip(namespaces, NAMES, strict=True)
    ]


def cut_cable(namespaces: Sequence[str]) -> None:
    """Cut the network between the hosts, without closing any connection."""
    _ip("-n", namespaces[0], "link", "set", "cable", "down")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
