"""Pods that a test or a benchmark plays: nothing runs, their states and logs are written."""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import pyreactant as pr
from tests.kubernetes.api import Api


class Played:
    """The pods of a job that a test plays: their states and their logs."""

    def __init__(self, api: Api, job: pr.Job, count: int = 1) -> None:
        self.api, self.name = api, f"pr-{job.id.lower()}"
        self.folder = api.runs[self.name].folder
        self.folder.mkdir(exist_ok=True)
        self.count, self.lines = count, itertools.count()
        for process in range(count):
            for end in ("stamped", "rotated"):
                (self.folder / f"{process}.0.{end}").unlink(missing_ok=True)
            (self.folder / f"{process}.0.json").write_text("")
        self.note()

    def note(self, code: int | None = None, action: str = "") -> None:
        """Say how all pods stand."""
        pod = {"code": code, "removed": False, "at": "2026-11-28T10:00:00Z"}
        state = {
            "attempt": 0,
            "counted": 0,
            "pods": {f"{self.name}-worker-0-{n}": pod for n in range(self.count)},
            "failed": {},
            "action": action,
        }
        partial = self.folder / "state.partial"
        partial.write_text(json.dumps(state))
        partial.rename(self.folder / "state.json")

    def write(self, count: int, process: int = 0) -> None:
        """Write lines, several of which have the same time."""
        with (self.folder / f"{process}.0.stamped").open("a") as file:
            for number in itertools.islice(self.lines, count):
                file.write(f"2026-11-28T10:00:{number // 50:02}.{number % 50 // 3:09}Z ")
                file.write(f"[{process}] line {number}\n")

    def rotate(self, process: int = 0) -> None:
        """Begin a new log, as the kubelet does after 10 MiB."""
        log = self.folder / f"{process}.0.stamped"
        with self.api._lock, log.with_suffix(".rotated").open("ab") as rotated:
            rotated.write(log.read_bytes())
            log.write_bytes(b"")


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.1)
