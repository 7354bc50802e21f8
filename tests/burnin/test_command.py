"""`pyreactant burnin` as users start it: right devices, wrong ones, and runs that end early."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness import environment, free_port, pyreactant, run, until
from tests.jobs.disk import small_disk

from .hook import Fault
from .hook import environment as with_fault

BURNIN = ["burnin", "--platform", "cpu", "--size", "48"]
TWO = ["--processes", "2", "--devices-per-process", "1"]
KEY = {"PYREACTANT_SECRET": "a secret of more than sixteen characters"}
RECORD = "pyreactant-runs/*/burnin-record.jsonl"


def burnin(folder: Path, *options: str, fault: Fault | None = None) -> Any:
    wrong = {} if fault is None else with_fault(fault, environment()["PYTHONPATH"])
    return pyreactant(*BURNIN, *options, folder=folder, timeout=280, **KEY, **wrong)


def check(folder: Path, *options: str) -> Any:
    return pyreactant("burnin", "check", "burnin.json", *options, folder=folder, **KEY)


@contextlib.contextmanager
def started(folder: Path, *options: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A burn-in that goes on; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pyreactant", *BURNIN, *options],
        cwd=folder,
        env=environment(**KEY, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def two_supervisors(
    folder: Path, *options: str, **settings: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """A burn-in as with srun: a command for each process, in the folders 0 and 1."""
    address = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(2):
            (folder / str(index)).mkdir()
            own = {
                "PYREACTANT_NUM_PROCESSES": "2",
                "PYREACTANT_COORDINATOR_ADDRESS": address,
                "PYREACTANT_PROCESS_INDEX": str(index),
                **settings,
            }
            words = [*options, "--devices-per-process", "1"]
            processes.append(stack.enter_context(started(folder / str(index), *words, **own)))
        yield processes


def with_mark(mark: str) -> list[int]:
    """Processes whose environment has the mark of a test."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def certificate(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "burnin.json").read_text())
    return data


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a burn-in without a fault."""
    folder = tmp_path_factory.mktemp("right")
    ended = burnin(folder, *TWO, "--minutes", "0.1", "--html", "burnin.html", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == certificate(folder)
    return folder


def test_a_certificate_and_a_page(right: Path) -> None:
    made = certificate(right)
    states = [f["state"] for f in made["findings"] if f["kind"] == "device"]
    assert len(states) == 2
    assert {*states} <= {"passed", "suspicious"}  # the machine may be busy
    assert made["versions"]["jax"]
    assert made["hmac"]
    assert "Devices, processes and links" in (right / "burnin.html").read_text()
    accepted = check(right, "--max-age", "24h")
    assert " of 2 devices passed in " in accepted.stdout
    assert "not seen: errors that need more than" in accepted.stdout
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert json.loads(check(right, "--json").stdout) == made


def test_what_check_refuses(right: Path, tmp_path: Path) -> None:
    old = check(right, "--max-age", "0.001s")
    assert old.returncode == 3
    assert "must have ended within the last 0.001s, and is" in old.stderr
    text = (right / "burnin.json").read_text()
    (tmp_path / "burnin.json").write_text(text.replace('"device"', '"process"', 1))
    edited = check(tmp_path)
    assert edited.returncode == 2
    assert "error: burnin.json: was changed after it was sealed" in edited.stderr


def test_a_wrong_device_ends_with_5(tmp_path: Path) -> None:
    wrong = burnin(tmp_path, *TWO, "--minutes", "0.05", fault=Fault("flip", process=1, every=3))
    assert wrong.returncode == 5, wrong.stderr
    text = " ".join(wrong.stdout.split())
    assert " of 2 devices passed" in text
    assert f"device 1 (process 1, host {socket.gethostname()}): FAILED: products of" in text
    refused = check(tmp_path)
    assert (refused.returncode, refused.stdout) == (5, wrong.stdout)
    everything = check(tmp_path, "--exclude-file", "exclude")
    assert everything.returncode == 5  # no other host is left
    assert (tmp_path / "exclude").read_text() == f"{socket.gethostname()}\n"


def test_a_run_that_requires_a_burn_in(right: Path, tmp_path: Path) -> None:
    command = ["run", "--platform", "cpu", "--quiet", "--out", str(tmp_path / "logs")]

    def echo(*options: str) -> Any:
        words = ["--require-burnin", str(right / "burnin.json"), *options, "--", "echo", "began"]
        return pyreactant(*command, *words, **KEY)

    old = echo("--burnin-age", "0.001s")
    assert (old.returncode, old.stdout) == (3, "")
    assert "must have ended within the last 0.001s" in old.stderr
    elsewhere = echo("--on", "slurm")
    assert (elsewhere.returncode, elsewhere.stdout) == (2, "")
    assert "--require-burnin is for a run in the foreground here" in elsewhere.stderr
    accepted = echo()
    assert (accepted.returncode, accepted.stdout) == (0, "[0] began\n"), accepted.stderr


@pytest.mark.slow
def test_a_killed_process_leaves_a_partial_certificate(tmp_path: Path) -> None:
    fault = Fault("kill", process=1, dtype="uint32", ndim=1, after=1)
    lost = burnin(tmp_path, *TWO, "--minutes", "5", fault=fault)
    assert lost.returncode == 6, lost.stderr
    assert "PARTIAL: process 1 " in " ".join(lost.stdout.split())
    made = certificate(tmp_path)
    assert "process 1 " in made["partial"]
    assert made["ran"]


@pytest.mark.slow
def test_a_device_that_hangs_in_a_collective(tmp_path: Path) -> None:
    """It is named within the time, and what was finished before is certified."""
    fault = Fault("hang", process=1, dtype="int32", ndim=1, after=5)
    options = [*TWO, "--minutes", "5", "--stall-timeout", "10s"]
    hung = burnin(tmp_path, *options, fault=fault)
    assert hung.returncode == 7, hung.stderr
    made = certificate(tmp_path)
    assert "process 1 on " in made["partial"]
    assert "did not begin operation " in made["partial"]
    assert "process 0 waits" in made["partial"].replace(f" on {socket.gethostname()}", "")
    passed = [f["name"] for f in made["findings"] if f["kind"] == "device"]
    assert len(passed) == 2
    assert "products of float32" in made["ran"]


PHASES = {
    "before the first round": "pyreactant-runs/*/process-1.log",
    "within rounds": RECORD,
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_launcher_that_is_killed_leaves_no_process(tmp_path: Path, phase: str) -> None:
    mark = f"burnin-{uuid.uuid4().hex}"
    with started(tmp_path, *TWO, "--minutes", "10", TEST_MARK=mark):
        until(lambda: [*tmp_path.glob(PHASES[phase])])
    until(lambda: not with_mark(mark))
    assert not (tmp_path / "burnin.json").exists()
    assert phase != "within rounds" or [*tmp_path.glob(RECORD)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--devices-per-process", "2"), TWO], ids=["one", "two"])
def test_ctrl_c_certifies_what_was_finished(tmp_path: Path, options: Sequence[str]) -> None:
    """A process that waits for the other within the runtime ends, too."""
    with started(tmp_path, "--minutes", "10", *options) as process:
        until(lambda: [*tmp_path.glob(RECORD)] or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert "--grace" not in error
    assert "PARTIAL: " in out
    assert certificate(tmp_path)["partial"]


@pytest.mark.slow
def test_supervisors_of_a_launcher(tmp_path: Path) -> None:
    """The first of both writes the certificate."""
    with two_supervisors(tmp_path, "--minutes", "0.05") as processes:
        ended = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    assert " of 2 devices passed in " in ended[0][0]
    assert ended[1][0] == ""
    assert len(certificate(tmp_path / "0")["hosts"]) == 2
    assert [*(tmp_path / "1").iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 0])
def test_a_host_that_leaves(tmp_path: Path, lost: int) -> None:
    """The head goes on to certify what was finished; without the head nobody does."""
    mark = f"burnin-{uuid.uuid4().hex}"
    with two_supervisors(tmp_path, "--minutes", "10", TEST_MARK=mark) as processes:
        until(lambda: [*tmp_path.glob(f"0/{RECORD}")])
        processes[lost].kill()
        out, error = processes[1 - lost].communicate(timeout=240)
    assert processes[1 - lost].returncode == 6, error
    until(lambda: not with_mark(mark))
    if lost == 0:
        assert not [*tmp_path.glob("*/burnin.json")]
        return
    assert "PARTIAL: " in out
    assert certificate(tmp_path / "0")["ran"]


def test_a_mesh_that_is_not_of_all_devices(tmp_path: Path) -> None:
    refused = burnin(tmp_path, *TWO, "--mesh", "2x4")
    assert (refused.returncode, refused.stdout) == (2, "")
    said = "--mesh must be of all 2 devices of the burn-in, and 2x4 has 8"
    assert said in " ".join(refused.stderr.split())
    assert "no round was finished, so there is no certificate" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_minutes_that_are_too_short_for_all_rounds(tmp_path: Path) -> None:
    """On one device, which has no links."""
    short = burnin(tmp_path, "--devices-per-process", "1", "--minutes", "0.0001")
    assert short.returncode == 0, short.stderr
    made = certificate(tmp_path)
    assert made["partial"].startswith("the time was too short for products of ")
    assert made["partial"].endswith(" more; give more --minutes")
    text = " ".join(short.stdout.split())
    assert " s; PARTIAL: the time was too short for products of " in text
    assert "links to other hosts, rounds that did not run: products of" in text


@pytest.mark.slow
@pytest.mark.parametrize("out", ["../kept.json", "burnin.json"])
def test_a_disk_that_is_full_within_rounds(tmp_path: Path, out: str) -> None:
    """A certificate is kept where there is space, and printed in any case."""
    fill = f"""cd "$0"
        (until ls {RECORD}; do sleep 0.1; done; cat /dev/zero >full) >/dev/null 2>&1 &
        "$@"; code=$?; wait; exit $code"""
    words = [*BURNIN, *TWO, "--minutes", "5", "--out", out]
    argv = [*small_disk(tmp_path / "disk", 1), "sh", "-c", fill, str(tmp_path / "disk")]
    ended = run(
        [*argv, sys.executable, "-m", "pyreactant", *words],
        cwd=tmp_path,
        env=environment(**KEY),
        timeout=280,
    )
    assert ended.returncode == 2, ended.stderr
    assert "PARTIAL: no space is left on the run's disk" in " ".join(ended.stdout.split())
    assert "burnin-record.jsonl: cannot be written (No space left on device)" in ended.stderr
    assert "Traceback" not in ended.stderr
    kept = tmp_path / "kept.json"
    if kept.exists():
        assert json.loads(kept.read_text())["ran"]
    else:
        assert f"--out {out}: cannot be written (No space left on device); name" in ended.stderr
    assert kept.exists() == (out == "../kept.json")


def test_an_own_file_is_replaced_if_the_user_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("mine")
    refused = burnin(tmp_path, "--minutes", "0.0001", "--out", "mine.json")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "mine.json: " in refused.stderr
    assert "--overwrite" in refused.stderr
    replaced = burnin(tmp_path, "--minutes", "0.0001", "--out", "mine.json", "--overwrite")
    assert replaced.returncode == 0, replaced.stderr
    assert json.loads((tmp_path / "mine.json").read_text())["partial"]


PLANS = {
    "slurm --nodes 4 --gpus-per-node 8 --account proj01": "--nodes=4 --ntasks-per-node=1",
    "ray --hosts 2": "--timeout=660 --stall-timeout=120 -- -m pyreactant.runs.worker work ../out",
    "tpu --topology v6e-16 --project project-1 --zone us-east5-a": "v6e-16",
    "kubernetes --topology v6e-16 --image IMAGE": "kind: JobSet",
}
"""Options of each place, and what `--dry-run` says of them."""


@pytest.mark.parametrize("options", PLANS)
def test_plans_at_places(tmp_path: Path, options: str) -> None:
    words = ["burnin", "--on", *options.split(), "--dry-run"]
    planned = pyreactant(*words, folder=tmp_path, **KEY)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert planned.stdout.startswith("# pyreactant.check.burnin.member:burned_in on ")
    assert PLANS[options] in planned.stdout
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--processes", "2", "--on", "slurm"],
            "--processes is an option of a run in the foreground on this machine, and not of --on "
            "slurm",
        ),
        (["--nodes", "2"], "--nodes is an option of --on slurm or --on kubernetes, and not of"),
        (["--on", "cloud"], "a target must be one of local, slurm, tpu, ray, kubernetes, got"),
        (["--memory", "1"], "--memory must be 0 to 0.9, got 1; leave it out"),
        (["--minutes", "0"], "--minutes must be above 0 and at most 10000, got 0"),
        (["--mesh", "2y4"], "cannot read mesh '2y4'; write sizes as 2x4"),
        (["--size", "4"], "--size must be 8 to 65536, got 4; leave it out"),
        (["--processes", "0"], "--processes must be 1 to 4096, got 0"),
        (["--out", "absent/b.json"], "--out absent/b.json"),
        (
            ["check", "absent.json"],
            "absent.json: cannot be read (No such file or directory); name the certificate of a "
            "burn-in, or run: pyreactant burnin",
        ),
    ],
)
def test_bad_lines(tmp_path: Path, options: list[str], said: str) -> None:
    ended = pyreactant("burnin", *options, folder=tmp_path, **KEY)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
