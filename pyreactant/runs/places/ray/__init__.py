"""A Ray cluster: TPU slices, GPU or CPU nodes; a detached actor on its head is the keeper.

The cluster needs Ray and the packages of the program, but not pyreactant, which comes with the job.
"""

import contextlib
import dataclasses
import importlib.util
import os
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ....base.counted import counted
from ....base.errors import InvalidArgumentError, RequirementError, argument
from ....base.files import pack
from ....base.say import say
from ....base.slices.generations import shape_text
from ....base.slices.topology import Topology, topology
from ...record import Record, Status, Unanswered, lock_of, private_file, written
from ...spec import command_line, option
from ..target import Target, pause
from .cluster import Cluster, UnreachableError, cluster_at, keep

_STATUS, _ASK, _BRING, _END = 30.0, 40.0, 3600.0, 120.0
"""Seconds for the state, for an order, for files, and until a cancelled job is gone."""
_NOT_STARTED = "the submitting process ended before the cluster had the job"


@dataclass(frozen=True, kw_only=True)
class Ray(Target):
    """Hosts of a Ray cluster, one process on each; `Processes` has what every place has.

    Attributes:
        topology: Slice of Cloud TPU, such as "v6e-16"; None for GPU or CPU nodes.
        slices: Number of slices.
        hosts: Without a topology: number of hosts.
        num_gpus: GPUs of each host.
        num_cpus: CPUs that Ray sets aside on each host.
        address: The cluster, as for `ray.init`: "HOST:6379", or "ray://HOST:10001" from a machine
            outside; None for $RAY_ADDRESS, or the cluster of this machine.
        platform: "cpu", "gpu" or "tpu"; None for "tpu" with a topology, else the best available.
        wait: Seconds to wait for the resources.
        keep: Hours for which the cluster keeps logs and value until they are fetched.
    """

    kind: ClassVar[str] = "ray"
    least: ClassVar[Mapping[str, int]] = {**Target.least, "slices": 1, "hosts": 1, "num_gpus": 0}
    topology: str | None = option(None, "Slice of Cloud TPU, such as v6e-16.", "Devices")
    slices: int = option(1, "Number of slices.", "Devices")
    hosts: int = option(1, "Number of hosts, without --topology.", "Ray")
    num_gpus: int = option(0, "GPUs of each host.", "Ray")
    num_cpus: float = option(1.0, "CPUs that Ray sets aside on each host.", "Ray")
    address: str | None = option(
        None, "The cluster, such as HOST:6379.", "Ray", shown="$RAY_ADDRESS"
    )
    backend: str = "jax"
    wait: float = option(3600.0, "How long to wait for the resources.", "Time limits", unit="s")
    keep: float = option(
        24.0, "How long the cluster keeps logs and value.", "Ray", name="--keep-for", unit="h"
    )

    def __post_init__(self) -> None:
        # Other shells need not have the variable, nor be on this machine's cluster.
        object.__setattr__(self, "address", self.address or os.environ.get("RAY_ADDRESS") or None)

    def check_settings(self) -> None:
        """As `Target.check_settings`."""
        super().check_settings()
        if self.topology is None and self.slices != 1:
            raise InvalidArgumentError(
                f"{argument('slices')} needs {argument('topology')}, such as v6e-16"
            )
        if self.topology is not None and (self.hosts != 1 or self.num_gpus):
            raise InvalidArgumentError(
                "a slice has its own hosts and no GPUs: pass "
                f"{argument('topology')} and {argument('slices')}, or {argument('hosts')} and "
                f"{argument('num_gpus')}"
            )
        self._slice()
        self._check_port()

    def _check_port(self) -> None:
        host, _, port = (self.address or "").rpartition(":")
        if host and port.isdecimal() and not 0 < int(port) < 65536:
            raise InvalidArgumentError(
                f"{argument('address')}, or RAY_ADDRESS, must have a port from 1 to 65535, such as "
                f"HOST:6379, got port {port} in {self.address!r}"
            )

    def check(self) -> None:
        """As `Target.check`."""
        self.check_settings()
        if importlib.util.find_spec("ray") is None:
            raise RequirementError(
                "Ray is not installed; install it with: python -m pip install 'pyreactant[ray]'"
            )

    def check_julia(self, name: str) -> None:
        """As `Target.check_julia`: the cluster has its own Julia, and each process checks it."""

    def plan(self, record: Record) -> str:
        """As `Target.plan`."""
        slices = self._slice()
        if slices is None:
            each = f"{self.num_cpus:g} CPU" + (f" and {self.num_gpus} GPU" if self.num_gpus else "")
            reserve = f"placement group of {counted(self.hosts, 'host')} with {each}"
            hosts = self.hosts
        else:
            reserve = (
                f'SlicePlacementGroup(topology="{shape_text(slices.shape)}", '
                f'accelerator_version="{slices.generation}", num_slices={self.slices})'
            )
            hosts = slices.hosts
        lines = [
            f"cluster    {self.address or 'that of this machine'}",
            f"keeper     detached actor {_name(record)} on the head",
            f"reserve    {reserve}, within {self.wait:g} s",
            f"run        {counted(hosts, 'process')}, one on each host: pyreactant "
            f"{' '.join(self._arguments(record))}",
            f"keep       logs and value on the cluster until they are fetched, {self.keep:g} h",
        ]
        return "\n".join(lines)

    def start(self, record: Record) -> None:
        """As `Target.start`: the actor's name follows from the record's id."""
        # A child of its own holds the lock as well, so that a job that is being handed over
        # counts as such even if this process is killed. Later questions go to the same child.
        lock = lock_of(record)
        cluster = Cluster(self.address or "auto", pass_fds=[lock])
        archive = record.folder / "job.tar.gz"
        try:
            cluster.connect()
            _write_archive(archive, record)
            handle = {"address": cluster.address}
            record.write_handle(handle)  # from now on the keeper may be there
            asked = {"name": _name(record), "text": self._text(record), "archive": str(archive)}
            cluster.ask(600, do="start", lock=lock, **asked)
            record.write_handle({**handle, "started": True})
            (record.work / "env.json").unlink(missing_ok=True)  # the cluster has it now
            keep(cluster)
        except BaseException as error:
            cluster.close()
            if isinstance(error, Exception) and record.handle():  # the keeper may be there
                with contextlib.suppress(UnreachableError):
                    self._ask(record, "close", _ASK)
            raise
        finally:
            archive.unlink(missing_ok=True)

    def status(self, record: Record) -> Status:
        """As `Target.status`."""
        status = record.status()
        if status.ended or record.is_kept():
            return status
        if "address" not in record.handle():
            return record.write_gone(_NOT_STARTED)
        try:
            answer = self._ask(record, "status", _STATUS)
        except UnreachableError as error:
            noted = {**dataclasses.asdict(status), "reason": str(error)}
            return Unanswered(**noted, gone=error.gone)
        if "absent" in answer:
            if record.status().state == "requested" and not record.handle().get("started"):
                return record.write_gone(_NOT_STARTED)
            return record.write_gone(
                "its keeper on the cluster is gone: the head was restarted, or killed it, or "
                f"nobody fetched the value within {self.keep:g} h"
            )
        if answer["state"] == "requested":
            return status
        known = {name: answer[name] for name in ("state", "reason", "exit_code", "cause")}
        return record.write_status(Status(**known))

    def logs(self, record: Record, process: int) -> Path:
        """As `Target.logs`."""
        path = record.run / f"process-{process}.log"
        handle = record.handle()
        if "address" in handle and not handle.get("fetched"):
            try:
                self._ask(record, "logs", _BRING, process=process)
            except UnreachableError:
                pass  # what came before is there
        return path

    def fetch(self, record: Record) -> None:
        """As `Target.fetch`; the keeper ends with it."""
        handle, status = record.handle(), record.status()
        if "address" not in handle or handle.get("fetched") or not status.ended:
            return
        over = status.state in ("lost", "cancelled")  # there may be logs, but no value
        try:
            answer = self._ask(record, "fetch", _BRING)
        except UnreachableError:
            if over:
                return
            raise
        if "absent" in answer and not over:
            raise RequirementError(
                f"the logs and the value of the job {record.id} are lost: its keeper on the Ray "
                f"cluster at {handle['address']} is gone"
            )
        record.write_handle({**handle, "fetched": True})

    def discard(self, record: Record) -> None:
        """As `Target.discard`: the keeper ends, with the logs and the value that nobody fetched."""
        handle = record.handle()
        if "address" in handle and not handle.get("fetched"):
            try:
                self._ask(record, "close", _ASK)
            except UnreachableError as error:
                if not error.gone:
                    say(
                        f"the keeper of the job {record.id} could not be ended, and stays on the "
                        f"cluster for at most {self.keep:g} h: {error}"
                    )

    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """As `Target.cancel`; if nothing listens at the cluster's address, the job is lost."""
        status = self.status(record)
        if not status.ended:
            record.ask_to_cancel()
            status = self._end(record, _END if timeout is None else timeout)
        with contextlib.suppress(RequirementError):
            self.fetch(record)  # the keeper ends with it
        return status

    def _end(self, record: Record, limit: float) -> Status:
        deadline = time.monotonic() + limit
        while record.is_kept():  # it is being handed over
            pause(record, deadline, limit)
        while not (status := self.status(record)).ended:
            try:
                self._ask(record, "cancel", _ASK)
            except UnreachableError as error:
                if not error.gone:
                    raise
                return record.write_gone(f"{error}; with the cluster its jobs have ended")
            pause(record, deadline, limit)
        return status

    def _ask(self, record: Record, do: str, limit: float, **more: Any) -> dict[str, Any]:
        address = str(record.handle()["address"])
        asked = {"do": do, "name": _name(record), "folder": str(record.folder), **more}
        return cluster_at(address).ask(limit, **asked)

    def _slice(self) -> Topology | None:
        """The slices together."""
        return None if self.topology is None else topology(self.topology, self.slices)

    def _arguments(self, record: Record) -> list[str]:
        """Arguments of ``pyreactant`` on each host."""
        platform = self.platform or ("tpu" if self.topology else None)
        options = ["--out", "../../runs", "--quiet", "--grace", "10", "--start-timeout", "300"]
        options += command_line(dataclasses.replace(self, platform=platform))
        return ["run", *options, "--", *record.command("work", "../out")]

    def _text(self, record: Record) -> str:
        """The keeper's orders, as JSON."""
        import json

        from ...supervisor.cause import EXIT_CODES

        slices = self._slice()
        asked = {
            "topology": None if slices is None else shape_text(slices.shape),
            "generation": None if slices is None else slices.generation,
            "chips": None if slices is None else slices.chips_per_host,
            "slices": self.slices,
            "hosts": self.hosts,
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "arguments": self._arguments(record),
            "settings": {"PYREACTANT_JOB": record.id},
            "wait": self.wait,
            "keep": self.keep,
            "exit_codes": EXIT_CODES,
        }
        return json.dumps(asked)


def _name(record: Record) -> str:
    return f"pyreactant-job-{record.id}"


def _write_archive(file: Path, record: Record) -> None:
    """Write pyreactant and what the job needs, as the hosts unpack it."""
    from ...queued.workers import add_package

    with (
        written(file),
        private_file(file) as opened,
        tarfile.open(fileobj=opened, mode="w:gz", compresslevel=6) as archive,
    ):
        add_package(archive)
        pack({"code/work": record.work}, archive)
