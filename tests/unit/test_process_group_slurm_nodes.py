"""Slurm's two notations, of nodes and of tasks per node: read, or explained; and scontrol."""

import os
import shutil
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import port_of, resolve
from pyreactant.process.group.nodes import host_names, tasks_per_node
from pyreactant.process.group.slurm import slurm
from tests.harness import require
from tests.unit.test_process_group_slurm import Environment, message, step


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 20)), min_size=1, max_size=8))
def test_tasks_per_node(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{n}(x{times})" if times > 1 else str(n) for n, times in runs)
    assert tasks_per_node(text) == tuple(n for n, times in runs for _ in range(times))


@given(st.text("0123456789(x),", max_size=30) | st.text(max_size=20))
def test_any_tasks_per_node_are_read_or_explained(text: str) -> None:
    try:
        tasks = tasks_per_node(text)
    except pr.InvalidArgumentError:
        return
    assert min(tasks) > 0


def test_huge_tasks_per_node_take_no_memory() -> None:
    with pytest.raises(pr.InvalidArgumentError, match="must look like"):
        tasks_per_node("1(x999999999)")


NODE_LISTS = {
    "n[07]": ("n07",),
    "a,n[01-02]-ib[3-4]": ("a", "n01-ib3", "n01-ib4", "n02-ib3", "n02-ib4"),
    "rack[1-2]node[01-02]": ("rack1node01", "rack1node02", "rack2node01", "rack2node02"),
    "n[1,3-4],login": ("n1", "n3", "n4", "login"),
    "n[9-11]": ("n9", "n10", "n11"),
}


@pytest.fixture
def slurm_conf(tmp_path: Path) -> Environment:
    """A slurm.conf without a real controller: scontrol only reads the file."""
    require(shutil.which("scontrol"), "scontrol, of Debian's slurm-client")
    file = tmp_path / "slurm.conf"
    file.write_text("ClusterName=test\nSlurmctldHost=nowhere\n")
    return {"SLURM_CONF": str(file)}


@pytest.mark.parametrize("nodes", NODE_LISTS)
def test_node_lists(nodes: str, slurm_conf: Environment) -> None:
    expected = NODE_LISTS[nodes]
    assert host_names(nodes, len(expected), slurm_conf) == expected
    groups = [resolve(environ=e | slurm_conf) for e in step([2] * len(expected), nodes)]
    assert {g.hosts for g in groups} == {tuple(h for h in expected for _ in range(2))}
    assert str(groups[0].coordinator_address).startswith(f"{expected[0]}:")


def test_suffix_is_read_where_slurm_reads_it(slurm_conf: Environment) -> None:
    # Slurm 22.05 does not write or read such a list.
    try:
        names = host_names("n[01-03]-ib", 3, slurm_conf)
    except pr.InvalidArgumentError as error:
        names, error_text = None, str(error)
    assert names == ("n01-ib", "n02-ib", "n03-ib") if names else "Invalid hostlist" in error_text
    written = host_names("n01-ib,n02-ib,n03-ib", 3, slurm_conf)
    assert written == ("n01-ib", "n02-ib", "n03-ib")


def test_scontrol_misunderstands_without_saying_so(slurm_conf: Environment) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"'n\[07' must have 1 host name, got n\]"):
        host_names("n[07", 1, slurm_conf)


def test_lists_without_brackets_need_no_scontrol() -> None:
    environ = {"PATH": "/nowhere"}
    assert host_names("n1", 1, environ) == ("n1",)
    assert host_names("n1,login.example.org", 2, environ) == ("n1", "login.example.org")
    assert host_names("fe80::1", None, environ) == ("fe80::1",)
    ipv6 = resolve(environ=step([2], "fe80::1")[0])
    assert str(ipv6.coordinator_address).startswith("[fe80::1]:")


def scontrol(folder: Path, script: str) -> Environment:
    """Install a stand-in for scontrol that runs this script."""
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (None, "could not be started (No such file or directory)"),
        (
            "echo first >&2; echo it is broken >&2; exit 3",
            "ended with code 3 and printed: it is broken",
        ),
        ("exit 1", "ended with code 1 and printed: nothing"),
    ],
)
def test_scontrol_is_absent_or_fails(script: str | None, problem: str, tmp_path: Path) -> None:
    path = scontrol(tmp_path, script) if script else {"PATH": str(tmp_path)}
    environ = step([1, 1], "n[1-2]")[0] | path
    error_text = message(environ)
    assert f"the node list 'n[1-2]' needs Slurm's scontrol, which {problem}" in error_text
    port = port_of("slurm 123.4 restart 0")
    assert error_text.endswith(
        "before srun: export PYREACTANT_COORDINATOR_ADDRESS=$(scontrol show hostnames "
        f'"$SLURM_JOB_NODELIST" | head -n 1):{port}'
    )
    found = slurm(environ | {"PYREACTANT_COORDINATOR_ADDRESS": "n1:1"})
    assert found.group
    assert (found.group.coordinator_address, found.group.hosts) == ("n1:1", None)
    assert problem in found.notes[0]


def test_scontrol_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyreactant.process.group.nodes._TIMEOUT", 0.1)
    path = scontrol(tmp_path, "exec sleep 60")
    with pytest.raises(pr.InvalidArgumentError, match=r"scontrol, which did not end within 0\.1 s"):
        host_names("n[1-2]", 2, path)


@given(st.text(max_size=20))
def test_any_node_list_is_read_or_explained(text: str) -> None:
    try:
        names = host_names(text, None, {"PATH": "/nowhere"})
    except pr.InvalidArgumentError:
        return
    assert ",".join(names) == text
