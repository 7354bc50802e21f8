"""A Slurm cluster for tests (cluster.sh), with commands on its login node and its nodes."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness import environment

SCRIPT = Path(__file__).with_name("cluster.sh")
TOOLS = ("munged", "slurmctld", "slurmd", "srun", "unshare", "nsenter", "ip")
# Daemons and `ip` are in folders that a user's PATH may lack.
PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
USER = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
NAMESPACES = ("--pid", "--mount", "--uts", "--net")
_TIMED_OUT = 124  # exit code of `timeout`
ENDED = frozenset({"CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"})


def missing(*, separate_networks: bool = False) -> str:
    """Names of what a cluster needs and this machine lacks or forbids; empty if it can start."""
    absent = [tool for tool in TOOLS if not shutil.which(tool, path=PATH)]
    if absent:
        return f"a Slurm cluster needs {', '.join(absent)}"
    if not Path("/etc/slurm").is_dir():
        return "a Slurm cluster needs the folder /etc/slurm, where Debian's Slurm looks"
    inside = ["unshare", *USER, *NAMESPACES, "--fork", "--"]
    calls = [["unshare", *USER[:2], "--", "true"]] if USER else []
    calls += [["unshare", *USER, kind, "--fork", "--", "true"] for kind in NAMESPACES]
    calls += [
        [*inside, "mount", "-t", "proc", "proc", "/proc"],
        [*inside, "mount", "--bind", "/etc/hosts", "/etc/hosts"],
        [*inside, "hostname", "login"],
        [*inside, "ip", "addr", "add", "10.77.0.1/32", "dev", "lo"],
    ]
    if separate_networks:
        calls += [
            [*inside, "ip", "link", "add", "bridge", "type", "bridge"],
            [*inside, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "port0"],
        ]
    for call in calls:
        tried = subprocess.run(call, env={"PATH": PATH}, capture_output=True, text=True)
        if tried.returncode:
            return f"a Slurm cluster needs `{' '.join(call)}`, which failed: {tried.stderr.strip()}"
    return ""


@dataclass(frozen=True)
class Job:
    """Slurm's state of a job; ``code`` and ``signal`` are those of its batch script."""

    state: str
    code: int
    signal: int
    fields: Mapping[str, str]


class Cluster:
    """A running cluster; commands run on its login node unless they name another node."""

    def __init__(
        self, folder: Path, nodes: Sequence[str], pid: int, process: subprocess.Popen[str]
    ):
        self.folder = folder
        self.nodes = tuple(nodes)
        self.pid = pid
        self.process = process

    def start(
        self,
        argv: Sequence[str],
        *,
        node: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command with its output in pipes; `end` ends it and its descendants."""
        enter = ["nsenter", "--target", str(self.pid)]
        if USER:
            enter += ["--user", "--preserve-credentials"]
        enter += ["--pid", "--mount"]
        for kind in ("uts", "net"):
            # The files are mounted inside the cluster only, so the path goes through its root.
            file = f"/proc/{self.pid}/root{self.folder}/namespaces/{node}.{kind}"
            enter.append(f"--{kind}={file}" if node else f"--{kind}")
        # nsenter's --wd resolves the folder outside of the cluster, where it does not exist.
        return subprocess.Popen(
            [*enter, "--", "env", f"--chdir={cwd or self.folder}", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": PATH, **(environment() if env is None else env)},
            start_new_session=True,
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node and wait for its end."""
        return _finish(self.start(argv, env=env, cwd=cwd), argv, timeout)

    def run_on(
        self,
        node: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, without Slurm."""
        return _finish(self.start(argv, node=node, env=env, cwd=cwd), argv, timeout)

    def submit(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> int:
        """Run ``sbatch`` with these options and this script; return the job's number."""
        done = self.run(["sbatch", "--parsable", *argv], env=env, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split(";")[0])

    def job(self, number: int) -> Job:
        """The current state of a job."""
        show = ["timeout", "10", "scontrol", "--oneliner", "show", "job", str(number)]
        done = self.run(show)
        if done.returncode == _TIMED_OUT:  # a request to a busy controller may be lost
            done = self.run(show)
        assert done.returncode == 0, (done.returncode, done.stderr, self.logs())
        fields = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
        code, by_signal = fields["ExitCode"].split(":")
        return Job(fields["JobState"], int(code), int(by_signal), fields)

    def wait(self, number: int, *, until: Collection[str] = ENDED, timeout: float = 60) -> Job:
        """Wait until a job is in one of these states."""
        # Not sbatch --wait, which polls in growing intervals, so that 4 s become 10.
        deadline = time.monotonic() + timeout
        while (job := self.job(number)).state not in until:
            assert time.monotonic() < deadline, f"after {timeout} s: {job.fields}\n{self.logs()}"
            time.sleep(0.25)  # each look costs 20 ms of a processor
        return job

    def requeue(self, number: int) -> None:
        """Requeue a running job and let it start again soon."""
        done = self.run(["scontrol", "requeue", str(number)])
        assert done.returncode == 0, done.stderr
        self.wait(number, until={"PENDING"})
        # Slurm would wait two minutes. Within a second of the kill, the node refuses the job with
        # "Job credential revoked", and the job fails.
        time.sleep(1.1)
        done = self.run(["scontrol", "update", f"JobId={number}", "StartTime=now"])
        assert done.returncode == 0, done.stderr

    def cable(self, node: str, state: str) -> None:
        """Cut a node's network ("down") or join it again ("up"); needs separate networks."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{state} {node}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"{state} {node}\n", self.logs()

    def stop(self) -> None:
        """End the cluster; every process in it is gone when this returns."""
        # The first process of a killed pid namespace ends only after all others.
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.process.wait(60)

    def logs(self) -> str:
        """The end of every daemon's log, for a failing assertion."""
        ends = [(log.name, log.read_text().splitlines()[-20:]) for log in self.folder.glob("*.log")]
        return "\n".join("\n".join([f"--- {name}", *lines]) for name, lines in sorted(ends))


def end(process: subprocess.Popen[str]) -> None:
    """End a command and its descendants; process groups exist in every pid namespace."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _finish(
    process: subprocess.Popen[str], argv: Sequence[str], timeout: float
) -> subprocess.CompletedProcess[str]:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end(process)
        out, err = process.communicate(timeout=60)
        late = f"{list(argv)} did not end within {timeout} s\n{out}\n{err}"
        raise AssertionError(late) from None
    except BaseException:
        end(process)
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


@contextmanager
def started(
    folder: Path, nodes: Sequence[str] = ("n1", "n2"), *, separate_networks: bool = False
) -> Iterator[Cluster]:
    """A cluster that keeps all files in this folder and ends with the block."""
    folder = folder.resolve()
    options = ["--separate-networks"] if separate_networks else []
    with subprocess.Popen(
        ["bash", str(SCRIPT), str(folder), *options, *nodes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment(), "PATH": PATH},
        start_new_session=True,
    ) as process:
        assert process.stdout
        try:
            said = process.stdout.readline()
            if not said.startswith("ready "):
                said += process.stdout.read()
                raise AssertionError(f"the Slurm cluster did not start:\n{said}")
            cluster = Cluster(folder, nodes, int(said.split()[1]), process)
            try:
                yield cluster
            finally:
                cluster.stop()
        finally:
            process.kill()
