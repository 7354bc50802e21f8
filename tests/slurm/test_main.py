"""`sbatch slurm/main.sbatch` on a real Slurm: cross-check, programs, failures, preemption."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.crosscheck.runs import change_blocks
from tests.harness import REPOSITORY, environment
from tests.launch.runs import FAULTY
from tests.slurm.cluster import Cluster, Job

MAIN = str(REPOSITORY / "slurm" / "main.sbatch")
STEPPING = str(Path(__file__).with_name("stepping.py"))


SECRETS = (
    "MY_TOKEN",
    "GITHUB_PAT",
    "SSHPASS",
    "PASSPHRASE",
    "MYSQL_PWD",
    "NVIDIA_API_KEY",
    "SLURM_JWT_KEY",
    "JAX_PASSWORD",
)


def settings(**more: str) -> dict[str, str]:
    usual = {
        "PYREACTANT_PYTHON": sys.executable,
        "PYREACTANT_PLATFORM": "cpu",
        "PYREACTANT_NUM_CPU_DEVICES": "2",
        "PYREACTANT_SIZE": "256",
    }
    return environment(**{**usual, **more})


def run(
    cluster: Cluster, folder: Path, *arguments: str, before: Sequence[str] = (MAIN,), **more: str
) -> tuple[Job, str, Path]:
    """Submit from this folder and wait; return the job, its output and its output folder."""
    number = cluster.submit([*before, *arguments], env=settings(**more), cwd=folder)
    job = cluster.wait(number, timeout=200)
    printed = (folder / f"pyreactant-{number}.out").read_text()
    return job, printed, folder / "pyreactant-runs" / f"job-{number}"


def report(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "report.json").read_text()))


def test_the_command_of_the_readme(cluster: Cluster, tmp_path: Path) -> None:
    """It cross-checks; the verdict, the results and what is kept about the job."""
    (command,) = re.findall("^sbatch .*", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    sbatch, *words = shlex.split(command.replace("slurm/main.sbatch", shlex.quote(MAIN)))
    assert sbatch == "sbatch"
    job, printed, output = run(
        cluster,
        tmp_path,
        before=words,
        http_proxy="http://user:hunter2@127.0.0.1:9",
        **dict.fromkeys(SECRETS, "hunter2"),
        DATABASE_URL="postgres://user:hunter2@db/x",
        JULIA_PKG_SERVER="https://user:hunter2@julia/",
        PYREACTANT_MESH="x=4",
        PYREACTANT_SPEC="x,None",
        LD_PRELOAD="",
    )
    assert (job.state, job.code) == ("COMPLETED", 0), printed
    assert "matmul: right on jax, against an independent NumPy reference" in printed
    assert "[0] crosscheck: matmul: compiled in" in printed
    found = json.loads((output / "report.json").read_text())
    (run_of_jax,), (row,) = found["runs"], found["rows"]
    assert (run_of_jax["num_processes"], len(run_of_jax["devices"])) == (2, 4)
    assert (row["problem"]["size"], row["problem"]["mesh"]["axis_names"]) == (256, ["x"])
    assert row["problem"]["in_specs"][0][0] == "x"
    with np.load(output / "jax" / "shards-1.npz") as blocks:
        assert blocks["matmul/output 0/2"].shape == (64, 256)
    assert report(output / "jax")["cause"] == "done"
    assert (output / "jax" / "process-1.log").exists()
    provenance = {p.name: p.read_text() for p in (output / "provenance").iterdir()}
    assert provenance["nodes"] == "n1\nn2\n"
    assert "PYREACTANT_MESH=x=4" in provenance["environment"]
    assert "hunter2" not in "".join(provenance.values())
    assert not re.search("(?m)^(SSH|HOME|DATABASE|SLURM_JWT)", provenance["environment"])
    assert {"git", "program", "versions"} < set(provenance)
    assert "git.diff" not in provenance
    modes = {p.stat().st_mode & 0o777 for p in (output / "provenance").iterdir()}
    assert (modes, (output / "provenance").stat().st_mode & 0o777) == ({0o600}, 0o700)
    assert f"JobId={job.fields['JobId']}" in provenance["job"]
    assert "numpy==" in provenance["packages"]
    assert not list(output.glob(".secret*"))


ALLOCATIONS = {
    "GPUs of a task": (["--ntasks=1", "--gpus-per-task=1"], ["--nodes=2"], set()),
    "GPUs of a node": (["--gpus-per-node=2", "--gpu-bind=closest"], ["--nodes=1"], set()),
    "memory": (
        ["--ntasks=1", "--mem-per-cpu=10"],
        ["--nodes=1", "--mem=2000"],
        {"SLURM_MEM_PER_NODE"},
    ),
    "memory of a node": (["--mem=1000"], ["--nodes=1", "--mem-per-cpu=9"], {"SLURM_MEM_PER_CPU"}),
    "tasks": (["--ntasks=6", "--ntasks-per-node=3"], ["--nodes=2"], set()),
}
OF_ALLOCATIONS = {
    *("SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_NODE", "SLURM_GPU_BIND", "SLURM_GPUS"),
    *("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE"),
}


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ALLOCATIONS)
def test_a_job_that_is_submitted_inside_an_allocation(
    cluster: Cluster, tmp_path: Path, allocation: str
) -> None:
    """It is as if it was submitted outside, from the allocation's shell or from a step."""
    outer, inner, expected = ALLOCATIONS[allocation]
    numbers = []
    program = ["sh", "-c", "env | grep ^SLURM_"]
    for before in ([], ["srun", "--overlap", "--ntasks=1", "--nodes=1"]):
        sbatch = ["sbatch", "--parsable", *inner, "--cpus-per-task=1", MAIN, *program]
        argv = ["salloc", "--quiet", *outer, *before, *sbatch]
        ran = cluster.run(argv, env=settings(PYREACTANT_BACKENDS="jax"), cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        numbers.append(int(ran.stdout.split(";")[0]))
    for number in numbers:
        job = cluster.wait(number, timeout=200)
        printed = (tmp_path / f"pyreactant-{number}.out").read_text()
        assert (job.state, job.code) == ("COMPLETED", 0), printed
        logs = [*tmp_path.glob(f"pyreactant-runs/job-{number}/jax/process-*.log")]
        assert len(logs) == int(inner[0][-1]), printed
        kept = {line.partition("=")[0] for log in logs for line in log.read_text().splitlines()}
        assert kept & OF_ALLOCATIONS == expected, printed


def test_a_job_keeps_what_it_asked_for_itself(cluster: Cluster, tmp_path: Path) -> None:
    inner = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--gpus-per-task=1"]
    program = ["sh", "-c", "env | grep ^SLURM_"]
    sbatch = [*inner, "--mem-per-cpu=9", "--gpu-bind=closest", MAIN, *program]
    number = cluster.submit(sbatch, env=settings(PYREACTANT_BACKENDS="jax"), cwd=tmp_path)
    assert cluster.wait(number, timeout=200).code == 0
    log = tmp_path / "pyreactant-runs" / f"job-{number}" / "jax" / "process-1.log"
    kept = {line.partition("=")[0] for line in log.read_text().splitlines()}
    assert kept & OF_ALLOCATIONS == {"SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_MEM_PER_CPU"}


def test_a_job_that_a_task_of_an_array_submits(cluster: Cluster, tmp_path: Path) -> None:
    """It is no task of that array, nor a restart, nor a process of another run."""
    inner = ["sbatch", "--parsable", "--nodes=1", "--cpus-per-task=1", MAIN, "true"]
    script = tmp_path / "script"
    script.write_text(
        "#!/bin/sh\nexport SLURM_RESTART_COUNT=3 PYREACTANT_PROCESS_INDEX=1 JAX_PROCESS_ID=1\n"
        f"export PYREACTANT_NUM_PROCESSES=2 JAX_NUM_PROCESSES=2\n{shlex.join(inner)} >number\n"
    )
    array = cluster.submit(
        ["--array=4", str(script)], env=settings(PYREACTANT_BACKENDS="jax"), cwd=tmp_path
    )
    cluster.wait(array)
    number = int((tmp_path / "number").read_text())
    job = cluster.wait(number, timeout=200)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert (job.state, job.code) == ("COMPLETED", 0), printed
    assert f"job {number} (restart 0)" in printed
    assert (tmp_path / "pyreactant-runs" / f"job-{number}" / "jax" / "report.json").exists()


@pytest.mark.slow
def test_runs_and_cross_checks_that_are_submitted_inside_an_allocation(
    cluster: Cluster, tmp_path: Path
) -> None:
    check = ["crosscheck", "--on", "slurm", "--backends=jax", "--size=8", "--cpus-per-task=1"]
    argv = [sys.executable, "-m", "pyreactant", *check, "--nodes=2", "--platform=cpu"]
    outer = ["salloc", "--quiet", "--ntasks=1", "--gpus-per-task=1"]
    ran = cluster.run([*outer, *argv], env=settings(), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    number = int(ran.stdout.split()[2].rstrip(";"))
    job = cluster.wait(number, timeout=200)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert (job.state, job.code) == ("COMPLETED", 0), printed
    (tmp_path / "program.py").write_text("print('it runs')\n")
    options = ["--on", "slurm", "--nodes=2", "--platform=cpu"]
    argv = [sys.executable, "-m", "pyreactant", "run", *options, "--", "program.py"]
    more = {"XDG_STATE_HOME": str(tmp_path / "state")}
    ran = cluster.run([*outer, *argv], env=settings(**more), cwd=tmp_path, timeout=200)
    assert (ran.returncode, ran.stdout) == (0, "it runs\n"), ran


@pytest.mark.slow
def test_a_cross_check_that_fails_is_a_failed_job(cluster: Cluster, tmp_path: Path) -> None:
    """Though its processes ended well."""
    check = ["crosscheck", "--on", "slurm", "--backends=jax", "--cpus-per-task=1", "--nodes=1"]
    wrong = ["--platform=cpu", "--size=63", "--mesh=x=2,y=2"]
    env = settings(XDG_STATE_HOME=str(tmp_path / "state"))

    def pyreactant(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "pyreactant", *arguments]
        return cluster.run(argv, env=env, cwd=tmp_path, timeout=200)

    number = int(pyreactant(*check, *wrong).stdout.split()[2].rstrip(";"))
    job = cluster.wait(number, timeout=200)
    assert (job.state, job.code) == ("FAILED", 2)
    (row,) = json.loads(pyreactant("jobs", "list", "--json").stdout)
    assert (row["state"], row["exit_code"]) == ("failed", 2)
    assert f"the cross-check ended with exit code 2; see {tmp_path}/" in row["reason"]
    result = pyreactant("jobs", "result", row["id"])
    assert result.returncode == 2
    assert f"{row['id']} on slurm: failed: the cross-check ended with exit code 2" in result.stderr


def test_no_runtime_on_the_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """The job fails and says how to get one; it does not run nothing and end well."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules |= dict.fromkeys(('jax', 'juliacall'))\n"
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    job, printed, _ = run(cluster, tmp_path, PYTHONPATH=path)
    assert (job.state, job.code) == ("FAILED", 3), printed
    assert "no runtime is available: the package jax is not installed; run python -m" in printed


def test_no_verdict_on_what_an_older_job_left(cluster: Cluster, tmp_path: Path) -> None:
    """The step fails because its folder is taken; the older records must not be called right."""
    older = tmp_path / "out" / "jax"
    older.mkdir(parents=True)
    (older / "process-0.json").write_text("{}")
    of_older = {"cause": "done", "exit_code": 0, "summary": "", "seconds": 1.0, "job": "0"}
    (older / "report.json").write_text(json.dumps(of_older))
    later = time.time() + 1e6  # as if it ended while the other job began
    os.utime(older / "report.json", (later, later))
    job, printed, _ = run(cluster, tmp_path, PYREACTANT_OUTPUT="out", PYREACTANT_BACKENDS="jax")
    assert (job.state, job.code) == ("FAILED", 2), printed
    assert "/out/jax' exists and is not empty; name another with --out" in printed
    assert "== no verdict: no step of this job wrote a report" in printed
    assert "right" not in printed
    status = [sys.executable, "-m", "pyreactant", "jobs", "status", job.fields["JobId"], "--json"]
    shown = json.loads(cluster.run(status, env=settings(), cwd=tmp_path).stdout)
    assert (shown["state"], shown["runs"]) == ("FAILED", {})


@pytest.mark.slow
def test_two_runtimes_are_compared(cluster: Cluster, tmp_path: Path) -> None:
    """On two programs; JAX under another name is the stand-in for the second runtime."""
    stand_in = tmp_path / "sitecustomize.py"
    stand_in.write_text(
        "import sys\n"
        "if 'pyreactant' in ' '.join(sys.orig_argv):\n"
        "    from pyreactant.arrays.runtimes import runtime\n"
        "    runtime.BACKENDS['standin'] = runtime.BACKENDS['jax']\n"
    )
    job, printed, output = run(
        cluster,
        tmp_path,
        PYTHONPATH=f"{tmp_path}{os.pathsep}{REPOSITORY}",
        PYREACTANT_PROGRAMS="transpose row_sum",
        PYREACTANT_SIZE="16",
    )
    assert (job.state, job.code) == ("COMPLETED", 0), printed
    assert "2 programs: right on jax and standin" in printed
    assert "they agree with each other" in printed
    rows = json.loads((output / "report.json").read_text())["rows"]
    assert [(row["program"], row["problem"]["size"]) for row in rows] == [
        ("transpose", 16),
        ("row_sum", 16),
    ]

    # If the runtimes differ, the job reports it.
    def add_one(blocks: dict[str, np.ndarray]) -> None:
        blocks["transpose/output 0/1"][3, 5] += 1

    change_blocks(output / "standin", 0, add_one)
    verdict = [sys.executable, "-m", "pyreactant", "compare", "jax", "standin"]
    done = cluster.run(verdict, env=settings(), cwd=output)
    assert done.returncode == 5
    assert "transpose, jax and standin: DIFFER" in done.stdout


def test_an_unknown_program(cluster: Cluster, tmp_path: Path) -> None:
    job, printed, _ = run(cluster, tmp_path, PYREACTANT_PROGRAMS="transposed")
    assert (job.state, job.code) == ("FAILED", 2)
    assert "no program 'transposed': did you mean 'transpose'?" in printed


@pytest.mark.slow
def test_what_a_program_finds(cluster: Cluster, tmp_path: Path) -> None:
    """A program, named by argument or PYREACTANT_PROGRAM, gets its arguments unchanged."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, pyreactant as pr\n"
        "pr.initialize()\n"
        "print(sys.argv[1:], pr.num_processes(), len(pr.devices()), pr.backend_name(),\n"
        "      os.environ['SRUN_CPUS_PER_TASK'], 'http_proxy' in os.environ,\n"
        "      os.environ.get('PYREACTANT_SECRET_FILE'))\n"
    )
    proxy = {"http_proxy": "http://127.0.0.1:9"}
    job, printed, _ = run(cluster, tmp_path, str(program), "two words", "-x", **proxy)
    assert (job.state, job.code) == ("COMPLETED", 0), printed
    assert "[0] ['two words', '-x'] 2 4 jax 72 False None" in printed
    program.write_text("import sys\nprint(sys.argv[1:])\n")
    job, printed, _ = run(cluster, tmp_path, PYREACTANT_PROGRAM=f"{program} -y", **proxy)
    assert "[0] ['-y']\n" in printed


def test_found_from_a_copy_with_spaces(cluster: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "my slurm"
    shutil.copytree(REPOSITORY / "slurm", copy)
    job, printed, _ = run(
        cluster,
        tmp_path,
        "-m",
        "this",
        before=[str(copy / "main.sbatch")],
        PYREACTANT_SLURM_FOLDER=str(copy),
        PYREACTANT_OUTPUT=str(tmp_path / "my out"),
    )
    assert (job.state, job.code) == ("COMPLETED", 0), printed
    assert report(tmp_path / "my out" / "jax")["cause"] == "done"


def test_a_python_without_pyreactant(cluster: Cluster, tmp_path: Path) -> None:
    job, printed, _ = run(cluster, tmp_path, PYREACTANT_PYTHON="/usr/bin/false")
    assert (job.state, job.code) == ("FAILED", 3)
    assert "/usr/bin/false cannot import pyreactant; run make matmul" in printed


def test_a_killed_process_is_named(cluster: Cluster, tmp_path: Path) -> None:
    job, printed, output = run(
        cluster, tmp_path, FAULTY, "kill", "1", "warm", FAULT_EVENT=str(tmp_path / "event")
    )
    assert (job.state, job.code) == ("FAILED", 6), printed
    assert "lost: process 1 on n2 was killed by SIGKILL" in printed
    assert report(output / "jax")["exit_code"] == 6


@pytest.mark.slow
def test_a_process_that_raises_is_named(cluster: Cluster, tmp_path: Path) -> None:
    job, printed, _ = run(
        cluster, tmp_path, FAULTY, "raise", "0", "cold", FAULT_EVENT=str(tmp_path / "event")
    )
    assert (job.state, job.code) == ("FAILED", 1), printed
    assert "user: process 0 on n1 raised ValueError: broken here" in printed
    assert "the time limit" not in printed


def _wait_for(path: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def _stories(folder: Path) -> list[list[str]]:
    return [(folder / f"story-{i}").read_text().splitlines() for i in range(2)]


@pytest.mark.slow
def test_requeue(cluster: Cluster, tmp_path: Path) -> None:
    """All processes save at the same step and resume there in the next allocation."""
    number = cluster.submit([MAIN, STEPPING, str(tmp_path), "100"], env=settings(), cwd=tmp_path)
    for process in range(2):
        _wait_for(tmp_path / f"alive-{process}")
    cluster.requeue(number)
    job = cluster.wait(number, timeout=120)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert (job.state, job.code, job.fields["Restarts"]) == ("COMPLETED", 0, "1"), printed
    step = (tmp_path / "step-0").read_text()
    story = ["restart 0 from 0", f"stopped at {step}", f"restart 1 from {step}", "done after 100"]
    assert _stories(tmp_path) == [story, story], printed
    output = tmp_path / "pyreactant-runs" / f"job-{number}" / "jax"
    assert report(output)["cause"] == "preempted"
    assert report(output / "restart-1")["cause"] == "done"


@pytest.mark.parametrize(
    "words",
    [pytest.param(["--signal=USR1"], marks=pytest.mark.slow), ["--batch", "--signal=TERM"]],
)
def test_warned_of_the_time_limit(words: list[str], cluster: Cluster, tmp_path: Path) -> None:
    """The tasks get SIGUSR1, as from --signal=USR1@90, or the script alone SIGTERM."""
    env = settings(PYREACTANT_MAX_REQUEUES="1")
    number = cluster.submit([MAIN, STEPPING, str(tmp_path), "100"], env=env, cwd=tmp_path)
    for process in range(2):
        _wait_for(tmp_path / f"alive-{process}")
    assert cluster.run(["scancel", *words, str(number)]).returncode == 0
    cluster.wait(number, until={"PENDING"})
    time.sleep(1.1)  # as in Cluster.requeue
    cluster.run(["scontrol", "update", f"JobId={number}", "StartTime=now"])
    job = cluster.wait(number, timeout=120)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert (job.state, job.code, job.fields["Restarts"]) == ("COMPLETED", 0, "1"), printed
    assert "== preempted: requeue 1 of 1" in printed
    first, second = _stories(tmp_path)
    assert first == second
    assert [line.split()[0] for line in first] == ["restart", "stopped", "restart", "done"]


def test_a_job_ends_after_the_runtime_at_which_its_script_got_sigterm(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A program that has no preemption in it hears SIGTERM, and no further step begins."""
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys, time\nfrom pathlib import Path\n"
        "def told(*_):\n    Path('told').touch()\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, told)\nPath('up').touch()\ntime.sleep(1000)\n"
    )
    env = settings(PYREACTANT_BACKENDS="jax,reactant")
    argv = ["--nodes=1", "--cpus-per-task=1", MAIN, str(program)]
    number = cluster.submit(argv, env=env, cwd=tmp_path)
    _wait_for(tmp_path / "up")
    assert cluster.run(["scancel", "--batch", "--signal=TERM", str(number)]).returncode == 0
    job = cluster.wait(number, timeout=120)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert (job.state, job.code) == ("FAILED", 6), printed
    assert (tmp_path / "told").exists()
    assert "preempted: the supervisor got SIGTERM" in printed
    assert "== reactant" not in printed
