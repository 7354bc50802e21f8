"""Hosts: network namespaces joined by cables, each with its own name and address."""

import itertools
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
def joined_hosts(folder: Path, names: Sequence[str] = NAMES) -> Iterator[list[str]]:
    """Create a namespace for each name, and their file "hosts" in the folder.

    A cable of its own joins each host to each other one; it is `cable(j)` on host i, and
    `cable(i)` on host j.
    """
    require(os.geteuid() == 0, "network namespaces need root")
    require(shutil.which("ip") and shutil.which("unshare"), "iproute2 and util-linux are needed")
    run = uuid.uuid4().hex[:6]
    found = [f"pyreactant-{run}-{name}" for name in names]
    addresses = [f"10.77.0.{i + 1}" for i in range(len(names))]
    lines = [f"{address} {name}" for address, name in zip(addresses, names, strict=True)]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    made = []
    try:
        for namespace in found:
            _ip("netns", "add", namespace)
            made.append(namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        for i, j in itertools.combinations(range(len(names)), 2):
            ends = (cable(j), "netns", found[i]), (cable(i), "netns", found[j])
            _ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
            for here, there in ((i, j), (j, i)):
                on_cable = "dev", cable(there)
                way = addresses[here], "peer", f"{addresses[there]}/32"
                _ip("-n", found[here], "addr", "add", *way, *on_cable)
                _ip("-n", found[here], "link", "set", cable(there), "up")
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
            namespace.rpartition("-")[2],
            str(folder / "hosts"),
            *argv,
        ]
        for namespace in namespaces
    ]


def cable(host: int) -> str:
    """Name of the network device by which the others reach a host."""
    return f"cable{host}"


def cut_cable(namespaces: Sequence[str]) -> None:
    """Cut the network between the first two hosts, without closing any connection."""
    _ip("-n", namespaces[0], "link", "set", cable(1), "down")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
