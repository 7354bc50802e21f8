"""Results of VMs that arrive cut short: they are fetched once more, and no part of them is kept."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyreactant.runs.queued import workers
from pyreactant.runs.queued.job import SliceSettings
from pyreactant.runs.queued.request import Worker


def archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as file:
        for name in ("0.npy", "tree.json"):
            entry = tarfile.TarInfo(f"value/{name}")
            data = bytes(range(256)) * 400
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return made.getvalue()


WHOLE = archive()


@pytest.mark.parametrize(
    ("answers", "found", "told"),
    [
        ([WHOLE[:-300], WHOLE], ["0.npy", "tree.json"], 0),
        ([WHOLE[:-300], WHOLE[:-300]], [], 1),
        ([b""], [], 1),  # nothing came, so it is not asked again
    ],
)
def test_a_transfer_that_is_cut_short(
    answers: list[bytes],
    found: list[str],
    told: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for the transfers: ssh has ended each of them."""
    left, said = list(answers), list[str]()

    class Transfers:
        def __init__(self, commands: dict[Worker, Any], *_: Any) -> None:
            self.running = [
                SimpleNamespace(worker=worker, failure=lambda: "") for worker in commands
            ]

        def start(self, name: str, command: Any, out: Callable[[Worker], Path]) -> None:
            for session in self.running:
                out(session.worker).write_bytes(left.pop(0))

        def wait(self, *_: Any, **__: Any) -> None: ...

    worker = Worker("node", 0, "10.0.0.1", "", "1")
    monkeypatch.setattr(workers, "Sessions", Transfers)
    commands = {worker: ["ssh"]}
    settings = SliceSettings("v6e-16")
    workers.Steps(settings, commands, tmp_path, "", lambda: None, said.append).fetch(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("value/*")) == found
    assert [left, len(said)] == [[], told], said
