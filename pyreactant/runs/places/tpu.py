"""Cloud TPU slices that exist for the job; the keeper is the launcher of `runs/queued`.

Logs and value are fetched before the slices are deleted. If the submitting machine is off, the VMs
delete the slices when their lifetime is over, and the value is lost unless it is in `store`.
"""

import contextlib
import dataclasses
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...base.errors import (
    DeadlineError,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    argument,
)
from ...base.files import is_full
from ..call import of_login
from ..keeper import detach, ended, say
from ..left import left
from ..queued.job import Phase
from ..queued.request import CloudError
from ..record import Record, Status, draft, lock_of, private_folder, written
from ..supervisor.metrics import FILE
from ..values import copy_store
from .local import cancel_kept, kept_status
from .target import Target

if TYPE_CHECKING:
    from ..queued.client import Client
    from ..queued.job import Job
    from ..queued.request import Request

_ENVIRONMENT = ("CLOUDSDK_", "GOOGLE_", "SSH_AUTH_SOCK")
"""Prefixes of the variables that gcloud, Google's client and ssh read."""
_CANCEL = 960.0
"""Seconds within which a job must have ended, and its slices, whose deletion takes up to 900."""
_PATIENCE = 120.0
"""Seconds for which Cloud TPU is asked again if there is no answer."""
_STATES = {
    Phase.QUEUED: "queued",
    Phase.STARTING: "starting",
    Phase.RUNNING: "running",
    Phase.FETCHING: "running",
    Phase.DELETING: "running",
}
"""The state of a job in each phase of its launcher."""


