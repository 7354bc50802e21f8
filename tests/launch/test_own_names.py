"""Hosts with odd names and addresses: the cause is the environment, or the run works."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import environment, require, spawn
from tests.hosts import NAMES, joined_hosts, on_hosts
from tests.launch.runs import RUN, Run, script

pytestmark = pytest.mark.slow

GATHERS = """
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
print(multihost_utils.process_allgather(jnp.ones(2)))
"""
OURS = """
import numpy as np
import pyreactant as pr
mesh = pr.Mesh((len(pr.devices()),), ("i",))
x = pr.device_put(np.ones((8, 8), np.float32), pr.NamedSharding(mesh, ("i",)))
print(x.gather().sum())
"""


@pytest.fixture
def namespaces(tmp_path: Path) -> Iterator[list[str]]:
    with joined_hosts(tmp_path) as found:
        yield found


def run_on(namespaces: list[str], folder: Path, own: list[str], text: str, *options: str) -> Run:
    """Run a program on two hosts, each of which takes its own name for this address."""
    settings = [
        environment(
            PYREACTANT_NUM_PROCESSES="2",
            PYREACTANT_PROCESS_INDEX=str(index),
            PYREACTANT_COORDINATOR_ADDRESS="10.77.0.1:4711",
            PYREACTANT_SECRET="0123456789abcdef",
            PYREACTANT_NUM_CPU_DEVICES="1",
            FAULT_EVENT=str(folder / "event"),
        )
        for index in range(2)
    ]
    argv = [*RUN, "--out", str(folder / "run"), *options, "--", script(folder, text)]
    argvs = []
    for index, address in enumerate(own):
        hosts = folder / f"of-{NAMES[index]}"
        hosts.mkdir()
        others = [f"10.77.0.{i + 1} {name}" for i, name in enumerate(NAMES) if i != index]
        (hosts / "hosts").write_text("\n".join([f"{address} {NAMES[index]}", *others, ""]))
        argvs.append(on_hosts(namespaces, hosts, *argv)[index])
    return Run(spawn(argvs, settings, folder, 240), folder / "run")


@pytest.mark.parametrize("text", [GATHERS, OURS], ids=["plain", "ours"])
def test_names_as_debian_has_them(namespaces: list[str], text: str, tmp_path: Path) -> None:
    run = run_on(namespaces, tmp_path, ["127.0.1.1"] * 2, text, "--platform", "cpu")
    assert [f.code for f in run.finished] == [3, 3], run
    report = run.report
    assert report["cause"] == "environment"
    assert "hosta (127.0.1.1), hostb (127.0.1.1); JAX's processes on CPUs" in report["summary"]
    said = run.finished[0].log.replace("\n", " ")
    for name, address in zip(NAMES, ("10.77.0.1", "10.77.0.2"), strict=True):
        line = rf"on {name}: sudo sed -i 's/^127[.]0[.]1[.]1\s/{address} /' /etc/hosts"
        assert line in report["notes"]
        assert line in said


def test_only_what_is_wrong_is_named(namespaces: list[str], tmp_path: Path) -> None:
    """A program that needs no connection runs; the line warns all the same."""
    run = run_on(namespaces, tmp_path, ["10.77.0.1", "127.0.0.1"], "print('here')")
    assert [f.code for f in run.finished] == [0, 0], run
    said = run.finished[0].log.replace("\n", " ")
    assert "loopback addresses: hostb (127.0.0.1); JAX's" in said
    assert "on hostb: replace 127.0.0.1 before hostb in /etc/hosts by 10.77.0.2" in said
    assert "on hosta:" not in said


@pytest.mark.parametrize(
    ("own", "options"),
    [(["10.77.0.1", "10.77.0.2"], []), (["127.0.1.1"] * 2, ["--platform", "gpu"])],
    ids=["right", "gpu"],
)
def test_names_about_which_nothing_is_said(
    namespaces: list[str], own: list[str], options: list[str], tmp_path: Path
) -> None:
    run = run_on(namespaces, tmp_path, own, "print('here')", *options)
    assert "loopback addresses" not in run.finished[0].log
    assert "loopback addresses" not in str(run.report)


def test_a_host_that_does_not_resolve_its_own_name(namespaces: list[str], tmp_path: Path) -> None:
    run = run_on(namespaces, tmp_path, ["192.0.2.1", "# none"], GATHERS, "--platform", "cpu")
    assert [f.code for f in run.finished] == [3, 3], run
    report = run.report
    assert report["cause"] == "environment"
    host = report["first_error"]["host"]
    words = f"its host has no address of its own under the name {host}; give it there the one by "
    assert words in report["summary"]
    assert f"echo 'ADDRESS {host}' | sudo tee -a /etc/hosts" in report["summary"]


IPV6 = """
ip link set lo up && ip addr del 127.0.0.1/8 dev lo
printf '::1 localhost %s\\n' "$(hostname)" > hosts && mount --bind hosts /etc/hosts
exec "$@"
"""


@pytest.mark.parametrize("text", [GATHERS, OURS], ids=["plain", "ours"])
def test_a_machine_without_127_0_0_1(text: str, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "network namespaces need root")
    require(shutil.which("ip") and shutil.which("unshare"), "iproute2 and util-linux are needed")
    alone = ["unshare", "--net", "--mount", "sh", "-c", IPV6, "sh"]
    options = ["--out", "run", "-n", "2", "--platform", "cpu", "--devices-per-process", "1"]
    argv = [*alone, *RUN, *options, "--", script(tmp_path, text)]
    (run,) = spawn([argv], [environment(FAULT_EVENT=str(tmp_path / "event"))], tmp_path, 120)
    assert run.code == 0, run
