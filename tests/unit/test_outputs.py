"""Outputs that a user names: what is written where, and what is refused."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreactant import FileError
from pyreactant.base.errors import InvalidArgumentError, PyReactantError
from pyreactant.base.files import plain_json
from pyreactant.base.outputs import check_outputs, marked, write_output
from tests.harness import require

OURS = plain_json(marked("matmul report", {"m": 1}))
PAGE = '<!doctype html>\n<meta charset="utf-8">\n<meta name="generator" content="pyreactant 0.1">\n'
FOREIGN = ("x,y\n1,2\n", '{"pyreactant": 1}', "<!doctype html>\n<p>pyreactant", "\x93NUMPY", " ")


def test_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new"
    check_outputs({"html": path}, overwrite=False)
    assert list(tmp_path.iterdir()) == []
    write_output("a\udcff\n", path, overwrite=False)
    assert path.read_bytes() == b"a\\udcff\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("before", ["", OURS, PAGE])
def test_what_may_be_replaced(before: str, tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_text(before)
    path.chmod(0o640)
    write_output("new", path, overwrite=False)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("before", FOREIGN)
def test_what_is_replaced_only_with_overwrite(before: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text(before)
    for action in (
        lambda: check_outputs({"html": path}, overwrite=False),
        lambda: write_output("new", path, overwrite=False),
    ):
        with pytest.raises(FileError, match=r"data.*: exists already, and is no report of pyre"):
            action()
    assert path.read_text() == before
    check_outputs({"html": path}, overwrite=True)
    assert path.read_text() == before
    write_output("new", path, overwrite=True)
    assert path.read_text() == "new"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "report"
    target.write_text(OURS)
    (tmp_path / "one").symlink_to("there/report")
    link = tmp_path / "two"
    link.symlink_to("one")
    write_output("new", link, overwrite=False)
    assert link.is_symlink()
    assert (tmp_path / "one").is_symlink()
    assert target.read_text() == "new"
    assert not target.is_symlink()
    with pytest.raises(FileError, match="exists already"):
        write_output("newer", link, overwrite=False)
    assert {p.name for p in tmp_path.rglob("*")} == {"there", "report", "one", "two"}


def make_nowhere(folder: Path) -> Path:
    (folder / "out").symlink_to("missing")
    return folder / "out"


def make_loop(folder: Path) -> Path:
    (folder / "out").symlink_to("back")
    (folder / "back").symlink_to("out")
    return folder / "out"


def make_socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(folder):
        made.bind("out")
    return folder / "out"


def make_file_as_folder(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file" / "out"


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nowhere": (make_nowhere, "is a link to 'missing', which does not exist; create that file"),
    "loop": (make_loop, r"cannot be written \(Too many levels of symbolic links\); name another"),
    "socket": (make_socket, "is a socket, which cannot be opened as a file; name another"),
    "folder": (lambda folder: folder, "is a folder; name a file"),
    "no folder": (lambda folder: folder / "no" / "out", "its folder does not exist; create it"),
    "file": (make_file_as_folder, r"cannot be written \(Not a directory\)"),
    "long": (lambda folder: folder / ("o" * 300), r"cannot be written \(File name too long\)"),
    "null byte": (lambda folder: folder / "a\0", r"cannot be the name of a file \(.*null"),
    "kernel": (lambda folder: Path("/proc/out"), r"/proc/out.* cannot be written \("),
    "closed": (lambda folder: Path("/dev/fd/987"), r"cannot be written \(Bad file descriptor\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_written(name: str, tmp_path: Path) -> None:
    make, message = BAD[name]
    path = make(tmp_path)
    before = sorted((p, os.lstat(p).st_mode) for p in tmp_path.rglob("*"))
    for overwrite in (False, True):
        with pytest.raises(FileError, match=message):
            check_outputs({"html": path}, overwrite=overwrite)
        with pytest.raises(FileError, match=message):
            write_output("new", path, overwrite=overwrite)
    assert sorted((p, os.lstat(p).st_mode) for p in tmp_path.rglob("*")) == before


def test_a_descriptor_for_reading() -> None:
    with open(os.devnull) as file, pytest.raises(FileError, match="is open for reading only"):
        check_outputs({"html": Path(f"/dev/fd/{file.fileno()}")}, overwrite=False)


def node(path: Path, *kind: str) -> None:
    require(os.geteuid() == 0, "root, to make a device")
    made = subprocess.run(["mknod", path, *kind], check=False)
    require(made.returncode == 0, "devices can be made here")


def test_a_device_stays_one(tmp_path: Path) -> None:
    null, full, disk = tmp_path / "null", tmp_path / "full", tmp_path / "disk"
    node(null, "c", "1", "3")
    node(full, "c", "1", "7")
    node(disk, "b", "7", "200")
    check_outputs({"html": null, "report": null}, overwrite=False)  # takes both
    write_output("new", null, overwrite=False)
    assert stat.S_ISCHR(null.stat().st_mode)
    check_outputs({"html": full}, overwrite=False)
    with pytest.raises(FileError, match=r"cannot be written \(No space left on device\)"):
        write_output("new", full, overwrite=False)
    assert stat.S_ISCHR(full.stat().st_mode)
    with pytest.raises(FileError, match="exists already"):
        write_output("new", disk, overwrite=False)
    assert stat.S_ISBLK(disk.stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_fifo_and_a_pipe_are_written_through(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    check_outputs({"html": fifo}, overwrite=False)  # without a reader, and without waiting for it
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        check_outputs({"html": fifo}, overwrite=False)  # the reader sees no end
        try:
            write_output("new", fifo, overwrite=False)
            assert reader.communicate(timeout=60)[0] == b"new"
        finally:
            reader.kill()  # it still waits if nothing was written there
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    read, write = os.pipe()
    write_output("new", Path(f"/dev/fd/{write}"), overwrite=False)
    assert os.read(read, 9) == b"new"
    os.close(read)
    with pytest.raises(FileError, match=r"cannot be written \(Broken pipe\)"):
        write_output("new", Path(f"/proc/self/fd/{write}"), overwrite=False)
    os.close(write)


def test_an_open_file_goes_on_where_it_is(tmp_path: Path) -> None:
    """/dev/stdout is often a file, which has the command's other output, too."""
    path, link = tmp_path / "log", tmp_path / "link"
    with path.open("w") as file:
        file.write("before\n")
        file.flush()
        link.symlink_to(f"/dev/fd/{file.fileno()}")
        write_output("new\n", link, overwrite=False)
        file.seek(0, os.SEEK_END)
        file.write("after\n")
    assert path.read_text() == "before\nnew\nafter\n"
    assert link.is_symlink()


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    one, link, hard = tmp_path / "one", tmp_path / "link", tmp_path / "hard"
    check_outputs({"html": one, "report": None}, overwrite=False)
    same = "report=.*: html=.* goes to the same file; name another one"
    for existing in (False, True):
        if existing:
            one.touch()
            link.symlink_to("one")
            hard.hardlink_to(one)
        for other in (tmp_path / "." / "one", link, hard) if existing else (tmp_path / "one",):
            with pytest.raises(InvalidArgumentError, match=same):
                check_outputs({"html": one, "report": other}, overwrite=True)
    with pytest.raises(InvalidArgumentError, match="html"):
        check_outputs({"html": Path("-"), "report": Path("/dev/stdout")}, overwrite=True)


