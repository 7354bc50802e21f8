"""What a job's pods have written, brought into its record: logs, and the end of process 0.

A pod has no way back but its log. So process 0 ends its log with its report, metrics and value: an
archive in lines of Base64 that begin with `MARK`, and a last one with its digest. No line of a
program begins so, for the supervisor puts the process's index before each. A large archive lies in
Cloud Storage if the job has a folder there, by its digest.
"""

import base64
import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import re
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....base.errors import PyReactantError
from ....base.files import pack, unpack
from ....base.storage import Folder, digest_of
from ...record import Record, private_folder, report_in, written
from ...supervisor.metrics import FILE as METRICS
from ...supervisor.report import RunReport
from .client import Cluster
from .states import Object, attempt_of, end_of, has_started

MARK = b"pyreactant-end "
MOST = 1 << 20
"""Bytes that the archive may have; the log of a pod is cut at 10 MiB."""
_STORED = b"stored"
"""What is sent in place of an archive that is in the job's folder of Cloud Storage."""
_SHA = b"sha256:"
_LINE = 6000
"""Characters of a line; the kubelet splits those of 16 KiB."""
_STATE = 512
"""Bytes of a file with a `_Brought`."""
_SECOND = re.compile(r"\.[0-9]*")
"""Part of a second in a time, of which the API takes none."""


class TooLargeError(Exception):
    """What process 0 is to send is too large."""


def sent(files: Mapping[str, Path], stored: Folder | None = None) -> list[bytes]:
    """The lines that send files and folders, by the names that they get; those that exist.

    Args:
        files: The files.
        stored: The job's folder of Cloud Storage, for what is too large.

    Raises:
        TooLargeError: They are too large, and there is no such folder.
        PyReactantError: As `Folder.put`.
    """
    with tempfile.TemporaryFile() as content:
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            pack(files, archive)
        if (size := content.tell()) <= MOST:
            content.seek(0)
            text = base64.b64encode(content.read())
            parts = [text[begin : begin + _LINE] for begin in range(0, len(text), _LINE)]
        elif stored is None:
            raise TooLargeError(f"{size / MOST:.1f} MiB")
        else:
            stored.put(content)
            parts = [_STORED]
        return [MARK + part + b"\n" for part in (*parts, _SHA + digest_of(content).encode())]


def bring_log(
    cluster: Cluster, record: Record, process: int, pod: Object, *, follow: bool = False
) -> Path:
    """Add what is new of a pod's log to the file of its process, and name the file.

    Several threads and shells may do it at the same time.

    Args:
        cluster: The cluster.
        record: The job.
        process: The index of the process.
        pod: Its pod.
        follow: Whether to go on until the container has ended.
    """
    attempt, name = attempt_of(pod), pod["metadata"]["name"]
    file = folder_of(record, attempt) / f"process-{process}.log"
    state = _state_file(record, process, attempt)
    with written(file.parent):
        private_folder(file.parent)
        private_folder(state.parent)
        descriptor = os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            first, last = _noted(descriptor), ("", 0)
            since = _SECOND.sub("", first.time) if first.pod == name else ""
            for lines in cluster.log(name, since, follow=follow):
                new = [*_stamped(lines, last)]
                last = (new[-1][0], new[-1][1]) if new else last
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                before = _noted(descriptor)
                if before.pod not in (name, first.pod):
                    break  # a later pod of this process is brought
                if before.pod != name:
                    before = dataclasses.replace(before, pod=name, time="", same=0)
                after = _add(new, process, file, _end_file(state), before)
                if after != before:  # one block, which a process that is killed has written or not
                    text = json.dumps(dataclasses.asdict(after)).encode()
                    os.pwrite(descriptor, text.ljust(_STATE), 0)
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)
    return file


_followed: dict[str, threading.Thread] = {}
"""The threads that follow logs, by the pods' uids."""
_whole: set[str] = set()
"""The pods whose whole logs have been brought."""


def follow_log(cluster: Cluster, record: Record, process: int, pod: Object) -> Path:
    """As `bring_log`; a thread goes on with it, and the log of a pod that has ended comes once."""
    file = folder_of(record, attempt_of(pod)) / f"process-{process}.log"
    own = pod["metadata"]["uid"]
    if not has_started(pod) or own in _whole:
        return file
    if end_of(pod) is not None:
        bring_log(cluster, record, process, pod)
        _whole.add(own)
    elif own not in _followed or not _followed[own].is_alive():
        bring_log(cluster, record, process, pod)
        follow = functools.partial(bring_log, cluster, record, process, pod, follow=True)
        _followed[own] = threading.Thread(target=_quietly, args=(follow,), daemon=True)
        _followed[own].start()
    return file


