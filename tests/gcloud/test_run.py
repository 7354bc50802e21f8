"""Whole jobs: the real gcloud, Google's real client, real sshd, real JAX processes."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import TpuApi
from tests.harness import require, until

SECRET = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""How a run's secret looks."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Four workers, which a job's slices get in turn."""
    folder = tmp_path_factory.mktemp("cloud")
    with cloud(folder, TpuApi(workers=hosts_of), 4) as made:
        yield made


@pytest.fixture
def made(shared: Cloud, tmp_path: Path) -> Iterator[Cloud]:
    shared.folder = tmp_path
    yield shared
    shared.api.on_call = lambda when, call: None
    shared.api.faults.clear()
    assert shared.workers is not None
    for address in shared.workers.addresses:
        if address not in shared.workers.processes:
            shared.workers.start(address)
    assert shared.api.left() == [], "a test left slices behind"


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def check_no_secret(made: Cloud) -> None:
    """Results and logs, local and on the workers, do not contain a run's secret."""
    assert made.workers is not None
    places = [made.folder, *made.workers.folder.glob("home-*/pyreactant-*/[rl]*")]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if SECRET.search(path.read_bytes())]


TRAIN = f"train-{os.getpid()}.py"
"""The user's program; other runs of these tests on this machine have another."""

PROGRAM = """
import os, sys, time
how, index = sys.argv[1], int(os.environ["PYREACTANT_PROCESS_INDEX"])
if how in ("fails", "sleeps-with-jax"):
    import pyreactant as pr
    pr.initialize()
print(f"process {index} is here", flush=True)
if how == "fails" and index == 1:
    raise ValueError("the user's own mistake")
if how == "255" and index == 1:
    os._exit(255)
if how.startswith("sleeps"):
    time.sleep(120)
print("program done")
"""


def started(made: Cloud, how: str, *more: str) -> subprocess.Popen[str]:
    (made.folder / TRAIN).write_text(PROGRAM)
    options = made.run_options(script=True)
    return made.start(*options, "--out", "out", *more, "--", TRAIN, how)


def finished(made: Cloud, process: subprocess.Popen[str], seconds: float = 200) -> tuple[int, str]:
    log = made.folder / "launcher.log"
    try:
        return process.wait(seconds), log.read_text()
    except subprocess.TimeoutExpired:
        raise AssertionError(log.read_text()) from None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["fails", pytest.param("255", marks=pytest.mark.slow)])
def test_a_worker_that_fails(made: Cloud, how: str) -> None:
    """Supervisors report the process and its exception; exit code 255 is not taken for ssh's."""
    code, output = finished(made, started(made, how))
    assert code == 1, output
    found = report(made.folder / "out")
    assert (found["cause"], found["first_error"]["process"]) == ("user", 1)
    if how == "fails":
        assert "the user's own mistake" in output
        log = made.folder / "out" / "test-worker-1" / "runs" / "jax" / "process-1.log"
        assert "the user's own mistake" in log.read_text()


def worker(made: Cloud, index: int) -> str:
    """Address of a worker of the existing slice."""
    (node,) = made.api.nodes.values()
    return str(node["networkEndpoints"][index]["ipAddress"])


def worker_next(made: Cloud, index: int) -> str:
    """Address of a worker of the next slice."""
    return made.api.next_host(index)


def here(made: Cloud) -> bool:
    return "process 0 is here" in (made.folder / "launcher.log").read_text()


def wait_until_here(made: Cloud) -> None:
    try:
        until(lambda: here(made), 150)
    except AssertionError:
        raise AssertionError((made.folder / "launcher.log").read_text()) from None


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_vm_that_goes_away(made: Cloud, again: bool) -> None:
    """A VM disappears or reboots; in both cases its program is lost."""
    process = started(made, "sleeps")
    wait_until_here(made)
    assert made.workers is not None
    address = worker(made, 1)
    made.workers.stop(address)
    if again:
        made.workers.start(address)
    code, output = finished(made, process)
    assert code == 6, output
    assert "process 1" in output or "worker 1" in output


def logs_of_process_1(made: Cloud) -> set[Path]:
    """On the workers' disks, also those of earlier runs."""
    assert made.workers is not None
    return set(made.workers.folder.glob("home-*/pyreactant-*/runs/jax/process-1.log"))


@pytest.mark.slow
def test_a_program_that_hangs(made: Cloud) -> None:
    before = logs_of_process_1(made)
    process = started(made, "sleeps", "--stall-timeout", "3")
    wait_until_here(made)
    # Stopped before its first pulse, it would have the start timeout.
    until(lambda: any(log.stat().st_size for log in logs_of_process_1(made) - before), 150)
    os.kill(_program(made, 1), signal.SIGSTOP)
    code, output = finished(made, process)
    assert code == 7, output
    found = report(made.folder / "out")
    assert (found["cause"], found["first_error"]["process"]) == ("timeout", 1)


