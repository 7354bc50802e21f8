"""Files of a run: blocks and records, written by each process, read back and validated."""

import contextlib
import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import __version__
from ...arrays.dtypes import EXTENDED, as_dtype
from ...arrays.mesh import MOST_DEVICES
from ...base.errors import FileError
from ...base.files import read_json, replacing
from .plain import Plain
from .verdict import BlockVerdict, ProgramRecord


class ShardWriter:
    """Writes blocks into an .npz file one by one, so that none is kept in memory.

    Args:
        path: Name of the file; it appears when the file is complete.

    Attributes:
        checksums: CRC-32 of each block's entry, by its key.
    """

    def __init__(self, path: Path) -> None:
        self._renaming = contextlib.ExitStack()
        partial = self._renaming.enter_context(replacing(path))
        self._zip = zipfile.ZipFile(partial, "w", allowZip64=True)
        self.checksums: dict[str, int] = {}

    def add(self, key: str, block: np.ndarray) -> None:
        """Write one block; types that NumPy lacks are stored as raw bytes."""
        stored = block.view(f"V{block.dtype.itemsize}") if block.dtype.name in EXTENDED else block
        with self._zip.open(f"{key}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, np.asarray(stored, order="C"), allow_pickle=False)
        self.checksums[key] = self._zip.getinfo(f"{key}.npy").CRC

    def close(self) -> None:
        """Finish the file and give it its final name."""
        self._zip.close()
        self._renaming.close()


_DAMAGED = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say what to do if the file of a process's blocks is missing or damaged."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(f"{path}: missing; copy shards-*.npz of all processes") from None
    except FileError:
        raise
    except _DAMAGED as error:
        raise FileError(f"{path}: truncated or damaged ({error}); copy it again") from None


def shards_name(process: int) -> str:
    """The file of a process's blocks in the run's folder."""
    return f"shards-{process}.npz"


_WHAT = "a record of pyreactant crosscheck"


@dataclass(frozen=True, slots=True)
class ProcessRecord(Plain):
    """One process of a run.

    Attributes:
        devices: All devices of the run, as `pyreactant.devices()` returns them.
        facts: Versions and settings.
        request: Contents of the request file.
        programs: Records of the programs, in the order of the request.
        running: The program that has started and not ended; None between programs.
        finished: Whether the process ran all programs.
        checksums: CRC-32 of each block in the shards file, by its key.
    """

    process: int
    num_processes: int
    backend: str
    platform: str
    host: str
    devices: Sequence[Mapping[str, Any]]
    facts: Mapping[str, str]
    request: Mapping[str, Any]
    programs: tuple[ProgramRecord, ...] = ()
    running: str | None = None
    finished: bool = False
    checksums: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, with the version that wrote it and a checksum."""
        head = {"schema": SCHEMA, "pyreactant": __version__}
        return sealed(head | Plain.to_dict(self))

    def program(self, name: str) -> ProgramRecord | None:
        """The record of one program; None if the process did not reach it."""
        return next((p for p in self.programs if p.program == name), None)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of one runtime.

    Attributes:
        records: Process records by process index; empty if no process wrote one.
        ended: The supervisor's report.json; None if there was no supervisor.
        logs: Folder with the logs of the processes.
    """

    folder: Path
    records: tuple[ProcessRecord, ...]
    ended: Mapping[str, Any] | None
    logs: Path

    @property
    def name(self) -> str:
        """The run's name in reports: the runtime, or the folder if there is no record."""
        return self.records[0].backend if self.records else self.folder.name

    @property
    def exit_code(self) -> int:
        """Exit code of the supervised run."""
        return int(self.ended["exit_code"]) if self.ended else 0

    def of(self, program: str) -> list[ProgramRecord]:
        """The records of one program from all processes that have one."""
        records = (record.program(program) for record in self.records)
        return [record for record in records if record is not None]

    def block(self, program: str, verdict: BlockVerdict) -> np.ndarray:
        """The output block to which a verdict belongs.

        Raises:
            FileError: The block's file is missing or damaged.
        """
        record = next(r for r in self.records if r.process == verdict.process).program(program)
        path = self.folder / shards_name(verdict.process)
        key = record.keys.get(verdict.array, {}).get(str(verdict.device)) if record else None
        if record is None or key is None:
            raise FileError(
                f"{path}: has no {verdict.array} of device {verdict.device}; copy it again"
            )
        with _readable(path), np.load(path, allow_pickle=False) as blocks:
            if key not in blocks:
                raise FileError(f"{path}: has no block {key!r}; copy it again")
            block: np.ndarray = blocks[key]
        dtype = as_dtype(record.plans[verdict.array].dtype)
        raw = block.dtype.kind == "V" and block.dtype.itemsize == dtype.itemsize
        return block.view(dtype) if raw else block


def read_run(folder: Path) -> Run:
    """Read the files of a run's processes.

    Raises:
        FileError: A process's file is missing, truncated, or of another version or run.
    """
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder; give the folder of a run, such as OUT/jax")
    logs = _last_start(folder)
    report = logs / "report.json"
    ended = read_json(report, "a report of pyreactant run") if report.exists() else None
    paths = list(folder.glob("process-*.json"))
    broke = bool(ended and ended.get("exit_code"))
    if not paths and not broke:
        raise FileError(
            f"{folder}: contains no run of pyreactant crosscheck (no process-0.json); give the "
            "folder of a run, such as OUT/jax"
        )
    records = tuple(sorted(map(_read_record, paths), key=lambda r: r.process))
    for record in records:
        path = folder / record_name(record.process)
        if record.request != records[0].request or record.backend != records[0].backend:
            raise FileError(
                f"{path}: belongs to another run than process {records[0].process}; copy each run "
                "into its own folder"
            )
        if not record.finished and not broke:
            raise FileError(
                f"{path}: process {record.process} has not finished"
                f"{f' ({record.running} was running)' if record.running else ''}; wait for the "
                "end of the run, or copy the folder again"
            )
    if records and not broke:
        _check_all_there(folder, records)
    return Run(folder, records, ended, logs)


def _check_all_there(folder: Path, records: Sequence[ProcessRecord]) -> None:
    count = records[0].num_processes
    missing = sorted({*range(count)} - {record.process for record in records})
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise FileError(
            f"{folder}: process {', '.join(map(str, missing[:10]))}{more} of {count} is missing; "
            "copy process-*.json and shards-*.npz of all of them"
        )


def check_shards(run: Run) -> None:
    """Check that the files of a run's blocks are whole, also of blocks that nothing compares.

    Raises:
        FileError: A file or a block is missing, damaged, or another than the recorded one.
    """
    for record in run.records if not run.exit_code else ():
        path = run.folder / shards_name(record.process)
        with _readable(path), zipfile.ZipFile(path) as file:
            damaged = file.testzip()
            checksums = {
                entry.filename.removesuffix(".npy"): entry.CRC for entry in file.infolist()
            }
        if damaged:
            raise FileError(f"{path}: truncated or damaged (in {damaged}); copy it again")
        arrays = [keys for program in record.programs for keys in program.keys.values()]
        for key in sorted({key for keys in arrays for key in keys.values()}):
            if key not in checksums:
                raise FileError(f"{path}: has no block {key!r}; copy it again")
            if checksums[key] != record.checksums.get(key):
                raise FileError(
                    f"{path}: its block {key!r} is not the one that was checked; copy this file "
                    "and the process's record from the same run"
                )


def _last_start(folder: Path) -> Path:
    """The folder of the supervisor's files; after a requeue, that of the last start."""
    starts = [p for p in folder.glob("restart-*") if p.name[8:].isdecimal()]
    return max(starts, key=lambda path: int(path.name[8:]), default=folder)


def record_name(process: int) -> str:
    """The file of a process's record in the run's folder."""
    return f"process-{process}.json"


def _read_record(path: Path) -> ProcessRecord:
    data = read_json(path, _WHAT)
    check_version(data, path)
    if data.get("seal") != sealed(data)["seal"]:
        raise FileError(
            f"{path}: damaged or edited, because its contents do not match its checksum; copy it "
            "again"
        )
    try:
        record = ProcessRecord.from_dict(data)
        count = record.num_processes
        if type(count) is not int or not 0 <= record.process < count <= MOST_DEVICES:
            raise ValueError(f"process {record.process!r} of {count!r}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: not {_WHAT} ({error!r})") from None
    if path.name != record_name(record.process):
        raise FileError(
            f"{path}: is the record of process {record.process}; rename it to "
            f"{record_name(record.process)}"
        )
    return record


SCHEMA = 2
"""Format version of a cross-check's files; files of other versions are rejected."""


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the checksum of its contents, which shows a damaged one. No protection."""
    content = {key: value for key, value in data.items() if key != "seal"}
    text = json.dumps(content, sort_keys=True).encode()
    return content | {"seal": hashlib.blake2b(text, digest_size=8).hexdigest()}


def check_version(data: Mapping[str, Any], path: Path) -> None:
    """Check that this version wrote a file of a cross-check.

    Raises:
        FileError: Another version wrote it; its programs and inputs may differ.
    """
    version = data.get("schema"), data.get("pyreactant")
    if version != (SCHEMA, __version__):
        raise FileError(
            f"{path}: must be written by pyreactant {__version__} (format {SCHEMA}), got "
            f"{version[1]} (format {version[0]}); run the cross-check again with this version"
        )
