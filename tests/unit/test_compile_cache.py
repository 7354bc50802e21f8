"""The folder of compiled programs: whole entries only, of this user only, and not too many."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyreactant.base.errors import FileError
from pyreactant.process.compile_cache import (
    LIMIT,
    CompileCache,
    check_owner,
    kind_of,
    pack,
    remove_old,
    size_of,
    unpack,
)
from tests.harness import environment

KIND = "jax-1-cpu-x"
PROGRAM = bytes(range(256)) * 3


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, told: list[str]) -> CompileCache:
    return CompileCache(tmp_path / "cache", KIND, told.append)


def only(cache: CompileCache) -> Path:
    (entry,) = cache.folder.iterdir()
    return entry


def test_a_program_is_kept(cache: CompileCache, told: list[str]) -> None:
    assert cache.read("jit_f-1") is None
    cache.write("jit_f-1", PROGRAM)
    assert cache.read("jit_f-1") == PROGRAM
    assert cache.read("jit_f-2") is None
    assert only(cache).name.endswith(".program")
    assert size_of(cache.folder.parent) == (1, only(cache).stat().st_size)
    assert told == []


def test_damage_at_every_byte_is_seen() -> None:
    entry = pack(PROGRAM, "key")
    assert unpack(entry, "key") == PROGRAM
    for at in range(len(entry)):
        changed = bytearray(entry)
        changed[at] ^= 1
        assert unpack(bytes(changed), "key") is None, at
        assert unpack(entry[:at], "key") is None, at
    assert unpack(entry + b"\0", "key") is None


@pytest.mark.parametrize("entry", [b"", b"of another program", pack(PROGRAM, "another key")])
def test_a_foreign_entry_is_dropped_and_told_once(
    cache: CompileCache, told: list[str], entry: bytes
) -> None:
    cache.write("key", PROGRAM)
    path = only(cache)
    for _ in range(2):
        path.write_bytes(entry)
        assert cache.read("key") is None
        assert not path.exists()
    assert told == [
        "an entry of the compile cache is dropped, and its program compiled again: "
        f"{path} (it is damaged, or no entry of this program)"
    ]


def test_the_folder_of_another_user_is_refused(
    cache: CompileCache, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(cache.folder, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(FileError, match=r"belongs to user \d+, whose programs would run here"):
        CompileCache(cache.folder.parent, KIND, told.append)


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_that_others_may_write_is_refused(cache: CompileCache, mode: int) -> None:
    check_owner(cache.folder)
    cache.folder.chmod(mode)
    with pytest.raises(FileError, match=r"can be written by other users.*chmod go-w"):
        check_owner(cache.folder)


def test_what_is_no_folder_is_refused(tmp_path: Path, told: list[str]) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="must be a folder that this process can make or read"):
            CompileCache(root, KIND, told.append)


def test_full_disk(tmp_path: Path) -> None:
    """A limit on file size simulates a full disk: the write fails half-way."""
    code = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from pyreactant.process.compile_cache import CompileCache\n"
        "cache = CompileCache(Path('cache'), 'jax-1', print)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n"
        "for key in ('a', 'b'): cache.write(key, bytes(1000))\n"
        "assert cache.read('a') is None and not list(cache.folder.iterdir())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code],  # or it writes half .pyc files
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [
        "the compile cache cache/jax-1 cannot be written (File too large); what is compiled now is "
        "compiled again at the next start"
    ]


def test_sixteen_processes_write_one_entry_at_once(tmp_path: Path, cache: CompileCache) -> None:
    """Whatever a reader finds is whole; no temporary file stays."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pyreactant.process.compile_cache import CompileCache\n"
        "cache = CompileCache(Path(sys.argv[1]), sys.argv[2], sys.exit)\n"
        "print(flush=True)\n"
        "sys.stdin.readline()\n"
        "for _ in range(50):\n"
        "    cache.write('key', bytes(range(256)) * 3)\n"
        "    assert cache.read('key') == bytes(range(256)) * 3\n"
    )
    argv = [sys.executable, "-c", code, str(cache.folder.parent), KIND]
    writers = [
        subprocess.Popen(argv, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(16)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for writer in writers:
            writer.communicate(b"\n", timeout=120)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert [writer.returncode for writer in writers] == [0] * 16
    assert cache.read("key") == PROGRAM
    assert len([*cache.folder.iterdir()]) == 1


def test_what_was_not_used_for_longest_is_removed(cache: CompileCache, told: list[str]) -> None:
    root, now = cache.folder.parent, time.time()
    for number in range(4):
        cache.write(str(number), os.urandom(1000))
    for number, path in enumerate(sorted(cache.folder.iterdir())):
        os.utime(path, (now - number, now - number))
    kept = sorted(cache.folder.iterdir())[:2]
    (root / ".lock").unlink()
    remove_old(root, 2500, told.append)
    assert sorted(cache.folder.iterdir()) == kept
    remove_old(root, 0, told.append)  # within the hour
    assert sorted(cache.folder.iterdir()) == kept
    assert told == []


def test_a_temporary_file_of_a_killed_process_is_removed(cache: CompileCache) -> None:
    root = cache.folder.parent
    old, new = (cache.folder / f".{name}.partial" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    (root / ".lock").unlink()
    remove_old(root, LIMIT, print)
    assert [*cache.folder.iterdir()] == [new]


@pytest.mark.parametrize("held", [True, False], ids=["held by another", "no locks"])
def test_nothing_is_removed_without_the_lock(
    cache: CompileCache, told: list[str], monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    def fails(*_: object) -> None:
        raise BlockingIOError if held else OSError(errno.ENOLCK, "No locks available")

    root = cache.folder.parent
    cache.write("key", PROGRAM)
    (root / ".lock").unlink()
    monkeypatch.setattr(fcntl, "flock", fails)
    remove_old(root, 0, told.append)
    assert cache.read("key") == PROGRAM
    assert told == ([] if held else [f"{_NO_LOCKS.format(root)}"])


_NO_LOCKS = (
    "the file system of the compile cache {} has no locks, so programs that are not used any more "
    "are not removed; remove the folder when it is too large"
)


def test_each_version_platform_and_processor_has_a_folder() -> None:
    kinds = {
        kind_of("1.0", "cpu", "cpu", "one processor"),
        kind_of("1.0", "cpu", "cpu", "another processor"),
        kind_of("1.1", "cpu", "cpu", "one processor"),
        kind_of("1.0", "gpu", "NVIDIA H100 80GB/../x"),
        kind_of("1.0", "cpu", "cpu"),
    }
    assert len(kinds) == 5
    assert "jax-1.0-gpu-NVIDIA-H100-80GB-..-x" in kinds
    assert kind_of("1.0", "cpu", "cpu") in kinds