@pytest.mark.slow
def test_preemption_and_another_attempt(made: Cloud) -> None:
    process = started(made, "sleeps", "--max-restarts", "1")
    wait_until_here(made)
    name = next(iter(made.api.resources))
    copy = max(
        made.state.joinpath("jobs").glob(str(Path("*", "work", "code", TRAIN))),
        key=lambda p: p.stat().st_ctime,
    )
    copy.write_text(PROGRAM.replace("time.sleep(120)", "pass"))
    assert made.workers is not None
    made.api.suspend(name)
    for address in made.workers.addresses:
        made.workers.stop(address)
        made.workers.start(address)
    code, output = finished(made, process)
    assert code == 0, output
    assert "is SUSPENDED by Cloud TPU (preempted)" in output
    assert "trying again (1 restart left)" in output


def test_preemption_while_copying(made: Cloud) -> None:
    """VMs of a preempted slice break their connections, which is not their failure."""
    assert made.workers is not None
    address = worker_next(made, 1)
    slow = 'case "$SSH_ORIGINAL_COMMAND" in *tar*) exec sleep 60;; esac; cd "$HOME"; '
    made.workers.stop(address)
    made.workers.start(address, command=slow + 'exec bash -c "$SSH_ORIGINAL_COMMAND"')
    process = started(made, "sleeps")
    until(lambda: "copy on 2 VMs" in (made.folder / "launcher.log").read_text(), 150)
    made.api.suspend(next(iter(made.api.resources)))
    made.workers.stop(address)
    code, output = finished(made, process)
    assert code == 6, output
    found = report(made.folder / "out")
    assert (found["cause"], found["first_error"]) == ("preempted", None)
    assert "is SUSPENDED by Cloud TPU (preempted)" in found["summary"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_an_ended_launcher_ends_its_programs(made: Cloud, number: int) -> None:
    process = started(made, "sleeps-with-jax")
    wait_until_here(made)
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert any(b"worker.sh" in line for line in lines)
    assert not any(SECRET.search(line) for line in lines)
    process.send_signal(number)
    code, output = finished(made, process)
    assert code == 128 + number, output
    assert report(made.folder / "out")["cause"] == "interrupted"
    until(lambda: not _programs(made), 60)


@pytest.mark.slow
def test_a_killed_launcher_ends_its_programs(made: Cloud) -> None:
    """Programs end when their input closes, and gc deletes the slices."""
    process = started(made, "sleeps-with-jax")
    wait_until_here(made)
    process.kill()
    process.wait()
    until(lambda: not _programs(made), 60)
    assert made.run("gc")[0] == 0


def _programs(made: Cloud) -> list[int]:
    """Process ids of the programs that supervisors on these workers started."""
    assert made.workers is not None
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            here = (entry / "cwd").readlink().is_relative_to(made.workers.folder)
            if here and b"pyreactant.process.supervised" in words:
                pids.append(int(entry.name))
    return pids


def _program(made: Cloud, index: int) -> int:
    """Process id of the program with that index."""
    name = f"PYREACTANT_PROCESS_INDEX={index}".encode()
    pids = [
        pid
        for pid in _programs(made)
        if name in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
    assert len(pids) == 1
    return pids[0]


def test_a_worker_that_runs_nothing(made: Cloud) -> None:
    """ssh exits with 0 without running the command; without a success line, that is a failure."""
    assert made.workers is not None
    address = worker_next(made, 1)
    made.workers.stop(address)
    made.workers.start(address, command="exit 0")
    code, output = made.run(*made.run_options(), "--out", "out", "--reach-timeout", "2")
    made.workers.stop(address)
    assert code == 6, output
    assert "test worker 1 (reach) ran nothing: ssh succeeded, but the command reported no" in output


@pytest.mark.slow
def test_a_worker_that_cannot_be_reached(made: Cloud) -> None:
    assert made.workers is not None
    made.workers.stop(worker_next(made, 1))
    code, output = made.run(*made.run_options(), "--out", "out", "--reach-timeout", "2")
    assert code == 6, output
    assert "test worker 1 (reach) cannot be reached, or the connection broke" in output


def test_disk_full_on_a_worker(made: Cloud) -> None:
    """The error has tar's message and names the worker."""
    assert made.workers is not None
    address = worker_next(made, 0)
    made.workers.stop(address)
    made.workers.start(address, command='ulimit -f 8; cd "$HOME"; bash -c "$SSH_ORIGINAL_COMMAND"')
    code, output = made.run(*made.run_options(), "--out", "out")
    made.workers.stop(address)
    assert code == 6, output
    assert "test worker 0 (copy)" in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "there"], 2, "the folder 'there' exists; choose another with --out"),
        (["--", "no.py"], 2, "there is no program 'no.py' in"),
        (["--backends", "torch"], 2, "unknown backend 'torch'; known are: jax"),
        (["--max-restarts", "-1"], 2, "error: --max-restarts must be 0 or more, got -1"),
        (["--slices", "0"], 2, "error: --slices must be a whole number from 1 to 512, got 0"),
        (["--reach", "telnet"], 2, "--reach must be gcloud or ssh, got 'telnet'"),
        (["--transport", "pigeon"], 2, "--transport must be one of rest, grpc, got 'pigeon'"),
    ],
)
def test_refused_before_anything_is_asked_for(
    made: Cloud, arguments: list[str], code: int, message: str
) -> None:
    (made.folder / "there").mkdir()
    before = len(made.api.calls)
    got, output = made.run(*made.run_options(script="--" in arguments), *arguments)
    assert (got, len(made.api.calls)) == (code, before), output
    assert message in output


