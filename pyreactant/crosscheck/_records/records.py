"""What each process of a run has written, read back and looked at before it is believed."""

import contextlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..._core.dtypes import EXTENDED, as_dtype
from ..._errors import FileError, PyReactantError
from ..._system.files import read_json, replacing
from ..._version import __version__
from .verdict import ArrayPlan, BlockVerdict


class ShardWriter:
    """Writes blocks into an .npz file one by one, so that none has to wait in memory.

    Args:
        path: Its name once it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._renaming = contextlib.ExitStack()
        partial = self._renaming.enter_context(replacing(path))
        self._zip = zipfile.ZipFile(partial, "w", allowZip64=True)

    def add(self, key: str, block: np.ndarray) -> None:
        """Write one block; types that NumPy does not know are raw bytes."""
        stored = block.view(f"V{block.dtype.itemsize}") if block.dtype.name in EXTENDED else block
        with self._zip.open(f"{key}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array(file, np.asarray(stored, order="C"), allow_pickle=False)

    def close(self) -> None:
        """Give the file its name."""
        self._zip.close()
        self._renaming.close()


def read_block(path: Path, key: str, dtype: str) -> np.ndarray:
    """One block of a process.

    Args:
        path: The process's file.
        key: The block's name in it.
        dtype: What bytes are, where the file has no more than bytes.

    Raises:
        FileError: The file or the block is missing, or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as blocks:
            block: np.ndarray = blocks[key]
    except FileNotFoundError:
        raise FileError(f"{path}: is missing; copy shards-*.npz of all processes") from None
    except KeyError:
        raise FileError(f"{path}: has no block {key!r}; copy it again") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{path}: truncated or damaged ({error}); copy it again") from None
    if block.dtype.kind == "V":
        wanted = as_dtype(dtype)
        if wanted.itemsize == block.dtype.itemsize:
            return block.view(wanted)
    return block


