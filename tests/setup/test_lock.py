"""The lock of a project: its holder, and the permissions that it needs."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from pyreactant.base.errors import DeadlineError, RequirementError
from pyreactant.base.files import project_lock


def test_one_at_a_time(tmp_path: Path) -> None:
    messages: list[str] = []
    with project_lock(tmp_path, "first", advice="none"):
        with (
            pytest.raises(
                DeadlineError, match=r"is still held by `first` \(process \d+ on .* UTC\)"
            ),
            project_lock(tmp_path, "second", advice="none", wait=0.3, waiting=messages.append),
        ):
            pytest.fail("two have it")
        assert len(messages) == 1
        assert f"process {os.getpid()} on {os.uname().nodename}" in messages[0]
    with project_lock(tmp_path, "third", advice="none", wait=0):
        pass


def test_the_holder_has_not_said_yet_who_it_is(tmp_path: Path) -> None:
    (tmp_path / "pyreactant").mkdir()
    with (tmp_path / "pyreactant" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(DeadlineError, match="is still held by another process after 0 s"),
            project_lock(tmp_path, "second", advice="none", wait=0),
        ):
            pytest.fail("two have it")


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fails)
    with (
        pytest.raises(
            RequirementError, match=r"must support locks, but does not \(.*--project DIR"
        ),
        project_lock(tmp_path, "first", advice="none"),
    ):
        pytest.fail("there are none")
