"""The machine, the launcher of this process, and gcloud's files."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyreactant.doctor import system
from pyreactant.doctor.check import CheckResult, Disk, Machine
from pyreactant.process.compile_cache import CompileCache
from tests.doctor.machines import (
    GIB,
    executable,
    julia,
    julia_project,
    machine,
    nvidia_driver,
    settled,
)
from tests.unit.test_process_group_slurm import step


class TestHostName:
    def test_right(self, tmp_path: Path) -> None:
        found = system.host_name(machine(tmp_path))
        assert (found.status, found.found) == ("pass", "node7 is 10.0.0.7")

    def test_debians_loopback(self, tmp_path: Path) -> None:
        here = machine(tmp_path, addresses=lambda host: ["127.0.1.1", "::1"])
        hosts = tmp_path / "root" / "etc" / "hosts"
        hosts.parent.mkdir()
        hosts.write_text("127.0.0.1 localhost\n127.0.1.1\tnode7.cluster node7\n")
        found = system.host_name(here)
        assert found.status == "warn"
        assert "which no other machine can reach" in found.found
        assert "each host's own name must be its real address: on CPU all processes" in found.found
        assert found.mend == "sudo sed -i 's/^127[.]0[.]1[.]1\\s/10.0.0.7 /' /etc/hosts"

    def test_the_line_mends_it(self, tmp_path: Path) -> None:
        self.test_debians_loopback(tmp_path)
        hosts = tmp_path / "root" / "etc" / "hosts"
        line = system.host_name(machine(tmp_path, addresses=lambda host: ["127.0.1.1"])).mend
        line = line.removeprefix("sudo ").replace("/etc/hosts", str(hosts))
        assert Machine().run(["sh", "-c", line]).code == 0
        assert hosts.read_text() == "127.0.0.1 localhost\n10.0.0.7 node7.cluster node7\n"

    def test_localhosts_own_line_stays(self, tmp_path: Path) -> None:
        here = machine(tmp_path, addresses=lambda host: ["127.0.0.1"])
        (tmp_path / "root" / "etc").mkdir()
        (tmp_path / "root" / "etc" / "hosts").write_text("127.0.0.1 localhost node7\n")
        assert system.host_name(here).mend == "grep -n node7 /etc/hosts"

    def test_unknown(self, tmp_path: Path) -> None:
        def unknown(host: str) -> Sequence[str]:
            raise OSError(-2, "Name or service not known")

        found = system.host_name(machine(tmp_path, addresses=unknown))
        assert found.status == "warn"
        assert "does not resolve here" in found.found

    @pytest.mark.parametrize(
        ("addresses", "status", "text"),
        [
            (
                {"node7": ["10.0.0.7"], "n0": ["10.0.0.8"], "n1": ["10.0.0.9", "fd00::9"]},
                "pass",
                "node7 is 10.0.0.7; n0 is 10.0.0.8; n1 is 10.0.0.9, fd00::9",
            ),
            (
                {"node7": ["10.0.0.7"], "n0": ["127.0.1.1"], "n1": ["10.0.0.9"]},
                "warn",
                "of this run's hosts n0 is 127.0.1.1 here, which is this machine",
            ),
            (
                {"node7": ["10.0.0.7"], "n1": ["127.0.0.1", "::1"]},
                "warn",
                "of this run's hosts n0 does not resolve here ([Errno -2] unknown); n1 is "
                "127.0.0.1, ::1 here, which is this machine",
            ),
        ],
    )
    def test_the_hosts_of_a_run(
        self, tmp_path: Path, addresses: dict[str, list[str]], status: str, text: str
    ) -> None:
        """Each host's address counts, on CPU, too."""

        def resolve(host: str) -> Sequence[str]:
            if host not in addresses:
                raise OSError(-2, "unknown")
            return addresses[host]

        found = system.host_name(machine(tmp_path, environ=step([2, 2])[1], addresses=resolve))
        assert (found.status, found.found) == (status, text)
        assert bool(found.mend) == (status == "warn")

    def test_a_run_on_this_machine(self, tmp_path: Path) -> None:
        alone = {"TPU_WORKER_HOSTNAMES": "localhost"}
        found = system.host_name(machine(tmp_path, environ=alone))
        assert (found.status, found.found) == ("pass", "node7 is 10.0.0.7")

    def test_a_name_server_that_does_not_answer(self, tmp_path: Path) -> None:
        def slow(host: str) -> Sequence[str]:
            time.sleep(5)
            return []

        found = system.host_name(machine(tmp_path, addresses=slow), seconds=0.05)
        assert found.status == "warn"
        assert "no answer within 0.05 s" in found.found


