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
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from ....base.errors import ExitCode, FileError, PyReactantError
from ....base.files import unpack
from ...keeper import VAGUE
from ...record import load, private_folder, written
from ...supervisor import RunReport
from ...supervisor.metrics import FILE as METRICS

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

    def answer(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")

    address = sys.argv[1]
    try:
        _connect(address)
        # The address by which another shell finds the cluster.
        answer(connected=ray.get_runtime_context().gcs_address if address == "auto" else address)
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


def one_line(error: BaseException) -> str:
    """An error of Ray, whose later lines may have what matters, such as two versions."""
    return " ".join(str(error).split())[:500] or type(error).__name__


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    name = request["name"]
    if request["do"] == "start":
        _start(name, request["text"], Path(request["archive"]))
        os.close(request["lock"])  # the keeper has the job
        return {}
    try:
        keeper = ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return {"absent": True}
    try:
        return _ask(keeper, request["do"], Path(request["folder"]), request.get("process", 0))
    except ray.exceptions.ActorDiedError:
        return {"absent": True}


def _ask(keeper: Any, do: str, folder: Path, process: int) -> dict[str, Any]:
    match do:
        case "status":
            return _status(keeper)
        case "logs":
            run = load(folder).run
            with written(run):
                private_folder(run)
                _append(keeper, f"process-{process}.log", run)
                _append(keeper, METRICS, run)
        case "fetch":
            _fetch(keeper, folder)
            _close(keeper)
        case "cancel":
            ray.get(keeper.cancel.remote(), timeout=_LIMIT)
        case "close":
            _close(keeper)
    return {}


def _start(name: str, text: str, archive: Path) -> None:
    """Make the keeper and hand it the job."""
    from . import keeper as carried

    ray.cloudpickle.register_pickle_by_value(carried)
    keeper = (
        ray.remote(carried.Keeper)
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


def _status(keeper: Any) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(ray.get(keeper.status.remote(), timeout=_LIMIT))
    return status


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


def _fetch(keeper: Any, folder: Path) -> None:
    """Bring everything that the keeper has."""
    record, packed = load(folder), folder / "out.tar"
    status = _status(keeper)
    (record.run / "report.json").unlink(missing_ok=True)
    packed.unlink(missing_ok=True)
    try:
        for made in (record.run, record.out):
            private_folder(made)
        for name in (*(f"process-{i}.log" for i in range(status["processes"])), METRICS):
            _append(keeper, name, record.run)
        _append(keeper, "report.json", record.run)
        _append(keeper, packed.name, folder)
        if packed.exists():
            with tarfile.open(packed) as archive:
                unpack(archive, folder)
    except tarfile.TarError as error:
        raise FileError(f"{folder}: what the job wrote cannot be unpacked ({error})") from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise FileError(f"{folder} cannot be written ({error.strerror})") from None
        raise FileError(
            f"the value does not fit on the disk of {folder}; free some space and fetch it again"
        ) from None
    finally:
        packed.unlink(missing_ok=True)
    report = RunReport.of(record.report())
    if status.get("lost") and (report is None or report.cause in VAGUE):
        report = _lost(report, status["lost"])
    if report is not None:
        report.moved(record.run).write(record.run)


def _lost(report: RunReport | None, lost: dict[str, Any]) -> RunReport:
    """The report of a run whose Ray worker was lost, which no supervisor could name."""
    report = report or RunReport(
        cause="lost",
        exit_code=ExitCode.LOST,
        summary="it left no report",
        first_error=None,
        processes=[],
        seconds=0.0,
        started="",
        folder="",
        command=[],
    )
    named = {"process": lost["process"], "host": lost["host"]}
    first = report.first_error or {}
    if first.get("process") == lost["process"]:
        named = {**first, **named}
    return replace(report.retold("lost", lost["summary"]), first_error=named)


def _close(keeper: Any) -> None:
    """Let the keeper remove what it holds, end it, and wait until the cluster has ended it.

    `ray.kill` only sends the order in the background (`CoreWorker::KillActor` of Ray 2.60), which
    is lost if this process ends first.
    """
    with contextlib.suppress(ray.exceptions.RayError):
        ray.get(keeper.close.remote(), timeout=_LIMIT)
    ray.kill(keeper)
    deadline = time.monotonic() + _KILLED
    while time.monotonic() < deadline:
        try:
            ray.get(keeper.__ray_ready__.remote(), timeout=_KILLED)
        except ray.exceptions.RayError:
            return
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
