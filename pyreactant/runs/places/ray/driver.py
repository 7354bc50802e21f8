"""The child process that talks to Ray: ``python -m pyreactant.runs.places.ray.driver ADDRESS``.

It reads requests as lines of JSON from standard input, and answers each with a line. It is a
process of its own because a head that does not answer holds Ray's calls for minutes, and because
the user's program may be connected to another cluster. It ends with its input.
"""

import contextlib
import errno
import fcntl
import gc
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from ....base.errors import ExitCode, FileError, PyReactantError
from ....base.files import unpack
from ...keeper import VAGUE
from ...record import load, private_folder, written
from ...supervisor import RunReport
from ...supervisor.metrics import FILE as _METRICS

NAMESPACE = "pyreactant"
_LIMIT = 30.0
"""Seconds for one call of the keeper."""
_KILLED, _PAUSE = 8.0, 0.05
"""Seconds until an actor that was killed is gone, and between two looks."""
_PIECE = 4 << 20


def main() -> None:
    """Connect, then answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is no answer

    def answer(**found: Any) -> None:
        answers.write(json.dumps(found) + "\n")

    try:
        _connect(sys.argv[1])
        answer(connected=_own_address(sys.argv[1]))
    except Exception as error:  # Ray has no common kind for what goes wrong here
        answer(error=one_line(error), kind="connect")
        return
    for line in sys.stdin:
        try:
            answer(**_answer(json.loads(line)))
        except PyReactantError as error:
            answer(error=str(error), kind=type(error).__name__)
        except Exception as error:
            answer(error=one_line(error), kind="ray")
    gc.freeze()  # as at the end of a command


def _connect(address: str) -> None:
    for attempt in range(2):
        try:
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
            return
        except Exception:  # Ray's client server now and then fails to start a client's process
            if attempt or not address.startswith("ray://"):
                raise


def _own_address(given: str) -> str:
    """The address by which another shell finds the cluster."""
    if given != "auto":
        return given
    return str(ray.get_runtime_context().gcs_address)


def one_line(error: BaseException) -> str:
    """An error of Ray, whose later lines may have what matters, such as two versions."""
    return " ".join(str(error).split())[:500] or type(error).__name__


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    name = request.pop("name")
    if request["do"] == "start":
        found = _start(name, request["text"], Path(request["archive"]))
        os.close(request["lock"])  # the keeper has the job
        return found
    try:
        keeper = ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return {"absent": True}
    try:
        return _ASKED[request["do"]](keeper, Path(request["folder"]), request.get("process"))
    except ray.exceptions.ActorDiedError:
        return {"absent": True}


def _start(name: str, text: str, archive: Path) -> dict[str, Any]:
    """Make the keeper and hand it the job."""
    from . import host as ray_host
    from . import keeper as ray_keeper

    # The cluster need not have pyreactant: the two classes travel as code.
    for module in (ray_host, ray_keeper):
        ray.cloudpickle.register_pickle_by_value(module)
    keeper = (
        ray.remote(ray_keeper.Keeper)
        .options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=0,
            max_concurrency=32,
            resources={"node:__internal_head__": 0.001},  # not on a host that may be preempted
        )
        .remote(text)
    )
    with archive.open("rb") as file:
        while piece := file.read(_PIECE):
            ray.get(keeper.add.remote(piece), timeout=120)
    ray.get(keeper.begin.remote(), timeout=120)
    return {}


def _status(keeper: Any, folder: Path, _: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ray.get(keeper.status.remote(), timeout=_LIMIT))
    return found


def _logs(keeper: Any, folder: Path, process: int) -> dict[str, Any]:
    """Append what is new to the log of one process."""
    run = load(folder).run
    with written(run):
        private_folder(run)
        _append(keeper, f"process-{process}.log", run)
        _append(keeper, _METRICS, run)
    return {}


def _append(keeper: Any, name: str, folder: Path) -> None:
    offset = (folder / name).stat().st_size if (folder / name).exists() else 0
    if not (piece := ray.get(keeper.read.remote(name, offset), timeout=_LIMIT)):
        return
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another shell may bring the same
        offset = os.fstat(file.fileno()).st_size
        while piece := ray.get(keeper.read.remote(name, offset), timeout=_LIMIT):
            file.write(piece)
            offset += len(piece)


def _fetch(keeper: Any, folder: Path, _: Any) -> dict[str, Any]:
    """Bring everything that the keeper has, and end it."""
    record = load(folder)
    how = _status(keeper, folder, None)
    try:
        for made in (record.run, record.out):
            private_folder(made)
        for process in range(how["processes"]):
            _append(keeper, f"process-{process}.log", record.run)
        _append(keeper, _METRICS, record.run)
        (record.run / "report.json").unlink(missing_ok=True)
        _append(keeper, "report.json", record.run)
        (folder / "out.tar").unlink(missing_ok=True)
        _append(keeper, "out.tar", folder)
        if (folder / "out.tar").exists():
            with tarfile.open(folder / "out.tar") as archive:
                unpack(archive, folder)
            (folder / "out.tar").unlink()
    except tarfile.TarError as error:
        (folder / "out.tar").unlink(missing_ok=True)
        raise FileError(f"{folder}: what the job wrote cannot be unpacked ({error})") from None
    except OSError as error:
        (folder / "out.tar").unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise FileError(
            f"the value does not fit on the disk of {folder}; free some space and fetch it again"
            if full
            else f"{folder} cannot be written ({error.strerror})"
        ) from None
    if how.get("lost") and record.report().get("cause", "lost") in VAGUE:
        _report_lost(record.run, how)
    return _close(keeper, folder, None)


def _report_lost(run: Path, how: dict[str, Any]) -> None:
    """Write the report of a run whose Ray worker was lost, which no supervisor could name."""
    lost = how["lost"]
    RunReport(
        cause="lost",
        exit_code=ExitCode.LOST,
        summary=lost["summary"],
        first_error={"process": lost["process"], "host": lost["host"]},
        processes=[],
        seconds=0.0,
        started="",
        folder=str(run),
        command=[],
    ).write(run)


def _cancel(keeper: Any, folder: Path, _: Any) -> dict[str, Any]:
    ray.get(keeper.cancel.remote(), timeout=_LIMIT)
    return {}


def _close(keeper: Any, folder: Path, _: Any) -> dict[str, Any]:
    """Let the keeper remove what it holds, and end it."""
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get(keeper.close.remote(), timeout=_LIMIT)
    ray.kill(keeper)
    _await_end(keeper)
    return {}


def _await_end(keeper: Any) -> None:
    """Wait until the cluster has ended an actor.

    `ray.kill` only sends the order in the background (`CoreWorker::KillActor` of Ray 2.60), which
    is lost if this process ends first.
    """
    deadline = time.monotonic() + _KILLED
    while time.monotonic() < deadline:
        try:
            ray.get(keeper.__ray_ready__.remote(), timeout=_KILLED)
        except ray.exceptions.RayError:
            return
        time.sleep(_PAUSE)


_ASKED: dict[str, Callable[[Any, Path, Any], dict[str, Any]]] = {
    "status": _status,
    "logs": _logs,
    "fetch": _fetch,
    "cancel": _cancel,
    "close": _close,
}

if __name__ == "__main__":
    main()