@dataclass(frozen=True, kw_only=True)
class TPU(Target):
    """New slices of Cloud TPU, which are deleted when the job has ended, however it ends.

    Attributes:
        accelerator_type: Slice, such as "v6e-16".
        project: GCP project that is billed; None for $PROJECT.
        zone: Zone, such as "asia-northeast1-b"; None for $ZONE.
        slice_count: Number of slices.
        spot: Whether the slices may be preempted, at a lower price.
        reserved: Whether the slices come from a reservation.
        runtime_version: TPU VM image; None for the slice's own.
        lifetime: Hours after which the VMs delete the slices.
        wait: Seconds for the slices to become ACTIVE.
        retries: New attempts after a preemption.
        timeout: Limit of the run in seconds.
        stall_timeout: Seconds without a pulse after which a process counts as stalled.
        network: Network of the VMs.
        subnetwork: Subnetwork of the VMs.
        internal_ips: Whether the VMs have no public IP addresses.
        reach: "gcloud" (its key and settings) or "ssh" (your own).
        user: User on the VMs.
        ssh_flags: Further flags of ssh.
        python: Interpreter on the VMs that has every requirement; None installs one.
        platform: "tpu", or "cpu" for a trial.
        devices_per_process: CPU devices of each process, with platform "cpu".
        backend: Runtime, "jax" or "reactant".
        transport: Protocol of Google's client, "rest" or "grpc".
        store: Folder of Cloud Storage that also gets the value, such as "gs://mine/values"; from
            there it comes back if this machine was off when the job ended. The VMs' account must be
            allowed to write there.
    """

    kind: ClassVar[str] = "tpu"
    accelerator_type: str = dataclasses.field(kw_only=False)
    project: str | None = None
    zone: str | None = None
    slice_count: int = 1
    spot: bool = False
    reserved: bool = False
    runtime_version: str | None = None
    lifetime: float = 6.0
    wait: float = 3600.0
    retries: int = 0
    timeout: float | None = None
    stall_timeout: float = 300.0
    network: str | None = None
    subnetwork: str | None = None
    internal_ips: bool = False
    reach: str = "gcloud"
    user: str | None = None
    ssh_flags: tuple[str, ...] = ()
    python: str | None = None
    platform: str = "tpu"
    devices_per_process: int | None = None
    backend: str = "jax"
    transport: str = "rest"
    store: str | None = None

    def __post_init__(self) -> None:
        # The job's keeper, and other shells, need not have these variables.
        for name in ("project", "zone"):
            object.__setattr__(self, name, getattr(self, name) or os.environ.get(name.upper()))
        if isinstance(self.ssh_flags, list):  # of JSON
            object.__setattr__(self, "ssh_flags", tuple(self.ssh_flags))

    def check(self) -> None:
        """As `Target.check`."""
        self.check_settings()
        _job(self, draft("", self.kind, {}))
        if self.store is not None and not re.fullmatch(r"gs://[^/\s]+(/\S*)?", self.store):
            raise InvalidArgumentError(
                f"{argument('store')} must be a folder of Cloud Storage such as gs://mine/values, "
                f"got {self.store!r}"
            )
        if self.transport not in ("rest", "grpc"):
            raise InvalidArgumentError(
                f"{argument('transport')} must be rest or grpc, got {self.transport!r}"
            )
        if importlib.util.find_spec("google.cloud.tpu_v2") is None:
            raise RequirementError(
                "Google's client for Cloud TPU is not installed; install it with: "
                "python -m pip install 'pyreactant[tpu]'"
            )
        _job(self, draft("", self.kind, {})).ssh.check()

    def check_julia(self, name: str) -> None:
        """As `Target.check_julia`: Julia comes to the VMs with Reactant."""
        if self.backend != "reactant" and self.python is None:
            raise InvalidArgumentError(
                f"a Julia program needs {argument('backend', 'reactant')} on TPU, with which the "
                f"VMs get Julia, got {self.backend!r}"
            )

    def plan(self, record: Record) -> str:
        """As `Target.plan`."""
        from ..queued.job import plan_text

        text = plan_text(_job(self, record))
        if self.store is None:
            return text
        return f"{text}\nstore      the value also in {self.value_store(record)}"

    def start(self, record: Record) -> None:
        """As `Target.start`: the queued resource's name follows from the record's id."""
        detach(record, lock_of(record), of_login(*_ENVIRONMENT))

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        found = kept_status(record)
        if not found.ended and is_full(record.folder):
            from ..queued.workers import ROOM

            reason = (
                f"the disk of {record.folder} is full; free some space: the slices keep the value "
                f"for {ROOM / 60:.0f} min at most"
            )
            return dataclasses.replace(found, reason=reason)
        reasons = [found.reason]
        if found.state == "lost" and self.store is None:
            reasons.append("the value is lost")
        elif found.state == "lost":
            where = self.value_store(record)
            reasons.append(f"the value is in {where} if the program ended well")
        reasons += map(str, left(record))
        return dataclasses.replace(found, reason="; ".join(filter(None, reasons)))

    def logs(self, record: Record, process: int) -> Path:
        """As `Target.logs`: those of process 0 come while it runs, the others at its end."""
        return record.log(process)

    def fetch(self, record: Record) -> None:
        """As `Target.fetch`: the keeper fetches before it deletes; else the value is in `store`."""
        lost = record.status().state == "lost"
        if self.store is None or not lost or (record.out / "value").exists():
            return
        partial = record.folder / ".fetched"
        shutil.rmtree(partial, ignore_errors=True)
        with written(record.out):
            private_folder(record.out)
            private_folder(partial)
        try:
            copy_store(f"{self.value_store(record)}value", f"{partial}/")
            (partial / "value").rename(record.out / "value")
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def value_store(self, record: Record) -> str:
        """As `Target.value_store`."""
        return "" if self.store is None else f"{self.store.rstrip('/')}/{record.id}/"

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`: the keeper deletes; if it is dead, this process does.

        Raises:
            CloudError: Slices may still cost money after `timeout` seconds, 16 minutes by default.
        """
        limit = _CANCEL if timeout is None else timeout
        deadline = time.monotonic() + limit
        try:
            cancel_kept(record, limit, why=lambda: "; ".join(map(str, left(record))))
            while not self.status(record).ended:  # its keeper is on another machine
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"the job {record.id} did not end within {limit:g} s; "
                        f"{self.status(record).reason}"
                    )
                time.sleep(0.5)
        except DeadlineError as error:
            raise CloudError(f"{error}; slices of it may still cost money") from None
        self._delete(record, max(deadline - time.monotonic(), 1.0))
        if found := left(record):
            raise CloudError("; ".join(map(str, found)))
        return self.status(record)

    def _delete(self, record: Record, timeout: float) -> None:
        """Delete what the keeper left; an entry of the journal that stays says why it failed."""
        from ..queued.gc import delete_ours, delete_recorded
        from ..queued.journal import Journal

        journal = Journal()
        recorded = journal.of_job(record.id)
        unrecorded = record.status().state in ("lost", "cancelled") and record.origin == "submit"
        if not recorded and not unrecorded:
            return
        try:
            client = _client(self.transport, patience=min(timeout, _PATIENCE))
            for noted in recorded:
                delete_recorded(client, journal, noted, tell=say, timeout=timeout)
            if not recorded:  # its name is of this job alone
                path = _job(self, record).request.path
                delete_ours(client, journal, path, tell=lambda _: None, timeout=timeout)
        except (CloudError, RequirementError) as error:
            if not recorded:
                raise
            for noted in recorded:
                journal.note_trouble(noted.run, str(error), first=True)


def keep(record: Record) -> Status:
    """Run a job on its slices, fetch logs and value, and delete the slices."""
    from ..queued.journal import Journal
    from ..queued.run import run_job

    target = TPU(**record.settings)
    os.chdir(record.folder)  # the job's copies are relative to it
    private_folder(record.run)
    job = _job(target, record)
    with (record.run / "process-0.log").open("a") as log:

        def show(line: str) -> None:
            """Keep the lines of process 0, which its supervisor marks; the rest is in tpu/."""
            text = line.partition("] ")[2]
            if text.startswith("[0] "):
                log.write(f"{text[4:]}\n")
                log.flush()

        told = _Told(record)
        report = run_job(
            job, _client(target.transport), Journal(), tell=told.tell, show=show, enter=told.enter
        )
    _collect(record, job)
    report = dataclasses.replace(report, folder=str(record.run))
    report.write(record.run)
    return ended(record, report.exit_code)


class _Told:
    """Keeps what the launcher says in keeper.log, and as the reason of the job's state."""

    def __init__(self, record: Record) -> None:
        self._record, self._phase = record, Phase.QUEUED

    def enter(self, phase: Phase) -> None:
        """Write the state in which the job is in this phase."""
        self._phase = phase
        if phase in (Phase.RUNNING, Phase.DELETING):
            self._write("" if phase is Phase.RUNNING else f"its keeper {phase.value}")

    def tell(self, text: str) -> None:
        """Keep a message of the launcher."""
        with contextlib.suppress(OSError):  # the disk is full
            print(text, flush=True)  # noqa: T201 - into keeper.log
        if self._phase is not Phase.RUNNING:
            self._write(text)

    def _write(self, reason: str) -> None:
        with contextlib.suppress(OSError, PyReactantError):  # a full disk, a damaged record
            self._record.write_status(Status(_STATES[self._phase], reason))


def _collect(record: Record, job: "Job") -> None:
    """Move what was fetched from the VMs to the places that every target has."""
    workers = [
        folder / f"{node}-worker-{index}"
        for folder in _attempts(job.out)
        for node in job.request.nodes
        for index in range(job.request.topology.hosts // job.request.slice_count)
    ]
    for worker in workers:
        for log in sorted([*worker.glob("runs/*/process-*.log"), *worker.glob(f"runs/*/{FILE}")]):
            shutil.copyfile(log, record.run / log.name)
        value = worker / "results" / "out" / "value"
        if value.is_dir() and not (record.out / "value").exists():
            private_folder(record.out)
            value.rename(record.out / "value")


def _attempts(out: Path) -> Iterator[Path]:
    """The folders of all attempts, the first one last."""
    yield from sorted(out.glob("attempt-*"), key=lambda path: -int(path.name[8:]))
    yield out


def _job(target: TPU, record: Record) -> "Job":
    from ..queued.job import Job
    from ..queued.reach import SshOptions

    return Job(
        request=_request(target, record),
        out=record.folder / "tpu",
        program=record.command("work", "../results/out"),
        backends=(target.backend,),
        ssh=SshOptions(target.reach, target.user, target.ssh_flags),
        copies=(Path("work"),),
        python=target.python,
        platform=target.platform,
        devices=target.devices_per_process or 0,
        wait=target.wait,
        timeout=target.timeout,
        stall_timeout=target.stall_timeout,
        retries=target.retries,
    )


def _request(target: TPU, record: Record) -> "Request":
    from ..queued.request import LONGEST, SHORTEST, from_environment

    if target.spot and target.reserved:
        raise InvalidArgumentError("a slice is spot or reserved, not both")
    for name in ("project", "zone"):
        if not getattr(target, name):
            raise InvalidArgumentError(f"give {argument(name)}, or set {name.upper()}")
    given: dict[str, Any] = {
        "QR_ID": record.more.get("name") or f"job-{record.id.lower()}",
        "PROJECT": target.project,
        "ZONE": target.zone,
        "ACCELERATOR_TYPE": target.accelerator_type,
        "SLICE_COUNT": str(target.slice_count),
        "RUNTIME_VERSION": target.runtime_version,
    }
    return from_environment(
        {name: text for name, text in given.items() if text},
        provisioning="spot" if target.spot else "reserved" if target.reserved else "on-demand",
        valid_for=min(max(target.wait, SHORTEST), LONGEST),
        lifetime=target.lifetime * 3600,
        network=target.network,
        subnetwork=target.subnetwork,
        internal_ips=target.internal_ips,
    )


def _client(transport: str, *, patience: float = _PATIENCE) -> "Client":
    from ..queued.client import Client

    return Client(transport=transport, patience=patience, tell=say)
