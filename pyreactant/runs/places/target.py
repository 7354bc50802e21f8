"""What every place where jobs run must do."""

import abc
import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ...base.errors import (
    DeadlineError,
    FileError,
    InvalidArgumentError,
    PyReactantError,
    argument,
)
from ..record import DamagedError, Record, Status
from ..spec import Processes, fits, words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target(Processes, abc.ABC):
    """A place that starts a command on processes.

    It is a frozen dataclass of plain settings, so that a job's record can hold it and any shell can
    make it again. What a target knows about a job lies in the job's record, never in the target.
    tests/jobs checks the laws of the methods for each target (test_laws.py, test_tpu.py,
    test_ray_target.py). A file or a folder beside this one has one target.

    Every job has a keeper: a process (or Slurm's batch script, or a detached actor) that goes on
    when the submitting process ends. It writes the job's states, brings logs and value to the
    record's folder, or keeps them until `fetch`, and deletes what costs money.
    """

    kind: ClassVar[str]
    """The name in records and on the command line, such as "slurm"."""
    known: ClassVar[Mapping[str, Sequence[str]]] = {
        "platform": ("cpu", "gpu", "tpu"),
        "backend": ("jax", "reactant"),
    }
    """What some settings may be."""
    least: ClassVar[Mapping[str, int]] = {"devices_per_process": 1, "max_restarts": 0}
    """What some settings must be at least."""
    forms: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """What some texts must look like, as a pattern and in words."""
    stays: ClassVar[bool] = False
    """Whether a process in the foreground keeps the job itself, by `stay`, and shows its output."""

    def settings(self) -> dict[str, Any]:
        """The settings as plain JSON, without defaults; `targets.make` makes the target again."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def check_settings(self) -> None:
        """Check what needs no tool, for a dry run, too.

        Raises:
            InvalidArgumentError: A setting is wrong.
        """
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if not fits(value, field.type):
                raise InvalidArgumentError(
                    f"{argument(name)} must be {words(field.type)}, got {value!r}"
                )
            if isinstance(value, float | int) and "float" in str(field.type) and value <= 0:
                raise InvalidArgumentError(
                    f"{argument(name)} must be a positive number, got {value!r}"
                )
            if name in self.known and value is not None and value not in self.known[name]:
                raise InvalidArgumentError(
                    f"{argument(name)} must be one of {', '.join(self.known[name])}, got {value!r}"
                )
            if name in self.forms and value is not None:
                form, meaning = self.forms[name]
                for text in value if isinstance(value, tuple) else [value]:
                    if not re.fullmatch(form, text):
                        raise InvalidArgumentError(
                            f"{argument(name)} must be {meaning}, got {text!r:.300}"
                        )
            least = self.least.get(name)
            if least is not None and value is not None and value < least:
                raise InvalidArgumentError(f"{argument(name)} must be {least} or more, got {value}")

    def check(self) -> None:
        """Check the settings and the tools that `start` needs, before a record exists.

        Law: it changes nothing and asks for nothing that costs; it takes at most a second.

        Raises:
            RequirementError: A tool is absent; the message has the command that mends it.
            InvalidArgumentError: A setting is wrong.
        """
        self.check_settings()

    def check_julia(self, name: str) -> None:
        """Check that a Julia program can run there, by what this machine knows.

        By default the processes have the PATH and the packages of this machine.

        Args:
            name: Name or path of the executable.

        Raises:
            RequirementError: Julia is absent.
            InvalidArgumentError: A setting is wrong for Julia.
        """
        from ..call import find_julia  # what reads programs, which a list of jobs does not need

        find_julia(name)

    @abc.abstractmethod
    def plan(self, record: Record) -> str:
        """What `start` would ask for, as text: a batch script, requests.

        Law: the same record gives the same text, without any tool, and nothing changes. No secret
        is in it. `record.folder` need not exist.
        """

    @abc.abstractmethod
    def start(self, record: Record) -> None:
        """Ask for the resources and hand the job to its keeper.

        The record, with everything in `record.work`, is on the disk before this call, and this
        process holds the record's lock. Law: if this process is killed at any point in the call,
        `status` says what became of the job and `cancel` ends it. So either the request has a name
        that follows from `record.id`, or `record.write_handle` stands before it. Once this returns,
        the job does not need this process.

        Raises:
            PyReactantError: Nothing was started, and nothing that costs is left.
        """

    def stay(self, record: Record) -> Status:
        """Ask for the resources, keep the job in this process until its end, and show its output.

        Raises:
            PyReactantError: Nothing was started, and nothing that costs is left.
        """
        raise NotImplementedError(f"{self.kind} has a keeper of its own")

    @abc.abstractmethod
    def status(self, record: Record) -> Status:
        """How the job stands now.

        Law: it never raises because a job has ended or is forgotten. A state in `ENDED` is final:
        every later call returns the same. A job that no keeper holds any more is "lost". A call
        asks a controller at most every two seconds for all jobs together.
        """

    @classmethod
    def statuses(cls, jobs: Sequence[tuple["Target", Record]]) -> dict[str, Status | FileError]:
        """How many jobs stand, by their ids; the error of a record that does not say it.

        Law: it never raises; that a place does not answer is the reason of its jobs. By default
        each job is asked for by itself.

        Args:
            jobs: The jobs, each with its target, which is of this class.
        """
        return {record.id: _status(target, record) for target, record in jobs}

    def logs(self, record: Record, process: int) -> Path:
        """Bring what is new of one process's output, and name its file in the record's folder.

        Law: the file only grows (a later file begins with an earlier one); it may not exist yet.
        After the end it is whole. By default the processes write there themselves.
        """
        return record.log(process)

    def fetch(self, record: Record) -> None:
        """Bring the run's report to `record.run` and what the processes left to `record.out`.

        Law: after the end of a job, and after this call, everything that there is lies in the
        record's folder; a second call does nothing. A value that is cut short is not there.

        Raises:
            FileError: The value does not fit on the disk; it can be fetched again.
            RequirementError: The place of the value is gone, or cannot be reached now.
        """

    def value_store(self, record: Record) -> str:
        """The folder of Cloud Storage to which process 0 also copies the value; "" for none."""
        return ""

    def discard(self, record: Record) -> None:
        """Give up what the keeper of an ended job still holds; its record is about to go."""

    @abc.abstractmethod
    def cancel(self, record: Record, timeout: float | None = None) -> Status:
        """End the job and wait until nothing of it runs or costs anything.

        Law: the request to end goes out first, so that an interrupted call still ends the job. It
        may be called in every state and again; an ended job keeps its state, and any other one is
        "cancelled". It works without the submitting process, and also for a job that is lost or
        whose `start` was killed.

        Args:
            record: The job.
            timeout: Seconds to wait at most; None for the target's own limit.

        Raises:
            DeadlineError: It has not ended in time; its keeper goes on ending it.
            CloudError: What costs money may still be there.
        """


def pause(record: Record, deadline: float, limit: float) -> None:
    """Wait a moment for the end of a job.

    Raises:
        DeadlineError: The time of `limit` seconds is over.
    """
    if time.monotonic() > deadline:
        raise DeadlineError(
            f"the job {record.id} did not end within {limit:g} s; its keeper goes on ending it"
        )
    time.sleep(0.2)


def _status(target: Target, record: Record) -> Status | FileError:
    try:
        return target.status(record)
    except DamagedError as error:
        return error
    except PyReactantError as error:
        return with_reason(record, error)


def with_reason(record: Record, error: PyReactantError) -> Status | FileError:
    """How a job stood last, with the reason why it is not known how it stands now."""
    try:
        status = record.status()
    except FileError as damaged:
        return damaged
    return status if status.ended else dataclasses.replace(status, reason=str(error))
