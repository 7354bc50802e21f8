"""How a run on a real Slurm ends: Slurm, `pyreactant jobs` and the caller say the same."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreactant.runs.record import Status, create, release
from tests.harness import environment
from tests.slurm.cluster import PATH, Cluster

PYREACTANT = [sys.executable, "-m", "pyreactant"]
WAITS = """\
import signal, sys, time
from pathlib import Path

for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
    signal.signal(number, lambda *_: Path("{folder}/warned").touch())
print("up", flush=True)
until = time.monotonic() + 100
while not Path("{folder}/end").exists() and time.monotonic() < until:
    time.sleep(0.1)
    if Path("{folder}/speak").exists():
        print("again", flush=True)
print("finished", flush=True)
"""


def until(condition: Callable[[], bool]) -> None:
    """Wait until a callable is true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.1)


class Run:
    """`pyreactant run --on slurm` in the foreground, which has begun."""

    def __init__(self, cluster: Cluster, folder: Path, *options: str, **more: str) -> None:
        self.cluster, self.folder = cluster, folder
        self.env = environment(XDG_STATE_HOME=str(folder / "state"), **more)
        (folder / "waits.py").write_text(WAITS.format(folder=folder))
        words = ["run", "--on", "slurm", "--cpus-per-task=1", "--platform=cpu", *options]
        argv = [*PYREACTANT, *words, "--", "waits.py"]
        self.process = cluster.start(argv, env=self.env, cwd=folder)
        assert self.process.stdout
        assert self.process.stdout.readline() == "up\n", self.process.communicate()

    @property
    def number(self) -> int:
        """Slurm's number of the job."""
        handles = [*self.folder.glob("state/pyreactant/jobs/*/handle.json")]
        assert len(handles) == 1
        return int(json.loads(handles[0].read_text())["slurm"])

    def slurm(self, *words: str) -> None:
        """Run a command of Slurm."""
        done = self.cluster.run(list(words))
        assert done.returncode == 0, done

    def report(self) -> str:
        """The report of the run, as text."""
        (file,) = self.folder.glob("state/pyreactant/jobs/*/run/report.txt")
        return file.read_text()

    def end(self) -> tuple[int, str, str, dict[str, object]]:
        """The caller's exit code, what it printed, and the job as `jobs list` shows it."""
        printed, said = self.process.communicate(timeout=100)
        return self.process.returncode, printed, said, job_of(self.cluster, self.env, self.folder)


def job_of(cluster: Cluster, env: dict[str, str], folder: Path) -> dict[str, object]:
    """The only job in a state folder."""
    listed = cluster.run([*PYREACTANT, "jobs", "list", "--json"], env=env, cwd=folder)
    (row,) = json.loads(listed.stdout)
    return dict(row)


