"""Cloud TPU slices that exist for the job; the keeper is the launcher of `runs/queued`.

Logs and value are fetched before the slices are deleted. If the submitting machine is off, the VMs
delete the slices when their lifetime is over, and the value is lost unless it is in `store`.
"""

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from ...base.errors import (
    DeadlineError,
    ExitCode,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    argument,
)
from ...base.files import is_full
from ...base.say import say
from ...base.settings import JOB
from ...base.storage import FORM, FORM_IN_WORDS, Folder, login_of_user
from ..call import of_login
from ..keeper import detach, ended, interrupted_when
from ..queued.job import Job, Listener, Phase, SliceSettings
from ..queued.request import CloudError
from ..record import Record, Status, draft, lock_of, private_folder, written
from ..supervisor.metrics import FILE
from ..values import fetch_stored
from .local import cancel_kept, kept_status
from .target import Target

if TYPE_CHECKING:
    from ..queued.client import Client
    from ..supervisor import RunReport

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
class TPU(SliceSettings, Target):
    """New slices of Cloud TPU, which are deleted when the job has ended, however it ends.

    `Processes` has what every place has.

    Attributes:
        accelerator_type: Slice, such as "v6e-16".
        project: GCP project that is billed; None for $PROJECT.
        zone: Zone, such as "asia-northeast1-b"; None for $ZONE.
        name: Id of the queued resource; None for one that follows from the job's id.
        slice_count: Number of slices.
        provisioning: "on-demand", "spot" (may be preempted, at a lower price) or "reserved".
        spot: Short for ``provisioning="spot"``.
        reserved: Short for ``provisioning="reserved"``.
        runtime_version: TPU VM image; None for the slice's own.
        lifetime: Hours after which the VMs delete the slices.
        valid_for: Hours for which the request may wait in the queue; None for as long as `wait`.
        wait: Seconds for the slices to become ACTIVE.
        reach_timeout: Seconds for the VMs to accept ssh.
        kept: Whether to keep the slices.
        network: Network of the VMs.
        subnetwork: Subnetwork of the VMs.
        internal_ips: Whether the VMs have no public IP addresses.
        reach: "gcloud" (its key and settings) or "ssh" (your own).
        user: User on the VMs.
        ssh_flags: Further flags of ssh.
        python: Interpreter on the VMs that has every requirement; None installs one.
        platform: "tpu", or "cpu" for a trial.
        backend: Runtime, "jax" or "reactant"; "jax,reactant" for both, one after the other.
        transport: Protocol of Google's client, "rest" or "grpc".
        store: Folder of Cloud Storage that also gets the value, such as "gs://mine/values"; from
            there it comes back if this machine was off when the job ended. The VMs' account must be
            allowed to write there.
        retries: What version 0.1 called `max_restarts`.
    """

    kind: ClassVar[str] = "tpu"
    # `queued.job.Job` checks platform and backend.
    known: ClassVar[Mapping[str, Sequence[str]]] = {"transport": ("rest", "grpc")}
    forms: ClassVar[Mapping[str, tuple[str, str]]] = {"store": (FORM, FORM_IN_WORDS)}
    stays: ClassVar[bool] = True

    def check(self) -> None:
        """As `Target.check`."""
        self.check_settings()
        ssh = _job(self, draft("", self.kind, {})).settings.ssh
        if importlib.util.find_spec("google.cloud.tpu_v2") is None:
            raise RequirementError(
                "Google's client for Cloud TPU is not installed; install it with: "
                "python -m pip install 'pyreactant[tpu]'"
            )
        ssh.check()

    def check_julia(self, name: str) -> None:
        """As `Target.check_julia`: Julia comes to the VMs with Reactant."""
        if "reactant" not in self.backend.split(",") and self.python is None:
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

    def stay(self, record: Record) -> Status:
        """As `Target.stay`: this process is the launcher; signals delete the slices."""
        os.environ[JOB] = record.id  # for the journal, by which `jobs` finds slices that are left
        told = _Told(record, say)
        with interrupted_when(lambda: record.cancelling):
            report = _run(record, told, show=lambda line: print(line, flush=True))  # noqa: T201
        (record.work / "env.json").unlink(missing_ok=True)
        print(report.to_text(), end="")  # noqa: T201
        status = ended(record, report.exit_code)
        if status.exit_code == ExitCode.INTERRUPTED or record.cancelling:
            status = Status("cancelled", "interrupted", ExitCode.INTERRUPTED)
        return record.write_status(status)

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        status = kept_status(record)
        if not status.ended and is_full(record.folder):
            from ..queued.workers import ROOM

            reason = (
                f"the disk of {record.folder} is full; free some space: the slices keep the value "
                f"for {ROOM / 60:.0f} min at most"
            )
            return dataclasses.replace(status, reason=reason)
        reasons = [status.reason]
        if status.state == "lost" and self.store is None:
            reasons.append("the value is lost")
        elif status.state == "lost":
            where = self.value_store(record)
            reasons.append(f"the value is in {where} if the program ended well")
        reasons += map(str, record.slices_left())
        return dataclasses.replace(status, reason="; ".join(filter(None, reasons)))

    def fetch(self, record: Record) -> None:
        """As `Target.fetch`: the keeper fetches before it deletes; else the value is in `store`."""
        lost = record.status().state == "lost"
        if self.store is None or not lost or (record.out / "value").exists():
            return
        with written(record.out):
            private_folder(record.out)
        fetch_stored(record.out / "value", Folder(self.value_store(record), login_of_user))

    def value_store(self, record: Record) -> str:
        """As `Target.value_store`."""
        return "" if self.store is None else f"{self.store.rstrip('/')}/{record.id}"

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`: the keeper deletes; if it is dead, this process does.

        Raises:
            CloudError: Slices may still cost money after `timeout` seconds, 16 minutes by default.
        """
        limit = _CANCEL if timeout is None else timeout
        deadline = time.monotonic() + limit
        try:
            cancel_kept(record, limit, why=lambda: "; ".join(map(str, record.slices_left())))
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
        if leftovers := record.slices_left():
            raise CloudError("; ".join(map(str, leftovers)))
        return self.status(record)

    def _delete(self, record: Record, timeout: float) -> None:
        """Delete what the keeper left; an entry of the journal that stays says why it failed."""
        from ..queued.deletion import Deleter
        from ..queued.journal import Journal

        journal = Journal()
        entries = journal.entries_of(job=record.id)
        unrecorded = record.status().state in ("lost", "cancelled") and own_name(record)
        if not entries and not unrecorded:
            return
        try:
            client = _client(self.transport, patience=min(timeout, _PATIENCE))
            deleter = Deleter(client, journal, say, timeout)
            for entry in entries:
                deleter.delete_recorded(entry)
            if not entries:  # its name is of this job alone
                quiet = dataclasses.replace(deleter, tell=lambda _: None)
                quiet.delete_named(_job(self, record).request.path)
        except (CloudError, RequirementError) as error:
            if not entries:
                raise
            for entry in entries:
                journal.note_trouble(entry.run, str(error), first=True)


def own_name(record: Record) -> bool:
    """Whether nothing but this job can have slices of the job's name."""
    return record.origin == "submit" and not record.settings.get("name")


def keep(record: Record) -> Status:
    """Run a job on its slices, fetch logs and value, and delete the slices."""
    return ended(record, _run(record, _Told(record)).exit_code)


def _run(
    record: Record, told: "_Told", show: Callable[[str], None] = lambda _: None
) -> "RunReport":
    """Run a job on its slices; `told` hears what the launcher does, `show` gets each line."""
    from ..queued.journal import Journal
    from ..queued.run import run_job

    target = TPU(**record.settings)
    os.chdir(record.folder)  # the job's copies are relative to it
    job = _job(target, record)
    if job.out != record.run:
        private_folder(record.run)
    with contextlib.ExitStack() as stack:
        log: IO[str] | None = None

        def show_line(line: str) -> None:
            """Keep the lines of process 0, which its supervisor marks; files have the rest."""
            nonlocal log
            show(line)
            text = line.partition("] ")[2]
            if text.startswith("[0] "):
                if log is None:
                    log = stack.enter_context((record.run / "process-0.log").open("a"))
                log.write(f"{text[4:]}\n")
                log.flush()

        listener = Listener(told.tell, show_line, told.enter)
        report = run_job(job, _client(target.transport), Journal(), listener)
    _collect(record, job)
    report = dataclasses.replace(report, folder=str(record.run))
    report.write(record.run)
    return report


def _into_log(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - standard output is keeper.log


class _Told:
    """Keeps what the launcher says in keeper.log, and as the reason of the job's state."""

    def __init__(self, record: Record, tell: Callable[[str], None] = _into_log) -> None:
        self._record, self._phase, self._tell = record, Phase.QUEUED, tell

    def enter(self, phase: Phase) -> None:
        """Write the state in which the job is in this phase."""
        self._phase = phase
        if phase in (Phase.RUNNING, Phase.DELETING):
            self._write("" if phase is Phase.RUNNING else f"its keeper {phase.value}")

    def tell(self, text: str) -> None:
        """Keep a message of the launcher."""
        with contextlib.suppress(OSError):  # the disk is full
            self._tell(text)
        if self._phase is not Phase.RUNNING:
            self._write(text)

    def _write(self, reason: str) -> None:
        with contextlib.suppress(OSError, PyReactantError):  # a full disk, a damaged record
            self._record.write_status(Status(_STATES[self._phase], reason))


def _collect(record: Record, job: Job) -> None:
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


def _job(target: TPU, record: Record) -> Job:
    return Job(
        settings=target,
        request=target.request(f"job-{record.id.lower()}"),
        out=record.run if record.spec.get("out") else record.folder / "tpu",
        program=record.command("work", "../results/out"),
        copies=(Path("work"),),
    )


def _client(transport: str, *, patience: float = _PATIENCE) -> "Client":
    from ..queued.client import Client

    return Client(transport=transport, patience=patience, tell=say)