RAN, RAISED = "ran", "raised"
_WHAT = "a record of pyreactant crosscheck"


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """One program on one process.

    Attributes:
        program: Its name in the request.
        outcome: "ran" or "raised".
        summary: What it computes, in a few words.
        error: Exception, message, traceback and exit code of what it raised.
        problem: What must be equal in runs that are compared: size, dtype, seed, mesh, layout.
        inputs: A digest of each input's blocks by array name and block.
        oracle: Whether a right answer is known.
        exact: Whether it is the same to the last bit.
        precision: With which it was compiled.
        seconds: Placing, compiling, calls, checking.
        communicated: Bytes that each device receives, by the closed form; None without one.
        plans: Shape, dtype and sharding by array name.
        blocks: Verdicts on this process's blocks of inputs and outputs.
        keys: Where the blocks of the outputs are in the shards file, by array and device.
    """

    program: str
    outcome: str
    summary: str = ""
    error: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    oracle: bool = True
    exact: bool = False
    precision: str | None = None
    seconds: Mapping[str, Any] = field(default_factory=dict)
    communicated: int | None = None
    plans: Mapping[str, ArrayPlan] = field(default_factory=dict)
    blocks: tuple[BlockVerdict, ...] = ()
    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {
            "plans": {name: plan.to_dict() for name, plan in self.plans.items()},
            "blocks": [block.to_dict() for block in self.blocks],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ProgramRecord":
        """The record that `to_dict` described."""
        given = {name: data[name] for name in cls.__slots__}
        given["plans"] = {name: ArrayPlan.from_dict(plan) for name, plan in data["plans"].items()}
        given["blocks"] = tuple(BlockVerdict.from_dict(block) for block in data["blocks"])
        return cls(**given)

    @property
    def outputs(self) -> list[str]:
        """Names of its outputs, in order."""
        return [name for name in self.plans if name.startswith("output")]


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process of a run.

    Attributes:
        process: Its index.
        num_processes: How many there are.
        backend: Runtime.
        platform: "cpu", "gpu" or "tpu".
        host: Its machine.
        devices: All devices of the run, as `pyreactant.devices()` gives them.
        facts: Versions and settings.
        request: What was asked for, as in the request's file.
        programs: In the order of the request.
        running: The program that was begun and has not ended.
        finished: Whether it came to its end.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return (
            {"schema": SCHEMA, "pyreactant": __version__}
            | plain
            | {"programs": [program.to_dict() for program in self.programs]}
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ProcessRecord":
        """The record that `to_dict` described."""
        given = {name: data[name] for name in cls.__slots__}
        given["programs"] = tuple(map(ProgramRecord.from_dict, data["programs"]))
        return cls(**given)

    def program(self, name: str) -> ProgramRecord | None:
        """The record of one program; None where the process did not get that far."""
        return next((p for p in self.programs if p.program == name), None)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of one runtime.

    Attributes:
        folder: Where its files are.
        records: By process; none where no process came as far as to write one.
        ended: The supervisor's report.json; None where there was no supervisor.
        logs: Where the logs of the processes are.
    """

    folder: Path
    records: tuple[ProcessRecord, ...]
    ended: Mapping[str, Any] | None
    logs: Path

    @property
    def name(self) -> str:
        """What reports call it: the runtime, or the folder where there is no record of it."""
        return self.records[0].backend if self.records else self.folder.name

    @property
    def exit_code(self) -> int:
        """With which the supervised run ended."""
        return int(self.ended["exit_code"]) if self.ended else 0

    def of(self, program: str) -> list[ProgramRecord]:
        """The records of one program, of the processes that have one."""
        found = (record.program(program) for record in self.records)
        return [record for record in found if record is not None]

    def block(self, program: str, verdict: BlockVerdict) -> np.ndarray:
        """The block of an output that a verdict is about.

        Raises:
            FileError: The file with it is missing or damaged.
        """
        record = next(r for r in self.records if r.process == verdict.process).program(program)
        path = self.folder / shards_name(verdict.process)
        key = record.keys.get(verdict.array, {}).get(str(verdict.device)) if record else None
        if record is None or key is None:
            raise FileError(f"{path}: has no {verdict.array} of device {verdict.device}")
        return read_block(path, key, record.plans[verdict.array].dtype)


def read_run(folder: Path) -> Run:
    """What the processes of a run have left in its folder.

    Raises:
        FileError: A process's file is missing, truncated, of another version or another run.
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
            f"{folder}: holds no run of pyreactant crosscheck (no process-0.json); give the "
            "folder of a run, such as OUT/jax"
        )
    records = tuple(sorted(map(_read_record, paths), key=lambda r: r.process))
    for record in records:
        path = folder / record_name(record.process)
        if record.request != records[0].request or record.backend != records[0].backend:
            raise FileError(
                f"{path}: of another run than process {records[0].process}'s; do not copy runs "
                "into one folder"
            )
        if not record.finished and not broke:
            raise FileError(
                f"{path}: process {record.process} had not finished"
                f"{f' ({record.running} was running)' if record.running else ''}; wait for the "
                "end of the run, or copy the folder again"
            )
    if records and not broke:
        missing = set(range(records[0].num_processes)) - {r.process for r in records}
        if missing:
            raise FileError(
                f"{folder}: process {', '.join(map(str, sorted(missing)))} of "
                f"{records[0].num_processes} is missing; copy process-*.json and shards-*.npz "
                "of all of them"
            )
    return Run(folder, records, ended, logs)


def _last_start(folder: Path) -> Path:
    """Where the supervisor's files are: of a job that was requeued, those of its last start."""
    starts = [p for p in folder.glob("restart-*") if p.name[8:].isdecimal()]
    return max(starts, key=lambda path: int(path.name[8:]), default=folder)


def record_name(process: int) -> str:
    """The file of a process's record in the run's folder."""
    return f"process-{process}.json"


def shards_name(process: int) -> str:
    """The file of a process's blocks in the run's folder."""
    return f"shards-{process}.npz"


def _read_record(path: Path) -> ProcessRecord:
    data = read_json(path, _WHAT)
    check_version(data, path)
    try:
        record = ProcessRecord.from_dict(data)
    except PyReactantError as error:
        raise FileError(f"{path}: not {_WHAT} ({error})") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: not {_WHAT} ({error!r})") from None
    if path.name != record_name(record.process):
        raise FileError(f"{path}: is the record of process {record.process}; name it so again")
    return record


def error_facts(error: BaseException) -> dict[str, Any]:
    """What a record says of an exception."""
    import traceback

    code = error.exit_code if isinstance(error, PyReactantError) else 1
    text = "".join(traceback.format_exception(error))
    return {
        "exception": type(error).__name__,
        "message": str(error)[:2000],
        "exit_code": code,
        "traceback": text[-8000:],
    }


def plain_devices(devices: Sequence[Any]) -> list[dict[str, Any]]:
    """Devices as plain data."""
    return [asdict(device) for device in devices]


SCHEMA = 1
"""Of the files that a cross-check writes; another number cannot be read."""


def check_version(data: Mapping[str, Any], path: Path) -> None:
    """Whether a file of a cross-check was written by this version.

    Raises:
        FileError: It was not: programs and inputs of another version may be others.
    """
    found = data.get("schema"), data.get("pyreactant")
    if found != (SCHEMA, __version__):
        raise FileError(
            f"{path}: written by pyreactant {found[1]} (format {found[0]}), and this is "
            f"{__version__} (format {SCHEMA}); run it again with this version"
        )
