"""Folders of a user's files, on Linux and on macOS."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs
import platformdirs.macos
import pytest

from pyreactant.base import files
from pyreactant.base.errors import PyReactantError
from pyreactant.fit.compiler import ask
from pyreactant.julia.place import pointers
from pyreactant.process.group import ProcessGroup
from pyreactant.process.group.coordinator import run_secret
from pyreactant.runs.queued.journal import Entry, Journal, entry
from pyreactant.runs.record import create
from tests.gcloud.cloud import slice_request

CASES = [
    (files.cache_folder, "XDG_CACHE_HOME", ".cache"),
    (files.config_folder, "XDG_CONFIG_HOME", ".config"),
    (files.state_folder, "XDG_STATE_HOME", ".local/state"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory for this test, and no XDG variable."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for _, variable, _ in CASES:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def mac(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory on macOS, as platformdirs and this package detect it."""
    monkeypatch.setattr(platformdirs, "PlatformDirs", platformdirs.macos.MacOS)
    monkeypatch.setattr(files.sys, "platform", "darwin")
    return home


@pytest.mark.parametrize(("folder", "variable", "default"), CASES)
def test_folders_on_linux(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: Callable[[], Path],
    variable: str,
    default: str,
) -> None:
    assert folder() == home / default / "pyreactant"
    for ignored in ("", "relative", "~/unexpanded"):
        monkeypatch.setenv(variable, ignored)
        assert folder() == home / default / "pyreactant"
    monkeypatch.setenv(variable, "/elsewhere")
    assert folder() == Path("/elsewhere/pyreactant")


def test_files_on_linux(home: Path) -> None:
    assert ask.answers_folder() == home / ".cache/pyreactant/preflight"
    assert pointers()[0].parent == home / ".config/pyreactant/julia"
    assert Journal().folder == home / ".local/state/pyreactant/queued-resources"
    assert files.earlier_state_folder() is None


def test_folders_on_macos(mac: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.cache_folder() == mac / "Library/Caches/pyreactant"
    assert files.state_folder() == mac / "Library/Application Support/pyreactant"
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert files.state_folder() == Path("/elsewhere/pyreactant")


def test_entries_of_the_earlier_folder_on_macos(mac: Path) -> None:
    """After an update `gc` still finds a killed launcher's entry, and removes it."""
    earlier = Journal(mac / ".local/state/pyreactant")
    earlier.write(entry(slice_request(), "old", asked=time.time(), kept=False))
    journal = Journal()
    assert journal.folder == mac / "Library/Application Support/pyreactant/queued-resources"
    journal.write(entry(slice_request(), "new", asked=time.time(), kept=False))
    entries = [x for x in journal.entries() if isinstance(x, Entry)]
    assert sorted(x.run for x in entries) == ["new", "old"]
    journal.forget("old")
    journal.forget("new")
    assert list(journal.entries()) == list(earlier.entries()) == []


@pytest.mark.filterwarnings("ignore:the preflight cache cannot be written")
def test_no_home_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root could make Debian's /nonexistent."""
    monkeypatch.setenv("HOME", str(tmp_path / "absent"))
    for _, variable, _ in CASES:
        monkeypatch.delenv(variable, raising=False)
    group = ProcessGroup(2, 0, "localhost:4711")
    for write, setting in (
        (lambda: create("x", "local", {}), "set XDG_STATE_HOME to a folder"),
        (lambda: Journal().write(entry(slice_request(), "a", asked=0.0, kept=False)), "XDG_STATE"),
        (lambda: run_secret(group, {}), "set PYREACTANT_SECRET, the same on every process"),
    ):
        with pytest.raises(PyReactantError, match=f"the home folder .* does not exist.*{setting}"):
            write()
    ask.write_answer("0" * 64, {})
    assert list(tmp_path.iterdir()) == []


def test_an_account_without_a_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", absent)
    with pytest.raises(PyReactantError, match=r"must have a home .*set HOME, or XDG_STATE_HOME"):
        create("x", "local", {})


def test_threads_that_replace_a_file_at_once(tmp_path: Path) -> None:
    """Each writes its own temporary file: the later one is whole, and nothing else stays."""
    file = tmp_path / "state.json"

    def replace(text: str) -> None:
        with files.replacing(file) as temporary:
            temporary.write_text(text)

    with files.replacing(file) as temporary:
        temporary.write_text("of the first")
        other = threading.Thread(target=replace, args=("of the second, which is longer",))
        other.start()
        other.join()
        assert file.read_text() == "of the second, which is longer"
    assert file.read_text() == "of the first"
    assert [*tmp_path.iterdir()] == [file]
