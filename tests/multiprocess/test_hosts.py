"""Two hosts: network namespaces of their own, joined by a cable, each with its name and address."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Finished, check_all_passed, environment, logs, require, spawn

HOST = Path(__file__).with_name("host.sh")
NAMES = ("hosta", "hostb")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespaces(tmp_path: Path) -> Iterator[list[str]]:
    require(os.geteuid() == 0, "network namespaces need root")
    require(shutil.which("ip") and shutil.which("unshare"), "iproute2 and util-linux are needed")
    run = uuid.uuid4().hex[:6]
    found = [f"pyreactant-{run}-{name}" for name in NAMES]
    lines = [f"10.77.0.{i + 1} {name}" for i, name in enumerate(NAMES)]
    (tmp_path / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    made = []
    try:
        for namespace in found:
            _ip("netns", "add", namespace)
            made.append(namespace)
        _ip("link", "add", "cable", "netns", found[0],
            "type", "veth", "peer", "name", "cable", "netns", found[1])  # fmt: skip
        for i, namespace in enumerate(found):
            _ip("-n", namespace, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", namespace, "link", "set", device, "up")
        yield found
    finally:
        for namespace in made:
            _ip("netns", "del", namespace)


def _run(namespaces: list[str], folder: Path, program: str) -> list[Finished]:
    argvs = [
        ["ip", "netns", "exec", namespace, "unshare", "--uts", "--mount", "bash", str(HOST), name,
         str(folder / "hosts"), sys.executable, "-m", "tests.multiprocess.programs", program,
         "{}"]
        for namespace, name in zip(namespaces, NAMES, strict=True)
    ]  # fmt: skip
    environments = [
        environment(
            PYREACTANT_PLATFORM="cpu",
            PYREACTANT_NUM_CPU_DEVICES="2",
            PYREACTANT_NUM_PROCESSES="2",
            PYREACTANT_PROCESS_INDEX=str(i),
            PYREACTANT_COORDINATOR_ADDRESS="hosta:4711",
        )
        for i in range(2)
    ]
    return spawn(argvs, environments, folder, 120)


@pytest.mark.parametrize("program", ["matmul_pairs", "constructors", "barriers"])
def test_two_hosts(program: str, namespaces: list[str], tmp_path: Path) -> None:
    check_all_passed(_run(namespaces, tmp_path, program))


def test_cut_cable_ends_both_hosts(namespaces: list[str], tmp_path: Path) -> None:
    """After a heartbeat's time, not never: nobody closes the connection."""
    finished = _run(namespaces, tmp_path, "cuts_cable")
    for process in finished:
        assert process.code not in (0, None), logs(finished)
        assert "went on" not in process.log, logs(finished)
