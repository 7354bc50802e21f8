"""Output of programs: complete in the logs, shown with the process index, never blocking a run."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import environment, require
from tests.launch.runs import RUN, popen, run_script, script, until

LINES = """
import os
index = os.environ["PYREACTANT_PROCESS_INDEX"]
print("first of", index)
print("second of", index)
"""


def shown(log: str) -> list[str]:
    return sorted(line for line in log.splitlines() if not line.startswith("pyreactant:"))


def test_only_process_0_is_shown(tmp_path: Path) -> None:
    run = run_script(tmp_path, LINES, "-n", "3")
    assert shown(run.finished[0].log) == ["[0] first of 0", "[0] second of 0"]
    assert "pyreactant: 3 processes joined in" in run.finished[0].log
    assert f"pyreactant: done in {run.report['seconds']:.1f} s; logs in" in run.finished[0].log
    for index in range(3):
        assert run.log(index) == f"first of {index}\nsecond of {index}\n".encode()


def test_all_output_and_quiet(tmp_path: Path) -> None:
    run = run_script(tmp_path, LINES, "-n", "3", "--all-output", "--quiet")
    assert sorted(run.finished[0].log.splitlines()) == [
        f"[{index}] {word} of {index}" for index in range(3) for word in ("first", "second")
    ]


def test_quiet_still_says_what_failed(tmp_path: Path) -> None:
    run = run_script(tmp_path, "raise ValueError('broken')", "--quiet")
    assert "pyreactant: user: process 0 on" in run.finished[0].log
    assert "joined in" not in run.finished[0].log


def test_what_no_newline_ends_and_binary(tmp_path: Path) -> None:
    text = "import sys; sys.stdout.buffer.write(bytes(range(256)) + b'\\nno end \\xe2\\x82')"
    run = run_script(tmp_path, text)
    assert run.log(0) == bytes(range(256)) + b"\nno end \xe2\x82"
    assert "[0] no end \ufffd\npyreactant: done" in run.finished[0].log


MUCH = """
block = bytes(range(256)) * 4096
for i in range(100):
    os.write(1, block)
"""


def peak_memory(pid: int) -> int:
    """Peak memory of a process in bytes; 0 after it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def test_a_hundred_megabytes_to_a_reader_that_comes_late(tmp_path: Path) -> None:
    """The log has every byte, and the supervisor keeps only a few of them in memory."""
    with popen(tmp_path, "--quiet", script(tmp_path, "import os" + MUCH)) as run:
        assert run.stdout is not None
        time.sleep(1)
        count = peak = 0
        while data := os.read(run.stdout.fileno(), 1 << 20):
            count += len(data)
            peak = max(peak, peak_memory(run.pid))
        assert run.wait(60) == 0
    block = bytes(range(256)) * 4096
    with (tmp_path / "run" / "process-0.log").open("rb") as log:
        assert all(log.read(len(block)) == block for _ in range(100))
        assert not log.read()
    assert count > 100 << 20
    # A supervisor takes 50 MB, and up to 64 chunks wait for the reader.
    assert 0 < peak < 100 << 20


def test_a_reader_that_goes(tmp_path: Path) -> None:
    """A reader such as `head -n 1` ends early."""
    text = "for i in range(100_000): print('line', i)"
    with popen(tmp_path, "--quiet", script(tmp_path, text)) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "[0] line 0\n"
        run.stdout.close()
        assert run.wait(60) == 0
    log = (tmp_path / "run" / "process-0.log").read_text().splitlines()
    assert log == [f"line {i}" for i in range(100_000)]


PRINTED = (
    "import pathlib, sys\nfor i in range(100): sys.stdout.write('x' * (1 << 20) + '\\n')\n"
    "pathlib.Path('printed').touch()\n"
)


