"""How far a setup has come: each stage is noted when it is done, with what it depended on."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._errors import FileError
from .._julia_place import read_json
from ._atomic import write

FILE = Path("pyreactant", "stages.json")


class Stages:
    """The notes of one project."""

    def __init__(self, project: Path) -> None:
        self._path = project / FILE
        self._notes: dict[str, dict[str, Any]] = {}
        try:
            notes = read_json(self._path)
        except (FileNotFoundError, FileError):  # nothing is done then, which is never wrong
            notes = None
        if isinstance(notes, dict) and all(isinstance(note, dict) for note in notes.values()):
            self._notes = notes

    def result(self, stage: str, key: str | None = None) -> dict[str, Any] | None:
        """What a stage settled; None where it is not done, or not with this key."""
        note = self._notes.get(stage)
        if note is None or (key is not None and note.get("key") != key):
            return None
        return dict(note.get("result", {}))

    def done(self, stage: str, key: str, result: Mapping[str, Any]) -> None:
        """Note that a stage is done."""
        self._notes[stage] = {"key": key, "result": dict(result)}
        self._write()

    def undo(self, *stages: str) -> None:
        """Note that stages are to be done again."""
        known = [stage for stage in stages if stage in self._notes]
        for stage in known:
            del self._notes[stage]
        if known:
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write(self._path, json.dumps(self._notes, indent=1).encode())


def key_of(**facts: Any) -> str:
    """A digest of all that a stage depends on."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest(*paths: Path) -> str:
    """A digest of files, by name and content; one that is not there is part of it too."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.is_file() else b"absent"
        total.update(path.name.encode() + b"\0" + hashlib.sha256(content).digest())
    return total.hexdigest()