def test_a_node_that_fails(cluster: Cluster, tmp_path: Path) -> None:
    """Its run is lost, whatever exit code its batch script has by then."""
    run = Run(cluster, tmp_path, "--sbatch=--nodelist=n1")
    try:
        run.slurm("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
        code, printed, said, row = run.end()
    finally:
        # The node comes back by itself if it answers meanwhile.
        cluster.run(["scontrol", "update", "NodeName=n1", "State=RESUME"])
        until(lambda: cluster.run(["sinfo", "--noheader", "--format=%T"]).stdout == "idle\n")
    assert cluster.wait(run.number).state == "NODE_FAIL"
    assert (code, printed) == (6, ""), said
    assert "a node of the job failed" in said
    assert (row["state"], row["exit_code"]) == ("failed", 6)
    assert run.report().startswith("lost: a node of the job failed; ")


def test_a_job_that_is_cancelled_in_slurm(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(cluster, tmp_path)
    run.slurm("scancel", str(run.number))
    code, printed, said, row = run.end()
    assert (code, printed) == (130, ""), said
    assert (row["state"], row["exit_code"]) == ("cancelled", 130)
    assert run.report().startswith("interrupted: cancelled in Slurm; ")
    assert "exit code 130, after" in run.report()


def test_a_batch_script_that_slurm_cannot_start(cluster: Cluster, tmp_path: Path) -> None:
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    (tmp_path / "x.py").touch()
    words = ["run", "--on", "slurm", "--cpus-per-task=1", "--sbatch=--input=/nosuch", "--", "x.py"]
    done = cluster.run([*PYREACTANT, *words], env=env, cwd=tmp_path)
    assert done.returncode == 3, done
    assert "environment: Slurm could not start the batch script on n" in done.stderr
    assert "(JobLaunchFailure); it must be able to open there: /" in done.stderr
    assert ", /nosuch, " in done.stderr
    row = job_of(cluster, env, tmp_path)
    assert (row["state"], row["exit_code"]) == ("failed", 3)


def end_process(run: Run, command: str, name: str = "KILL") -> None:
    """Send a signal to one process whose command line begins so."""
    search = 'for p in /proc/[0-9]*; do case $(tr "\\0" " " <$p/cmdline) in "$0"*) '
    run.slurm(
        "sh", "-c", search + "kill -$1 ${p#/proc/} && exit 0;; esac; done; exit 1", command, name
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        lambda run: run.slurm("scancel", f"{run.number}.0"),
        lambda run: run.slurm("scancel", "--signal=KILL", f"{run.number}.0"),
        lambda run: end_process(run, f"{sys.executable} -m pyreactant run --quiet"),
        lambda run: end_process(run, "srun --kill-on-bad-exit"),
    ],
    ids=["cancelled", "killed", "supervisor killed", "srun killed"],
)
def test_a_step_that_is_killed(
    end: Callable[[Run], None], cluster: Cluster, tmp_path: Path
) -> None:
    """Its processes are lost, and Slurm's own words say why."""
    run = Run(cluster, tmp_path)
    end(run)
    code, printed, said, row = run.end()
    job = cluster.wait(run.number)
    assert (job.state, job.code, job.signal) == ("FAILED", 6, 0)
    assert (code, printed) == (6, ""), said
    assert (row["state"], row["exit_code"]) == ("failed", 6)
    assert "its processes ended without a report: s" in said
    assert "CANCELLED" in said or "Killed" in said or "srun was killed by SIGKILL" in said
    assert "lost: lost:" not in said


def test_a_plain_program_hears_of_sigterm_to_the_batch_script(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As from `--signal=B:TERM@60`: it ends as after SIGTERM to the step."""
    run = Run(cluster, tmp_path)
    run.slurm("scancel", "--batch", "--signal=TERM", str(run.number))
    code, printed, said, row = run.end()
    assert (code, printed) == (6, ""), said
    assert (row["state"], row["exit_code"]) == ("preempted", 6)
    assert "the supervisor got SIGTERM" in str(row["reason"])
    job = cluster.wait(run.number)
    assert (job.state, job.code, job.signal) == ("FAILED", 6, 0)


@pytest.mark.slow
def test_srun_that_does_not_learn_of_the_end_of_a_node(cluster: Cluster, tmp_path: Path) -> None:
    """As if n2 was cut off at the end of its task, and came back: the nodes are given back."""
    srun = tmp_path / "tools" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nPATH={PATH} srun "$@"\nexec sleep 1000\n')
    srun.chmod(0o755)
    path = f"{srun.parent}:{PATH}"
    run = Run(cluster, tmp_path, "--max-restarts=1", "--min-processes=1", PATH=path)
    (tmp_path / "end").touch()
    code, printed, said, row = run.end()
    assert (code, printed) == (0, "finished\n"), said
    assert (row["state"], row["exit_code"]) == ("done", 0)
    job = cluster.wait(run.number)
    assert (job.state, job.code) == ("COMPLETED", 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["USR1", "USR2", "ALRM"])
def test_signals_that_only_warn(name: str, cluster: Cluster, tmp_path: Path) -> None:
    """Whatever in the job has them from Slurm, the run goes on; srun does not pass on the last."""
    run = Run(cluster, tmp_path)
    for to in ("--batch", "--full", "--full"):
        run.slurm("scancel", f"--signal={name}", to, str(run.number))
    if name != "ALRM":
        until(lambda: (tmp_path / "warned").exists())
    (tmp_path / "end").touch()
    code, printed, said, row = run.end()
    assert (code, printed) == (0, "finished\n"), said
    assert (row["state"], row["exit_code"]) == ("done", 0)
    assert cluster.wait(run.number).state == "COMPLETED"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("HUP", 129), ("QUIT", 131)])
def test_signals_that_cancel_a_run_in_the_foreground(
    name: str, code: int, cluster: Cluster, tmp_path: Path
) -> None:
    """As Ctrl-C does: a CI job that is cancelled, or a lost connection, keeps no nodes busy."""
    run = Run(cluster, tmp_path)
    end_process(run, f"{sys.executable} -m pyreactant run --on", name)
    ended, printed, said, row = run.end()
    assert (ended, printed) == (code, ""), said
    assert f"cancelling the job {row['id']}" in said
    assert (row["state"], row["exit_code"]) == ("cancelled", 130)
    assert cluster.wait(run.number).state == "CANCELLED"


def test_a_run_goes_on_without_a_reader(cluster: Cluster, tmp_path: Path) -> None:
    """As on this machine; then its exit code says that nobody read the output."""
    run = Run(cluster, tmp_path)
    assert run.process.stdout
    run.process.stdout.close()
    (tmp_path / "speak").touch()
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(5)
    (tmp_path / "end").touch()
    assert run.process.wait(100) == 141
    row = job_of(cluster, run.env, tmp_path)
    assert (row["state"], row["exit_code"]) == ("done", 0)
    assert cluster.wait(run.number).state == "COMPLETED"


STATES = {
    "BOOT_FAIL": ("failed", 6, "lost: a node of the job did not boot"),
    "CANCELLED": ("cancelled", 130, "cancelled in Slurm"),
    "COMPLETED": ("done", 0, "its report could not be written"),
    "DEADLINE": ("failed", 7, "timeout: the job reached its deadline in Slurm"),
    "FAILED": ("lost", 6, "the batch script left no report (Slurm: FAILED); see "),
    "LAUNCH_FAILED": ("failed", 6, "lost: Slurm could not start the job on its nodes"),
    "NODE_FAIL": ("failed", 6, "lost: a node of the job failed"),
    "OUT_OF_MEMORY": ("failed", 6, "out of memory: Slurm ended the job"),
    "PREEMPTED": ("preempted", 6, "preempted: Slurm gave the nodes to another job"),
    "RECONFIG_FAIL": ("failed", 6, "lost: Slurm could not configure a node of the job"),
    "REVOKED": ("failed", 6, "lost: another cluster of the federation has the job"),
    "TIMEOUT": ("failed", 7, "timeout: the job reached its time limit in Slurm"),
}
"""Each state in which Slurm runs a job no more, and what becomes of a job without a report."""

REPLACED = """\
#!/bin/sh
# Slurm's own answer with another state: most need hardware that fails, or other clusters.
PATH={path} {name} "$@" |
  sed -E "s/(JobState=|\\|)COMPLETED/\\1{state}/; s/ExitCode=0:0/ExitCode={code}/"
"""


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_how_jobs_end_by_the_state_in_slurm(
    state: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's state decides without a report, and after one of a signal or that all is done."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    number = cluster.submit(["--output=/dev/null", str(script)])
    cluster.wait(number)
    tools = tmp_path / "tools"
    tools.mkdir()
    code = "0:125" if state == "OUT_OF_MEMORY" else "0:0"
    for name in ("scontrol", "squeue"):
        text = REPLACED.format(path=PATH, name=name, state=state, code=code)
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"), PATH=f"{tools}:{PATH}")
    of_signal = {"cause": "preempted", "exit_code": 6, "summary": "SIGTERM", "processes": []}
    reports = {
        "nothing": {},
        "a signal": of_signal,
        "done": {"cause": "done", "exit_code": 0, "summary": "", "processes": []},
    }
    for name, report in reports.items():
        record = create(name, "slurm", {"nodes": 1})
        record.write_status(Status("running"))
        record.write_handle({"slurm": number})
        record.run.mkdir()
        if report:
            (record.run / "report.json").write_text(json.dumps(report))
        release(record)
        asked = cluster.run([*PYREACTANT, "jobs", "result", record.id], env=env)
        shown = cluster.run([*PYREACTANT, "jobs", "status", record.id, "--json"], env=env)
        row = json.loads(shown.stdout)
        expected = STATES[state]
        if report and state in ("COMPLETED", "FAILED"):
            expected = ("done", 0, "") if name == "done" else ("preempted", 6, "preempted: SIGTERM")
        assert (row["state"], row["exit_code"]) == expected[:2], (name, row)
        assert row["reason"].startswith(expected[2]), (name, row)
        assert asked.returncode == expected[1], (name, asked)


def test_a_job_that_is_held_after_a_special_exit(cluster: Cluster, tmp_path: Path) -> None:
    """It waits, as every job that is requeued and held."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexec sleep 100\n")
    number = cluster.submit(["--output=/dev/null", str(script)])
    cluster.wait(number, until={"RUNNING"})
    cluster.run(["scontrol", "requeuehold", "State=SpecialExit", str(number)])
    cluster.wait(number, until={"SPECIAL_EXIT"})
    env = environment(XDG_STATE_HOME=str(tmp_path / "state"))
    make = "from pyreactant.runs.record import create; r = create('x', 'slurm', {}); "
    make += f"r.write_handle({{'slurm': {number}}})"
    assert cluster.run([sys.executable, "-c", make], env=env).returncode == 0
    job = job_of(cluster, env, tmp_path)
    assert (job["state"], job["reason"].partition(":")[0]) == ("queued", "special exit")
    cluster.run(["scancel", str(number)])
    assert cluster.wait(number).state == "CANCELLED"
    until(lambda: job_of(cluster, env, tmp_path)["state"] == "cancelled")
