"""The tests' cluster is a real one, is isolated from the machine, and leaves nothing behind."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness import environment, require, until
from tests.slurm.cluster import Cluster, missing, started

KINDS = ("pid", "mnt", "uts", "net")


def _script(folder: Path, *lines: str) -> str:
    file = folder / "job.sh"
    file.write_text("\n".join(["#!/bin/bash", *lines, ""]))
    return str(file)


def test_nodes_are_idle(cluster: Cluster) -> None:
    done = cluster.run(["sinfo", "--noheader", "--Node", "--format=%N %T %c %f %P"])
    assert done.stdout == "n1 idle 72 gpu normal*\nn2 idle 72 gpu normal*\n", done


def test_commands_run_where_they_should(cluster: Cluster, tmp_path: Path) -> None:
    env = environment(GREETING="two  words")
    done = cluster.run(
        ["sh", "-c", 'hostname; pwd; echo "$GREETING"; exit 7'], env=env, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (7, f"login\n{tmp_path}\ntwo  words\n")
    for node in cluster.nodes:
        assert cluster.run_on(node, ["hostname"]).stdout == f"{node}\n"
    assert sorted(cluster.run(["srun", "--nodes=2", "hostname"]).stdout.split()) == ["n1", "n2"]


def test_late_command_is_ended_with_what_it_started(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match=r"did not end within 0\.5 s\nso far"):
        cluster.run(["sh", "-c", "echo so far; sleep 60.25; :"], timeout=0.5)
    alive = cluster.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout
    assert "slurmctld" in alive
    assert "60.25" not in alive


def test_batch_job_starts_a_task_on_each_node(cluster: Cluster, tmp_path: Path) -> None:
    script = _script(
        tmp_path,
        "scontrol show hostnames",
        "srun --label bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $(hostname)' | sort",
        "srun sh -c 'exit 3'",
    )
    output = tmp_path / "log"
    job = cluster.submit(["--nodes=2", "--ntasks-per-node=1", f"--output={output}", script])
    ended = cluster.wait(job)
    assert (ended.state, ended.code, ended.signal) == ("FAILED", 3, 0), output.read_text()
    assert output.read_text().startswith("n1\nn2\n0: 0 of 2 on n1\n1: 1 of 2 on n2\n")


def test_options_from_the_environment(cluster: Cluster, tmp_path: Path) -> None:
    script = _script(tmp_path, "exit 0")
    env = environment(SBATCH_PARTITION="normal", SBATCH_CONSTRAINT="gpu")
    argv = ["--cpus-per-task=72", "--gpus-per-node=4", "--output=/dev/null", script]
    ended = cluster.wait(cluster.submit(argv, env=env))
    assert ended.state == "COMPLETED"
    assert (ended.fields["Partition"], ended.fields["Features"]) == ("normal", "gpu")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--constraint=absent", "Invalid feature specification"),
        ("--nodes=3", "Node count specification invalid"),
        ("--gpus-per-node=5", "Requested node configuration is not available"),
        ("--cpus-per-task=73", "Requested node configuration is not available"),
        ("--partition=absent", "invalid partition specified"),
    ],
)
def test_what_can_never_run_is_refused(
    option: str, message: str, cluster: Cluster, tmp_path: Path
) -> None:
    done = cluster.run(["sbatch", option, _script(tmp_path, "exit 0")])
    assert done.returncode == 1, done
    assert message in done.stderr


def test_requeue(cluster: Cluster, tmp_path: Path) -> None:
    script = _script(tmp_path, "echo restarts ${SLURM_RESTART_COUNT:-none}", "exec sleep 60")
    output = tmp_path / "log"
    job = cluster.submit(["--open-mode=append", f"--output={output}", script])
    until(lambda: output.exists() and "restarts none" in output.read_text(), why=cluster.logs)
    cluster.requeue(job)
    until(lambda: "restarts 1" in output.read_text(), why=cluster.logs)
    assert cluster.run(["scancel", str(job)]).returncode == 0
    assert cluster.wait(job).state == "CANCELLED"


def _number(namespace: str) -> tuple[int, int]:
    status = os.stat(namespace)
    return status.st_dev, status.st_ino


def _processes(namespaces: set[tuple[int, int]]) -> set[int]:
    """Processes in any of these namespaces."""
    found = set()
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        for kind in KINDS:
            try:
                if _number(f"/proc/{pid}/ns/{kind}") in namespaces:
                    found.add(pid)
            except OSError:  # the process has ended, or belongs to another user
                pass
    return found


def _outside() -> set[Path]:
    """The contents of the default folders of Slurm and munge."""
    folders = ("/run", "/run/lock", "/var/spool", "/var/log", "/var/lib", "/dev/shm")
    found = {path for folder in folders for path in Path(folder).glob("*")}
    found |= set(Path("/sys/fs/cgroup").glob("*/*"))
    found = {path for path in found if "slurm" in path.name or "munge" in path.name}
    return found | {path for folder in found for path in folder.glob("*")}


@pytest.mark.parametrize("how", ["stopped", "killed", "left alone"])
def test_nothing_is_left(how: str, cluster: Cluster, tmp_path: Path) -> None:
    before = _outside()
    with ExitStack() as files, started(tmp_path) as own:
        script = _script(tmp_path, "sleep 60")
        own.wait(own.submit(["--output=/dev/null", script]), until={"RUNNING"})
        # A process that Slurm does not track, and that tries to outlive its job.
        own.run(["srun", "setsid", "nohup", "sh", "-c", "sleep 60 >/dev/null 2>&1 &"])
        paths = [f"/proc/{own.pid}/ns/{kind}" for kind in KINDS]
        paths += [f"/proc/{own.pid}/root{tmp_path}/namespaces/{node}.uts" for node in own.nodes]
        namespaces = {_number(path) for path in paths}
        assert len(namespaces) == 6
        assert not namespaces & {_number(f"/proc/self/ns/{kind}") for kind in KINDS}
        for (
            path
        ) in paths:  # kept open, so that another cluster on this machine cannot get their numbers
            files.enter_context(open(path, "rb"))
        # The first one, munged, slurmctld, two slurmd, a step and its shell, two sleeps.
        assert len(_processes(namespaces)) >= 9
        if how == "stopped":
            own.stop()
        elif how == "killed":
            own.process.kill()
        else:
            assert own.process.stdin
            own.process.stdin.close()
        if how == "killed":  # the outer process may end before the others
            until(lambda: not _processes(namespaces), why=lambda: _processes(namespaces))
        own.process.wait(60)
        assert not _processes(namespaces)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert _outside() == before
    assert (
        cluster.run(["srun", "--nodes=2", "true"]).returncode == 0
    )  # the other cluster still runs


def test_node_without_its_network(tmp_path: Path) -> None:
    lacks = missing(separate_networks=True)
    require(not lacks, lacks)
    near, far = "rack1node01", "rack2node01"
    with started(tmp_path, (near, far), separate_networks=True) as own:
        assert sorted(own.run(["srun", "--nodes=2", "hostname"]).stdout.split()) == [near, far]

        def reaches(node: str) -> bool:
            call = ["timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{node}/22"]
            # Nobody listens on the port: a reachable host refuses, any other does not answer.
            return "refused" in own.run_on(near, call).stderr

        assert reaches(far)
        own.cable(far, "down")
        assert not reaches(far)
        assert reaches("login")
        assert own.run_on(far, ["hostname"]).stdout == f"{far}\n"
        own.cable(far, "up")
        assert reaches(far)
        assert sorted(own.run(["srun", "--nodes=2", "hostname"]).stdout.split()) == [near, far]