def test_no_gcloud(made: Cloud, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    settings = dict(made.settings)
    made.settings["PATH"] = str(tools)
    try:
        code, output = made.run(*made.run_options(gcloud=True), "--out", "out")
    finally:
        made.settings.update(settings)
    assert code == 3, output
    assert "gcloud is not in PATH; install it" in output


def test_a_key_with_a_passphrase_and_no_agent(made: Cloud) -> None:
    """The check fails before the slices cost anything."""
    key = Path(made.settings["HOME"], ".ssh", "google_compute_engine")
    key.parent.mkdir(exist_ok=True)
    kept = {p: p.read_bytes() for p in key.parent.glob("google_compute_engine*")}
    for path in kept:
        path.unlink()
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", key], check=True)
        before = len(made.api.calls)
        code, output = made.run(*made.run_options(gcloud=True), "--out", "out")
        assert (code, len(made.api.calls)) == (3, before), output
        assert "has a passphrase and no agent holds it; run: eval $(ssh-agent) && ssh-add" in output
    finally:
        for path in key.parent.glob("google_compute_engine*"):
            path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
            path.chmod(0o600)


def test_ssh_to_slices_that_are_not_there(made: Cloud) -> None:
    options = made.run_options()
    small = ["--topology", "v5p-16", *options[options.index("--reach") :]]
    port = next(flag for flag in options if flag.startswith("--ssh-flag=-p"))
    code, output = made.run("ssh", *small, port, "--", "true")
    assert code == 8, output
    assert "there are no slices test in " in output
    assert "see which there are: pyreactant tpu list" in output


def test_ssh_and_logs_while_it_runs(made: Cloud) -> None:
    process = started(made, "sleeps")
    wait_until_here(made)
    options = made.run_options()
    small = ["--topology", "v5p-16", *options[options.index("--reach") :]]
    port = next(flag for flag in options if flag.startswith("--ssh-flag=-p"))
    code, output = made.run("ssh", *small, port, "--process", "1", "--", "echo", "a  b;", "$HOME")
    assert (code, output) == (0, "a  b; $HOME\n")
    show = ["bash", "-c", "cat pyreactant-*/runs/jax/process-1.log"]
    code, output = made.run("ssh", *small, port, "--process", "1", "--", *show)
    assert code == 0, output
    assert "process 1 is here" in output
    code, output = made.run("ssh", *small, port, "--process", "2", "--", "true")
    assert (code, "there is no worker 2: test has 2 workers" in output) == (8, True)
    process.terminate()
    assert finished(made, process)[0] == 128 + signal.SIGTERM


def test_run_sh(made: Cloud) -> None:
    """The script runs with a user's file of exports."""
    require(os.access("/bin/bash", os.X_OK), "bash")
    from tests.harness import REPOSITORY

    script = REPOSITORY / "gcloud" / "run.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    exports = made.folder / "mine.env"
    text = (REPOSITORY / "gcloud" / "single-slice.env").read_text()
    for given, ours in (  # a slice of two VMs
        ("<project id>", "my-project"),
        ("v6e-16", "v5p-16"),
        ("v2-alpha-tpuv6e", "v2-alpha-tpuv5"),
    ):
        assert given in text
        text = text.replace(given, ours)
    exports.write_text(text)
    python = made.argv()[0]
    done = subprocess.run(
        [script, exports, *made.run_options(gcloud=True)[3:], "--out", "out"],
        cwd=made.folder,
        env={**made.settings, "PYREACTANT_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=120,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "done: matmul: right on jax, against an independent NumPy reference" in output
    assert "sharded-single-slice is deleted" in done.stderr
    out = made.folder / "out"
    assert report(out)["cause"] == "done"
    checked = json.loads((out / "crosscheck.json").read_text())
    assert checked["passed"]
    assert checked["runs"][0]["num_processes"] == 2
    for index in range(2):
        (logs,) = out.glob(f"*-worker-{index}/runs/jax")
        assert [path.name for path in logs.glob("process-*.log")] == [f"process-{index}.log"]
        assert (logs / "report.json").exists() == (index == 0)
    check_no_secret(made)
