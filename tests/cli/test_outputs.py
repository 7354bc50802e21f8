"""Options that name a file to write, in real commands: nothing is destroyed."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer.core

from tests import harness
from tests.cli.tree import LEAVES
from tests.harness import environment, require
from tests.harness import pyreactant as run
from tests.jobs.disk import small_disk

# Each command with an option that names a file to write; FILE is that file.
WRITERS = {
    "matmul --out": "matmul --out FILE",
    "matmul --report": "matmul --report FILE",
    "crosscheck --html": "crosscheck --html FILE",
    "crosscheck --request": "crosscheck --request FILE",
    "compare --html": "compare none --html FILE",
    "compare --report": "compare none --report FILE",
    "run --html": "run --html FILE -- touch ran",
    "preflight --hlo": "preflight --topology v6e-1 --hlo FILE",
    "preflight --html": "preflight --topology v6e-1 --html FILE",
    "burnin run --html": "burnin run --html FILE",
    "burnin run --out": "burnin run --out FILE",
    "burnin check --exclude-file": "burnin check none --exclude-file FILE",
    "plan --html": "plan --topology v6e-1 --size 8 --html FILE",
}


def test_all_options_that_write_a_file_are_here() -> None:
    found = {
        f"{name} {option.opts[0]}"
        for name, command in LEAVES.items()
        for option in command.params
        if isinstance(option, typer.core.TyperOption)
        and "write" in (option.help or "").lower()
        and "to this" in (option.help or "")
    }
    assert found == set(WRITERS)
    for name in found:
        params = LEAVES[name.rpartition(" ")[0]].params
        assert any("--overwrite" in option.opts for option in params)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_with_other_content_is_refused_before_the_work(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.arange(4))
    before = (tmp_path / "data.npy").read_bytes()
    option = name.split()[-1]
    ran = run(*WRITERS[name].replace("FILE", "data.npy").split(), folder=tmp_path)
    assert ran.returncode == 2, ran.stderr
    wanted = f"{option} data.npy: exists already, and is no report of pyreactant; give another name"
    assert f"{wanted}, or --overwrite" in ran.stderr
    assert ran.stdout == ""
    assert [p.name for p in tmp_path.iterdir()] == ["data.npy"]
    assert (tmp_path / "data.npy").read_bytes() == before


# Root without the right to pass over permissions, as every other user.
AS_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if not os.geteuid() else []

DENIED = {
    "folder": "cannot be written (Permission denied); name another file",
    "report": "must be writable, but is not; name another file",
    "secret": "must be writable, but is not; name another file",
    "link": "must be writable, but is not; name another file",
    "write-only": "exists already, and is no report of pyreactant",
}


@pytest.mark.parametrize("what", DENIED)
def test_what_another_user_may_not_write(what: str, tmp_path: Path) -> None:
    """As root all of this can be written."""
    require(not AS_USER or shutil.which("setpriv"), "setpriv")
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").write_text('{"format": "pyreactant request"}')
    (tmp_path / "link").symlink_to("file")
    modes = {"report": 0o444, "secret": 0, "link": 0o444, "write-only": 0o200}
    (tmp_path / "file").chmod(modes.get(what, 0o644))
    (tmp_path / "closed").chmod(0o555)
    file = {"folder": "closed/file", "link": "link"}.get(what, "file")
    argv = [sys.executable, "-m", "pyreactant", "crosscheck", "softmax", "--request", file]
    ran = harness.run([*AS_USER, *argv], env=environment(), cwd=tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert f"error: --request {file}: {DENIED[what]}" in ran.stderr
    assert ran.stdout == ""
    assert (tmp_path / "file").stat().st_mode & 0o777 == modes.get(what, 0o644)
    (tmp_path / "file").chmod(0o644)
    assert (tmp_path / "file").read_text() == '{"format": "pyreactant request"}'
    assert (tmp_path / "link").is_symlink()
    assert not list((tmp_path / "closed").iterdir())


def test_a_pipe_that_only_another_user_reads(tmp_path: Path) -> None:
    require(not AS_USER or shutil.which("setpriv"), "setpriv")
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        (tmp_path / "fifo").chmod(0o200)
        argv = [sys.executable, "-m", "pyreactant", "crosscheck", "softmax", "--request", "fifo"]
        ran = harness.run([*AS_USER, *argv], env=environment(), cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert json.loads(os.read(reader, 2**16))["format"] == "pyreactant crosscheck request"
    finally:
        os.close(reader)


@pytest.mark.parametrize("word", ["--", "--quiet", "-n"])
def test_the_next_option_is_no_file(word: str, tmp_path: Path) -> None:
    for option in ("--html", "--out"):
        ran = run("run", option, word, "sh", "-c", "touch ran", folder=tmp_path)
        assert ran.returncode == 2
        assert f"error: {option} has no value: {word!r} follows" in ran.stderr
        assert f"or write ./{word} for a file of that name" in ran.stderr
        assert list(tmp_path.iterdir()) == []
    assert run("run", "-q", "--html", f"./{word}", "--", "true", folder=tmp_path).returncode == 0
    assert "<html" in (tmp_path / word).read_text()


BAD = [
    ("matmul --out c.npy --report c.npy", "--report c.npy: --out c.npy goes to the same file"),
    ("compare a --html ./x --report x", "--report x: --html x goes to the same file"),
    ("matmul --report - --json", "give --report - or --json, not both"),
    ("plan --topology v6e-1 --size 8 --overwrite", "--overwrite needs --html; give both"),
    ("crosscheck --out o --html o/report.json", "--html o/report.json: the report as JSON goes"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_outputs_that_contradict_each_other(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    ran = run(*line.split(), folder=tmp_path)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert ran.stdout == ""
    assert [p.name for p in tmp_path.rglob("*")] == ["o"]


def test_an_output_to_the_file_of_standard_output(tmp_path: Path) -> None:
    """The shell has emptied it, and the command prints there, too."""
    with (tmp_path / "page").open("w") as file:
        argv = [sys.executable, "-m", "pyreactant", "run", "--html", "page", "--", "touch", "ran"]
        ran = subprocess.run(
            argv, cwd=tmp_path, env=environment(), stdout=file, stderr=subprocess.PIPE, text=True
        )
    assert ran.returncode == 2
    assert "--html page: standard output goes to the same file; name another one" in ran.stderr
    assert not (tmp_path / "ran").exists()


def test_a_product_and_its_report_go_where_their_names_lead(tmp_path: Path) -> None:
    """Through a link and into a device, as root too; a second time without a word."""
    (tmp_path / "there").mkdir()
    (tmp_path / "report").symlink_to("there/report.json")
    (tmp_path / "there" / "report.json").touch()
    os.mkfifo(tmp_path / "fifo")
    words = ["matmul", "--repeat", "0", "--report", "report", "--out", "fifo"]
    for _ in range(2):
        with subprocess.Popen(["cat", "fifo"], cwd=tmp_path, stdout=subprocess.PIPE) as reader:
            try:
                ran = run(*words, folder=tmp_path)
                assert ran.returncode == 0, ran.stderr
                product = reader.communicate(timeout=60)[0]
            finally:
                reader.kill()  # it still waits if nothing was written there
        (tmp_path / "c.npy").write_bytes(product)
        assert np.load(tmp_path / "c.npy").shape == (8, 8)
        assert (tmp_path / "report").is_symlink()
        assert json.loads((tmp_path / "there" / "report.json").read_text())["m"] == 8
        assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 4


def test_standard_output(tmp_path: Path) -> None:
    """It has the document and nothing else."""
    ran = run("matmul", "--report", "-", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["check"]["passed"]
    assert "reference case" in ran.stderr
    words = ["run", "--html", "/dev/stdout", "--out", "logs", "--", "echo", "said"]
    ran = run(*words, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("<!doctype html>")
    assert ran.stdout.rstrip().endswith("</html>")
    assert "[0] said" in ran.stderr.splitlines()
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]


def test_a_page_is_replaced_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "page\n.html").write_text("mine")
    words = ("run", "--html", "page\n.html", "--overwrite", "--", "echo")
    for line in (words, [word for word in words if word != "--overwrite"]):
        ran = run(*line, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert "</html>" in (tmp_path / "page\n.html").read_text()


@pytest.mark.parametrize(
    "line", ["matmul --repeat 0 --report /dev/full", "run --html /dev/full -- true"]
)
def test_what_fails_after_the_work_is_named_by_its_option(line: str, tmp_path: Path) -> None:
    """Nothing says before that /dev/full takes no byte."""
    ran = run(*line.split(), folder=tmp_path)
    wanted = "--report" if "matmul" in line else "--html"
    assert ran.returncode == 2
    assert f"{wanted} /dev/full: cannot be written (No space left on device)" in ran.stderr


def test_a_full_disk_is_found_before_the_work(tmp_path: Path) -> None:
    """On a disk that is only full later, the old file stays whole."""
    disk = tmp_path / "disk"
    wrapped = small_disk(disk, 1)
    code = 'cat /dev/zero > "$0/full" 2>/dev/null; shift; "$@"; code=$?; ls "$0"; exit $code'
    words = ["run", "--html", str(disk / "page"), "--out", "logs", "--", "touch", "ran"]
    argv = [*wrapped, "sh", "-c", code, str(disk), "-", sys.executable, "-m", "pyreactant", *words]
    ran = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    require("unshare" not in ran.stderr, "mount namespaces")
    assert ran.returncode == 2, ran.stderr
    assert "page: cannot be written (No space left on device); name another" in ran.stderr
    assert ran.stdout.split() == ["full"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize("room", ["full at once", "full later"])
def test_a_disk_without_room_for_a_cross_check(room: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    wrapped = small_disk(disk, 1)
    keep = 0 if room == "full at once" else 80_000
    fill = f'head -c $((1024*1024-{keep})) /dev/zero > "$0/full" 2>/dev/null'
    code = f'{fill}; shift; "$@"; code=$?; ls "$0"; exit $code'
    words = ["crosscheck", "matmul", "--size=256", "--quick", "--processes=1", "--backends=jax"]
    words += ["--devices-per-process=1", "--platform=cpu", "--out", f"{disk}/out"]
    argv = [*wrapped, "sh", "-c", code, str(disk), "-", sys.executable, "-m", "pyreactant", *words]
    ran = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    require("unshare" not in ran.stderr, "mount namespaces")
    assert ran.returncode == 2, ran.stderr
    assert "out: its disk has no space left; free some there, or name another folder" in ran.stderr
    assert "--out" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout.split() == (["full"] if room == "full at once" else ["full", "out"])
