"""`pyreactant crosscheck` and `compare` as a user runs them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from tests import harness
from tests.crosscheck.runs import change_blocks, copy
from tests.harness import environment, until
from tests.harness import pyreactant as run

SMALL = ["-n", "1", "--devices-per-process", "2", "--platform", "cpu", "--backends", "jax"]


def test_crosscheck(tmp_path: Path) -> None:
    words, state = ["crosscheck", "transpose", "row_sum"], str(tmp_path / "state")
    ran = run(*words, "--size", "8", *SMALL, folder=tmp_path, XDG_STATE_HOME=state)
    assert ran.returncode == 0, ran.stderr
    (job,) = (tmp_path / "state" / "pyreactant" / "jobs").glob("*/job.json")
    assert json.loads(job.read_text())["what"] == "crosscheck --backends jax transpose row_sum"
    assert "transpose" in ran.stdout
    assert "right exactly" in ran.stdout
    assert "right on jax, against an independent NumPy reference" in ran.stdout
    assert "jax 2 of 2: row_sum: compiled in" in ran.stderr
    assert "Gloo" not in ran.stdout + ran.stderr
    (out,) = (tmp_path / "pyreactant-crosschecks").iterdir()
    assert {p.name for p in out.iterdir()} == {"request.json", "jax", "report.json", "report.html"}
    assert {"process-0.json", "process-0.log", "shards-0.npz", "report.json"} <= {
        p.name for p in (out / "jax").iterdir()
    }
    report = json.loads((out / "report.json").read_text())
    assert report["passed"]
    assert [row["program"] for row in report["rows"]] == ["transpose", "row_sum"]


def test_what_is_wrong_is_exit_code_5(tmp_path: Path) -> None:
    ran = run(
        "crosscheck",
        "tests.crosscheck.user_programs:wrong",
        "--size",
        "8",
        "--json",
        "--html",
        "page.html",
        "--out",
        "out",
        *SMALL,
        folder=tmp_path,
    )
    assert ran.returncode == 5, ran.stderr
    assert "Traceback" not in ran.stderr
    report = json.loads(ran.stdout)
    assert report["rows"][0]["results"][0]["outcome"] == "wrong"
    assert "Did not pass" in (tmp_path / "page.html").read_text()


def test_list() -> None:
    ran = run("crosscheck", "--list")
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) >= 21
    assert "matmul " in ran.stdout


def test_request(tmp_path: Path) -> None:
    """A request is for processes that another launcher starts, as in main.sbatch."""
    ran = run(
        "crosscheck",
        "matmul",
        "--size",
        "8",
        "--spec",
        "x,y;x,y",
        "--mesh",
        "2x1",
        "--request",
        "request.json",
        folder=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    member = ["-m", "pyreactant.crosscheck", "request.json", "out"]
    done = harness.run(
        [sys.executable, *member],
        env=environment(PYREACTANT_PLATFORM="cpu", PYREACTANT_NUM_CPU_DEVICES="2"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    ran = run("compare", "out", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "n=8 float32 x,y x,y" in ran.stdout


def test_compare(runs: Path, tmp_path: Path) -> None:
    changed = copy(runs, tmp_path)
    words = ["compare", str(runs / "jax"), str(runs / "standin")]
    words += ["--html", "c.html", "--report", "c.json"]
    for _ in range(2):  # a requeued job of main.sbatch compares again
        ran = run(*words, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "c.json").read_text())["passed"]
    record = (changed / "jax" / "report.json").read_bytes()
    taken = run(*words[:3], "--report", str(changed / "jax" / "report.json"), folder=tmp_path)
    assert taken.returncode == 2
    assert "report.json: exists already, and is no report of pyreactant" in taken.stderr
    assert (changed / "jax" / "report.json").read_bytes() == record
    assert "right on jax and standin" in ran.stdout
    assert "page: c.html" in ran.stdout
    assert (tmp_path / "c.html").exists()

    def change(blocks: dict[str, object]) -> None:
        blocks["matmul/output 0/0"] = blocks["matmul/output 0/1"]

    change_blocks(changed / "standin", 0, change)
    ran = run("compare", str(runs / "jax"), str(changed / "standin"), folder=tmp_path)
    assert ran.returncode == 5
    assert "DIFFER" in ran.stdout
    shutil.rmtree(changed / "standin" / ".." / "jax")
    ran = run("compare", str(changed / "jax"))
    assert ran.returncode == 2
    assert "no such folder" in ran.stderr


BAD = [
    ([], "--all", "matmul", 2, "give --all or PROGRAM, not both"),
    (["--quick"], "--thorough", "", 2, "give --quick or --thorough, not both"),
    ([], "--mesh", "two", 2, "cannot read mesh 'two'"),
    ([], "--spec", "x;;", 2, "cannot read partition spec"),
    ([], "--html", "no/page.html", 2, "--html no/page.html: its folder does not exist"),
    ([], "--out", "taken", 2, "--out taken: exists and is not empty; name another folder"),
    ([], "--backends", "absent", 2, "unknown backend 'absent'; known are: auto, jax"),
    ([], "-n", "0", 2, "--processes must be 1 or more, got 0"),
    ([], "-n", "-1", 2, "--processes must be 1 or more, got -1"),
    (["matmull"], "--seed", "1", 2, "did you mean 'matmul'"),
]


@pytest.mark.parametrize(("programs", "option", "value", "code", "message"), BAD)
def test_bad_input(
    programs: list[str], option: str, value: str, code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    ran = run("crosscheck", *programs, option, *filter(None, [value]), folder=tmp_path)
    assert ran.returncode == code, ran.stderr
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("backends", ["reactant", "jax,reactant"])
def test_reactant_without_julia(backends: str, tmp_path: Path) -> None:
    """Before any run, exit code 3 and how to install Julia; "auto" uses the available runtimes."""
    settings = {
        "PYTHON_JULIACALL_EXE": str(tmp_path / "julia"),
        "PYTHON_JULIACALL_PROJECT": str(tmp_path),
    }
    ran = run("crosscheck", "--backends", backends, "--size", "8", folder=tmp_path, **settings)
    assert ran.returncode == 3, ran.stderr
    assert "backend 'reactant' was requested but is not available: " in ran.stderr
    named = "PYTHON_JULIACALL_EXE must name an executable" in ran.stderr
    assert named or "pip install 'pyreactant[reactant]', then: pyreactant setup" in ran.stderr
    assert ran.stdout == ""
    assert not (tmp_path / "pyreactant-crosschecks").exists()


def _left(folder: Path) -> list[str]:
    """Command lines of processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def _stopped(number: int, folder: Path) -> tuple[int, str]:
    """Exit code and message of a cross-check that gets a signal while its second program runs."""
    slow = "tests.crosscheck.user_programs:slow"
    words = ["crosscheck", "transpose", slow, "--quick", "--size", "8", *SMALL]
    process = subprocess.Popen(
        [sys.executable, "-m", "pyreactant", *words, "--out", str(folder / "out")],
        env=environment(),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        record = folder / "out" / "jax" / "process-0.json"
        until(lambda: record.exists() and json.loads(record.read_text())["running"] == slow)
        assert len(_left(folder)) >= 3
        os.killpg(process.pid, number)  # as a terminal does
        _, message = process.communicate(timeout=60)
    finally:
        process.kill()
    assert _left(folder) == []
    return process.returncode, message


def test_ctrl_c_writes_a_report_on_the_finished_programs(tmp_path: Path) -> None:
    code, message = _stopped(signal.SIGINT, tmp_path)
    assert code == 130, message
    last = message.splitlines()[-1]
    folder = tmp_path / "out"
    assert last == f"interrupted; finished on jax: transpose; report and records: {folder}"
    report = pr.Report.from_json(folder / "report.json")
    (row,) = report.rows
    assert (row.program, row.results[0].outcome) == ("transpose", "right")
    assert (folder / "report.html").exists()


def test_sigterm_leaves_nothing_running(tmp_path: Path) -> None:
    assert _stopped(signal.SIGTERM, tmp_path)[0] == 143