def test_clock(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert system.clock(here).status == "pass"
    wrong = system.clock(here, now=86400.0)
    assert wrong.status == "warn"
    assert "1970-01-02 00:00 UTC, which is before" in wrong.found
    for reply, status in (("yes", "pass"), ("no", "warn")):
        executable(tmp_path, "timedatectl", f"echo {reply}")
        found = system.clock(machine(tmp_path))
        assert found.status == status
    assert found.mend == "sudo timedatectl set-ntp true"


def test_shared_memory(tmp_path: Path) -> None:
    small = machine(tmp_path, disk=lambda path: Disk(64 * 2**20, 64 * 2**20))  # Docker's default
    assert "missing" in system.shared_memory(small).found
    (tmp_path / "root" / "dev" / "shm").mkdir(parents=True)
    assert system.shared_memory(small).status == "pass"  # this machine does not use it
    nvidia_driver(tmp_path, 4)
    found = system.shared_memory(small)
    assert found.status == "warn"
    assert "64 MiB of 64 MiB free; NCCL between 4 GPUs needs 1 GiB" in found.found
    assert found.mend == "sudo mount -o remount,size=8G /dev/shm"
    assert system.shared_memory(machine(tmp_path)).status == "pass"


@pytest.mark.parametrize(
    ("soft", "hard", "status", "mend"),
    [
        (1024, 1048576, "warn", "ulimit -n 1048576"),
        (256, 256, "warn", ""),
        (1024, -1, "warn", "ulimit -n 65536"),
        (65536, 65536, "pass", ""),
        (-1, -1, "pass", ""),
    ],
)
def test_open_files(tmp_path: Path, soft: int, hard: int, status: str, mend: str) -> None:
    found = system.open_files(machine(tmp_path, open_files=lambda: (soft, hard)))
    assert (found.status, found.mend) == (status, mend)


class TestDisk:
    def test_room(self, tmp_path: Path) -> None:
        found = system.disk(machine(tmp_path))
        assert found.status == "pass"
        assert "Julia depot 50 GiB" in found.found

    def test_full(self, tmp_path: Path) -> None:
        here = machine(tmp_path, disk=lambda path: Disk(100 * GIB, 2 * GIB))
        found = system.disk(here)
        assert (found.status, found.mend) == ("warn", "df -h")
        assert ".julia) has 2 GiB of 8 GiB required" in found.found
        (tmp_path / "home" / ".julia" / "packages" / "Reactant").mkdir(parents=True)
        assert system.disk(here).status == "pass"  # data that exists already needs no more space

    def test_the_settled_depot(self, tmp_path: Path) -> None:
        project = julia_project(tmp_path, {})
        environ = {**settled(julia(tmp_path), project), "JULIA_DEPOT_PATH": f"{tmp_path}/depot:"}
        here = machine(tmp_path, environ=environ, disk=lambda path: Disk(GIB, GIB))
        assert f"{tmp_path}/depot" in system.disk(here).found

    def test_a_home_that_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = str(tmp_path / "home")  # the tests may run as root, who can write everywhere
        monkeypatch.setenv("HOME", home)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(system.os, "access", lambda path, mode: str(path) != home)
        found = system.disk(machine(tmp_path))
        assert found.status == "warn"
        assert f"cannot be written: cache ({home}/.cache/pyreactant), Julia depot" in found.found
        assert "JULIA_DEPOT_PATH" in found.mend


class TestCompileCache:
    def row(self, tmp_path: Path, **facts: Any) -> CheckResult:
        environ = {"PYREACTANT_COMPILE_CACHE": str(tmp_path / "cache")}
        return system.compile_cache(machine(tmp_path, environ=environ, **facts))

    def test_none(self, tmp_path: Path) -> None:
        found = system.compile_cache(machine(tmp_path))
        assert found.status == "pass"
        assert found.found == "none; PYREACTANT_COMPILE_CACHE names its folder"

    def test_its_programs(self, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        assert self.row(tmp_path).found == f"{cache}: 0 programs, 0 B; 50 GiB free"
        assert not cache.exists()
        CompileCache(cache, "jax-1", print).write("key", bytes(10))
        assert self.row(tmp_path).found.startswith(f"{cache}: 1 program, 73 B; ")

    def test_too_little_room(self, tmp_path: Path) -> None:
        found = self.row(tmp_path, disk=lambda path: Disk(GIB, GIB // 2))
        assert (found.status, found.mend) == ("warn", "df -h")

    def test_others_may_write_it(self, tmp_path: Path) -> None:
        folder = CompileCache(tmp_path / "cache", "jax-1", print).folder
        folder.chmod(0o777)
        found = self.row(tmp_path)
        assert found.status == "warn"
        assert "can be written by other users, whose programs would run here" in found.found

    def test_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "cache").touch()
        found = self.row(tmp_path)
        assert found.status == "warn"
        assert found.found.endswith(
            "must be a folder that can be written; what is compiled is not kept"
        )
        assert found.mend == f"ls -ld {tmp_path}/cache"


class TestLaunch:
    def test_alone(self, tmp_path: Path) -> None:
        found = system.who_am_i(machine(tmp_path))
        assert (found.status, found.found) == ("pass", "process 0 of 1, decided by one process")

    def test_a_task(self, tmp_path: Path) -> None:
        found = system.who_am_i(machine(tmp_path, environ=step([1, 1])[1]))
        assert found.status == "pass"
        who, _, tls = found.found.partition("; ")
        assert who == "process 1 of 2, decided by Slurm"
        assert re.search("mutual TLS.* the coordinator listens on n0, port 6[0-9]+, and", tls)

    def test_a_trap(self, tmp_path: Path) -> None:
        environ = {"SLURM_JOB_ID": "9", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "4"}
        found = system.who_am_i(machine(tmp_path, environ=environ))
        assert (found.status, found.mend) == ("warn", "srun --kill-on-bad-exit=1 ...")
        assert "a shell of Slurm job 9" in found.found

    def test_no_slurm(self, tmp_path: Path) -> None:
        assert system.slurm(machine(tmp_path)).found == "not installed"
        inside = system.slurm(machine(tmp_path, environ={"SLURM_JOB_ID": "9"}))
        assert inside.status == "warn"
        assert "inside job 9, but Slurm's commands are not on PATH" in inside.found

    @pytest.mark.parametrize(
        ("ping", "status"),
        [
            ("echo 'Slurmctld(primary) at head is UP'", "pass"),
            ("echo 'Slurmctld(primary) at head is DOWN'; exit 1", "warn"),
            ("echo 'fatal: no configuration' >&2; exit 1", "warn"),
        ],
    )
    def test_its_controller(self, tmp_path: Path, ping: str, status: str) -> None:
        for name in ("sinfo", "srun", "sbatch"):
            executable(tmp_path, name, "exit 1")
        missing = system.slurm(machine(tmp_path))
        assert missing.status == "warn"
        assert "not scontrol" in missing.found
        executable(tmp_path, "scontrol", ping)
        assert system.slurm(machine(tmp_path)).status == status


class TestGcloud:
    def sdk(self, folder: Path, core: str) -> None:
        sdk = folder / "sdk"
        (sdk / "bin").mkdir(parents=True)
        (sdk / "VERSION").write_text("528.0.0\n")
        (sdk / "bin" / "gcloud").write_text("#!/bin/sh\nexit 1\n")  # the doctor must not start it
        (sdk / "bin" / "gcloud").chmod(0o755)
        (folder / "bin").mkdir()
        (folder / "bin" / "gcloud").symlink_to(sdk / "bin" / "gcloud")
        settings = folder / "home" / ".config" / "gcloud"
        (settings / "configurations").mkdir(parents=True)
        (settings / "active_config").write_text("work")
        (settings / "configurations" / "config_work").write_text(f"[core]\n{core}")

    def test_absent(self, tmp_path: Path) -> None:
        assert system.gcloud(machine(tmp_path)).status == "pass"

    def test_set_up(self, tmp_path: Path) -> None:
        self.sdk(tmp_path, "account = me@example.org\nproject = proj%ect\n")
        found = system.gcloud(machine(tmp_path))
        assert (found.status, found.found) == (
            "pass",
            "528.0.0, an account is set, project proj%ect",
        )
        assert "me@example.org" not in found.found

    def test_no_account(self, tmp_path: Path) -> None:
        self.sdk(tmp_path, "project = p\n")
        assert system.gcloud(machine(tmp_path)).mend == "gcloud auth login"
        environ = {"CLOUDSDK_CORE_ACCOUNT": "robot@example.org"}
        assert system.gcloud(machine(tmp_path, environ=environ)).status == "pass"

    def test_no_project(self, tmp_path: Path) -> None:
        self.sdk(tmp_path, "account = me@example.org\n")
        found = system.gcloud(machine(tmp_path))
        assert (found.status, found.mend) == ("warn", "gcloud config set project PROJECT")