def _quietly(follow: Callable[[], object]) -> None:
    """Follow a log until something is wrong, which `bring_log` then says to whoever asks next."""
    with contextlib.suppress(PyReactantError):
        follow()


def folder_of(record: Record, attempt: int) -> Path:
    """The folder of an attempt's logs and report, as on Slurm."""
    return record.run / f"restart-{attempt}" if attempt else record.run


def _state_file(record: Record, process: int, attempt: int) -> Path:
    return record.folder / "brought" / f"{process}.{attempt}.json"


def _end_file(state: Path) -> Path:
    return state.with_suffix(".end")


@dataclass(frozen=True)
class _Brought:
    """Up to where a log has been brought.

    Attributes:
        pod: Name of the pod.
        time: Time of the last line.
        same: Number of lines that have this time.
        size: Size of the log's file.
        end: Size of the file with the lines of `MARK`.
    """

    pod: str = ""
    time: str = ""
    same: int = 0
    size: int = 0
    end: int = 0


def _noted(descriptor: int) -> _Brought:
    """Up to where a log has been brought."""
    noted = os.pread(descriptor, _STATE, 0)
    return _Brought(**json.loads(noted)) if noted.strip() else _Brought()


def _stamped(lines: Iterable[bytes], last: tuple[str, int]) -> Iterator[tuple[str, int, bytes]]:
    """The time of each line, its number among those with this time, and its text."""
    time, same = last
    for line in lines:
        stamp, _, text = line.partition(b" ")
        at = stamp.decode("ascii", "replace")
        time, same = at, same + 1 if at == time else 1
        yield time, same, text


def _add(
    lines: Iterable[tuple[str, int, bytes]], process: int, file: Path, end: Path, before: _Brought
) -> _Brought:
    """Add the lines that come after those that have been brought."""
    time, same = before.time, before.same
    new: dict[bool, list[bytes]] = {True: [], False: []}
    for at, number, text in lines:
        if (at, number) > (time, same):
            time, same = at, number
            new[text.startswith(MARK)].append(text.removeprefix(b"[%d] " % process))
    return dataclasses.replace(
        before,
        time=time,
        same=same,
        size=_appended(file, before.size, new[False]),
        end=_appended(end, before.end, new[True]),
    )


def _appended(path: Path, size: int, lines: Sequence[bytes]) -> int:
    """Add lines at a size, beyond which a killed process may have written; the new size."""
    if not lines:
        return size
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.truncate(size)
        opened.seek(size)
        opened.writelines(lines)
    return size + sum(map(len, lines))


def unpack_end(record: Record, attempt: int, stored: Folder | None = None) -> bool:
    """Unpack what process 0 has sent; false if it is not there, or not whole.

    Args:
        record: The job.
        attempt: How often it had been started again.
        stored: The job's folder of Cloud Storage; None leaves there what is there.

    Raises:
        PyReactantError: As `Folder.get`.
    """
    try:
        lines = _end_file(_state_file(record, 0, attempt)).read_bytes().splitlines()
        *parts, digest = (line.removeprefix(MARK) for line in lines)
        data = b"" if parts == [_STORED] else base64.b64decode(b"".join(parts), validate=True)
    except (FileNotFoundError, ValueError):
        return False
    folder, partial = folder_of(record, attempt), record.folder / ".fetched"
    shutil.rmtree(partial, ignore_errors=True)
    with written(record.folder), tempfile.TemporaryFile(dir=record.folder) as content:
        content.write(data)
        name = digest.removeprefix(_SHA).decode()
        if stored is not None and parts == [_STORED]:
            stored.get(name, content)
        elif name != digest_of(content):
            return False
        content.seek(0)
        private_folder(partial)
        try:
            with tarfile.open(fileobj=content) as archive:
                unpack(archive, partial)
            if (report := RunReport.of(report_in(partial))) is not None:
                report.moved(folder).write(folder)
            if (partial / METRICS).exists():
                (partial / METRICS).replace(record.run / METRICS)
            if (partial / "value").exists() and not (record.out / "value").exists():
                private_folder(record.out)
                (partial / "value").rename(record.out / "value")
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return True