def message(action: Callable[[], None]) -> str:
    """The message of the error that an action raises; "" if it raises none."""
    try:
        action()
    except FileError as error:
        return str(error)
    return ""


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=()), min_size=1))
def test_any_name(name: str) -> None:
    """A name of a file is either written or refused with one printable line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        said = message(lambda: write_output("new", path, overwrite=False))
        if said:
            assert said.isprintable()
            assert list(Path(folder).iterdir()) == []
        else:
            assert path.read_text() == "new"
            assert len(list(Path(folder).iterdir())) == 1


@pytest.mark.parametrize("length", [50, 51, 255])
def test_the_longest_name(length: int, tmp_path: Path) -> None:
    write_output("new", tmp_path / ("o" * length), overwrite=False)
    assert [len(p.name) for p in tmp_path.iterdir()] == [length]


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_nobody(action: Callable[[], None]) -> str:
    """The message of the error that an action raises in a process of another user."""
    require(os.geteuid() == 0, "root, to become another user")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            action()
            os.write(write, b"done")
        except PyReactantError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def test_as_another_user() -> None:
    with open_folder() as folder:
        (folder / "ours").write_text(OURS)
        (folder / "secret").mkdir(0o700)
        (folder / "writable").mkdir()
        (folder / "writable").chmod(0o777)
        (folder / "writable" / "locked").write_text(OURS)
        os.mkfifo(folder / "fifo", 0o600)

        def said(name: str) -> str:
            return as_nobody(lambda: check_outputs({"html": folder / name}, overwrite=True))

        assert "new': cannot be written (Permission denied)" in said("new")
        assert "must be writable, but is not" in said("ours")
        assert "cannot be written (Permission denied)" in said("secret/new")
        assert "must be writable, but is not" in said("writable/locked")
        assert "must be writable, but is not" in said("fifo")
        assert said("writable/new") == "done"
        new = folder / "writable" / "new"
        assert as_nobody(lambda: write_output("new", new, overwrite=False)) == "done"
        assert (new.stat().st_uid, new.read_text()) == (65534, "new")


def test_a_read_only_disk(tmp_path: Path) -> None:
    """Not even root can write there, and permissions do not say so."""
    require(os.geteuid() == 0, "root, to mount a disk")
    code = (
        "import sys; from pathlib import Path\n"
        "from pyreactant.base.outputs import check_outputs\n"
        "try: check_outputs({'html': Path(sys.argv[1])}, overwrite=False)\n"
        "except Exception as error: print(error)\n"
    )
    mount = f'mount -t tmpfs -o ro tmpfs "{tmp_path}" && exec "$0" "$@"'
    argv = [sys.executable, "-c", code, str(tmp_path / "out")]
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, *argv], capture_output=True, text=True, check=False
    )
    require(ran.returncode == 0, "disks can be mounted here")
    assert "cannot be written (Read-only file system)" in ran.stdout