def test_a_reader_that_never_reads(tmp_path: Path) -> None:
    """The program goes on, and the run ends as it would; a signal ends the wait for the reader."""
    ours, theirs = os.pipe()
    try:
        run = subprocess.Popen(
            [*RUN, "--out", "run", "--", script(tmp_path, PRINTED + "sys.exit(9)")],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        until(lambda: (tmp_path / "run" / "report.json").exists())
        assert (tmp_path / "printed").exists()
        until(lambda: not (tmp_path / "run" / ".running").exists())
        while run.poll() is None:  # before it waits for the reader, signals are ignored
            run.terminate()
            time.sleep(0.2)
        assert run.returncode == 1
    finally:
        os.close(ours)
        os.close(theirs)
    assert "exit code 9" in (tmp_path / "run" / "report.txt").read_text()
    assert (tmp_path / "run" / "process-0.log").stat().st_size == 100 * ((1 << 20) + 1)


def test_a_reader_that_reads_at_the_end_gets_the_report(tmp_path: Path) -> None:
    with popen(tmp_path, script(tmp_path, PRINTED + "sys.exit(9)")) as run:
        assert run.stdout is not None
        until(lambda: (tmp_path / "run" / "report.json").exists())
        text = run.stdout.read()
        assert run.wait(60) == 1
    assert "lines of the programs are left out here" in text
    assert "\npyreactant: user: process 0 on " in text
    assert text.rstrip().endswith(f"logs and report: {tmp_path / 'run'}")


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_terminal_that_is_closed_from_the_start(closed: str, tmp_path: Path) -> None:
    program = script(tmp_path, "import sys; print(1); sys.exit(9)")
    supervisor = (
        "import sys; from pathlib import Path"
        "\nfrom pyreactant.runs.supervisor import RunOptions, supervise"
        f"\nsys.exit(supervise(RunOptions([{program!r}], folder=Path('run'))))"
    )
    argv = [sys.executable, "-c", supervisor]
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *argv],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 1
    assert (tmp_path / "run" / "process-0.log").read_text() == "1\n"
    assert "exit code 9" in (tmp_path / "run" / "report.txt").read_text()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    require(os.geteuid() == 0 and shutil.which("mount"), "mounting a small disk needs root")
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)]
    require(subprocess.run(mount, check=False).returncode == 0, "tmpfs cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def on_disk(disk: Path, text: str) -> "subprocess.CompletedProcess[str]":
    argv = [*RUN, "--out", str(disk / "run"), script(disk.parent, text)]
    settings: dict[str, Any] = {"cwd": disk.parent, "env": environment(), "text": True}
    return subprocess.run(argv, capture_output=True, check=False, timeout=60, **settings)


PRINTS = """
import os, sys
for i in range(2000):
    print("x" * 999)
"""


def test_a_full_disk_loses_the_log_and_not_the_run(disk: Path) -> None:
    (disk / "filler").write_bytes(bytes(500_000))
    ran = on_disk(disk, f"{PRINTS}os.unlink({str(disk / 'filler')!r})\nprint('ended')")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("x" * 999) == 2000
    report = (disk / "run" / "report.json").read_text()
    assert f'"log_error": "{disk}/run/process-0.log: No space left on device"' in report
    assert '"log_tail": "' in report
    assert "ended" in report
    assert f"is not complete: {disk}/run/process-0.log: No space left on device\n" in ran.stderr
    assert f"logs in {disk}/run (1 not complete)\n" in ran.stderr
    text = (disk / "run" / "report.txt").read_text()
    assert f"logs that are not complete:\n  {disk}/run/process-0.log: No space" in text


def test_a_disk_that_stays_full_loses_the_report_whole(disk: Path) -> None:
    ran = on_disk(disk, f"{PRINTS}import pyreactant as pr\npr.log(1, loss=1.0)")
    assert ran.returncode == 0, ran.stderr
    assert f"{disk}/run/report.txt: cannot be written (No space left on device)" in ran.stderr
    metrics = f"{disk}/run/metrics.jsonl: No space left on device"
    assert f"not all metrics could be written: {metrics}" in ran.stderr
    assert {p.name for p in (disk / "run").iterdir()} == {"process-0.log", "metrics.jsonl"}


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    """The run goes on with its logs, and says so."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RUN, "--out", str(tmp_path / "run"), "--", "seq", "3"],
            env=environment(PYREACTANT_PLATFORM="cpu"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0
    assert "the output of the programs cannot be written (No space left on device)" in done.stderr
    assert (tmp_path / "run" / "process-0.log").read_text() == "1\n2\n3\n"
