"""One timeline of all processes of a run: an archive of their traces, which Perfetto opens.

It holds the Chrome JSON trace of each process as JAX wrote it, and a manifest that says how their
clocks relate, as each supervisor has compared its own with that of process 0's host. Perfetto's
format: https://perfetto.dev/docs/reference/perfetto-manifest, version 1.
"""

import gzip
import io
import json
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...arrays.text import seconds_text
from ...base.counted import counted
from ...base.files import replacing
from ...process.events import ClockAsked, ClockCompared
from ...process.supervised.profiling import collectives_of
from .options import PROFILES
from .process import Emit
from .state import processes_text

TIMELINE = "timeline.tar"
"""Name of the archive, in the folder of profiles."""

MANIFEST = "perfetto_manifest.json"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a process.

    Attributes:
        process: Index of the process.
        host: Name of its host.
        profile: The profile of JAX.
        began_ns: When it began, in Unix nanoseconds by the clock of process 0's host.
        error_ns: The largest error of that.
    """

    process: int
    host: str
    profile: Path
    began_ns: int
    error_ns: int

    @property
    def member(self) -> str:
        """Its name in the archive."""
        return f"process-{self.process}.json"

    @property
    def file(self) -> Path:
        """The trace for Perfetto, as JAX packed it."""
        return self.profile.with_name(
            f"{self.profile.name.removesuffix('.xplane.pb')}.trace.json.gz"
        )

    @property
    def collectives(self) -> Path:
        """Its collective operations."""
        return collectives_of(self.profile)


def make_timeline(folder: Path, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Trace], list[str]]:
    """Write the timeline of the processes that were profiled.

    Args:
        folder: The folder of the run.
        rows: The processes, as in the report.

    Returns:
        What is in it, and sentences for the report: where it is, and what it is without, and why.
    """
    traces: list[Trace] = []
    without: dict[str, list[int]] = {}
    for row in rows:
        if (row["profile"] or {}).get("file"):
            found = _trace_of(row)
            if isinstance(found, Trace):
                traces.append(found)
            else:
                without.setdefault(found, []).append(row["index"])
    path = folder / PROFILES / TIMELINE
    notes = []
    if traces:
        try:
            written = write_timeline(path, traces, without)
        except OSError as error:  # of a full disk, for instance
            return traces, [f"no timeline: {path} cannot be written ({error.strerror or error})"]
        if written:
            notes.append(_note(path, written, len(rows)))
    for why, some in without.items():
        notes.append(f"the timeline is without {processes_text(some)}: {why}")
    return traces, notes


def _note(path: Path, traces: Sequence[Trace], count: int) -> str:
    error = max(trace.error_ns for trace in traces)
    whole = f"{len(traces)} of " if len(traces) < count else ""
    clocks = f"; the clocks agree within {seconds_text(error / 1e9)}" if error else ""
    return (
        f"timeline of {whole}{counted(count, 'process')}: {path}, "
        f"for https://ui.perfetto.dev{clocks}"
    )


def _trace_of(row: Mapping[str, Any]) -> Trace | str:
    """The trace of a process, or why it cannot be in the timeline."""
    profile = row["profile"]
    if not profile["began_ns"]:
        return "the profile does not say when it began"
    if profile["clock_offset_ns"] is None:
        return "the clock of its host was not compared with that of process 0"
    began = profile["began_ns"] + profile["clock_offset_ns"]
    file, error = Path(profile["file"]), profile["clock_error_ns"]
    trace = Trace(row["index"], str(row["host"]), file, began, error)
    if not trace.file.is_file():
        return (
            "its trace is not on the machine of process 0; hosts that share no disk have a "
            "part of the session each"
        )
    return trace


def write_timeline(
    path: Path, traces: Sequence[Trace], without: dict[str, list[int]]
) -> list[Trace]:
    """Write the archive; one trace at a time is unpacked, into a file beside it.

    Args:
        path: The archive, which is replaced whole or not at all.
        traces: The traces, at least one.
        without: Takes processes whose traces cannot be read, by the reason.

    Returns:
        The traces that are in it; without any there is no archive.

    Raises:
        OSError: It cannot be written.
    """
    written: list[Trace] = []
    with (
        replacing(path) as partial,
        tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for trace in traces:
            with tempfile.TemporaryFile(dir=path.parent) as plain:
                try:
                    with gzip.open(trace.file) as packed:
                        shutil.copyfileobj(packed, plain)
                except _UNREADABLE as error:
                    why = f"its trace cannot be read ({error})"
                    without.setdefault(why, []).append(trace.process)
                    continue
                _add(archive, trace.member, plain)
                written.append(trace)
        _add(archive, MANIFEST, io.BytesIO(json.dumps(manifest_of(written)).encode()))
    if not written:
        path.unlink()
    return written


_UNREADABLE = (FileNotFoundError, PermissionError, gzip.BadGzipFile, EOFError, zlib.error)
"""What a trace raises that is damaged, or gone."""


def _add(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = file.seek(0, io.SEEK_END), int(time.time()), 0o644
    file.seek(0)
    archive.addfile(info, file)


def manifest_of(traces: Sequence[Trace]) -> dict[str, Any]:
    """How Perfetto reads the traces: each is a machine, and their clocks relate to the earliest.

    A trace has a clock of its own that begins at 0, so a positive offset moves it to later times.
    Perfetto drops events before the start of the trace that the others refer to.
    """
    first = min(traces, key=lambda trace: trace.began_ns, default=None)
    files: list[dict[str, Any]] = []
    for trace in traces:
        name = f"process {trace.process} on {trace.host}"
        files.append({"path": trace.member, "machine": {"name": name}})
        if first is not None and trace is not first:
            files[-1]["clocks"] = {
                "sync_to": {"file": first.member},
                "offset_ns": trace.began_ns - first.began_ns,
            }
    return {"perfetto_manifest": {"version": _VERSION, "files": files}}


EXCHANGES = 16
"""Questions of a comparison; the one whose answer comes soonest counts."""


class Comparison:
    """Compares the clocks by asking process 0 for its time.

    Its answer was given at some time between question and receipt. So half of the time between
    these is the largest error, whichever way was the longer one (David L. Mills, RFC 5905, 8).

    Args:
        process: Index of the process.
        emit: Sends a question, and at the end the result.
    """

    def __init__(self, process: int, emit: Emit) -> None:
        self._process, self._emit = process, emit
        self._left = 0
        self._best: ClockCompared | None = None

    def begin(self) -> None:
        """Ask for the first time, unless a comparison is under way."""
        if not self._left:
            self._left, self._best = EXCHANGES, None
            self._ask()

    def take(self, sent_ns: int, head_ns: int) -> None:
        """Take an answer.

        Args:
            sent_ns: When it was asked, by the clock of this host.
            head_ns: The time of process 0's host.
        """
        now = time.time_ns()
        error = (now - sent_ns + 1) // 2
        # A clock that was set meanwhile gives no answer that counts.
        if error >= 0 and (self._best is None or error < self._best.error_ns):
            offset = head_ns - (sent_ns + now) // 2
            self._best = ClockCompared(offset, error, process=self._process)
        self._left -= 1
        if self._left:
            self._ask()
        elif self._best is not None:
            self._emit(self._best)

    def _ask(self) -> None:
        self._emit(ClockAsked(time.time_ns(), process=self._process))
