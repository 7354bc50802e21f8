"""What programs, their supervisors and the head of a run tell each other.

Each message is a frozen dataclass. On the line it is a JSON object with its "type" and its fields;
`write` and `read` are the only code that knows that. Who gets a message matches its class.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from ..base.errors import (
    DeadlineError,
    PeerLostError,
    PortTakenError,
    RendezvousError,
    RequirementError,
    code_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one process of the run.

    Attributes:
        process: Index of the process; None if only this machine's supervisor is meant.
        age: Seconds since it happened.
    """

    process: int | None = None
    age: float = 0.0


# What a program tells its supervisor, which passes it on to the head.


@dataclass(frozen=True, slots=True)
class Phase(Event):
    """The program has reached a phase; "ending" has its exit code."""

    phase: str
    collectives: int = 0
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Pulse(Event):
    """The number of collective operations begun, and whether the process waits in one."""

    collectives: int
    waiting: bool


class Kind(StrEnum):
    """What an exception is about, as its class says."""

    OTHER = "other"
    PORT_TAKEN = "port taken"
    RENDEZVOUS = "rendezvous"
    PEER_LOST = "peer lost"
    DEADLINE = "deadline"
    REQUIREMENT = "requirement"
    INTERRUPT = "interrupt"

    @classmethod
    def of(cls, error: BaseException) -> "Kind":
        """The kind of an exception."""
        match error:
            case PortTakenError():
                return cls.PORT_TAKEN
            case RendezvousError():
                return cls.RENDEZVOUS
            case PeerLostError():
                return cls.PEER_LOST
            case DeadlineError():
                return cls.DEADLINE
            case RequirementError():
                return cls.REQUIREMENT
            case KeyboardInterrupt():
                return cls.INTERRUPT
        return cls.OTHER

    @classmethod
    def _missing_(cls, value: object) -> "Kind":
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Raised(Event):
    """The exception that ends the program.

    Attributes:
        exception: Name of its type.
        message: Its text.
        traceback: With the frames of the program.
        causes: Types and texts of the exceptions that led to it, the latest first.
        code: Exit code of the process.
        kind: What the exception is about.
        peer_lost: Whether it, or one that led to it, says that another process was lost.
    """

    exception: str
    message: str
    traceback: str = ""
    causes: tuple[str, ...] = ()
    code: int | None = None
    kind: Kind = Kind.OTHER
    peer_lost: bool = False

    @classmethod
    def of(cls, error: BaseException, process: int | None = None, traceback: str = "") -> "Raised":
        """The event for an exception."""
        chain = [error]
        while (before := chain[-1].__cause__ or chain[-1].__context__) and len(chain) <= _CAUSES:
            if before in chain:
                break
            chain.append(before)
        return cls(
            type(error).__name__[:200],
            text_of(error)[:2000],
            traceback,
            tuple(f"{type(e).__name__}: {text_of(e)}"[:500] for e in chain[1:]),
            code_of(error),
            Kind.of(error),
            any(isinstance(e, PeerLostError) for e in chain),
            process=process,
        )


_CAUSES = 5
"""Exceptions before the last one that a message has."""


def text_of(error: BaseException) -> str:
    """The text of an exception, whatever its class does."""
    try:
        return str(error)
    except Exception:
        return "<the exception has no text: its __str__ raises>"


@dataclass(frozen=True, slots=True)
class GotSignal(Event):
    """A signal asks the run to stop, or warns of that."""

    number: int


@dataclass(frozen=True, slots=True)
class Cooperates(Event):
    """The program calls `reached_preemption`."""


@dataclass(frozen=True, slots=True)
class Step(Event):
    """The step that the program has begun, in answer to a preemption; None if none."""

    step: int | None


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """`reached_preemption` is true in the program."""


Record = tuple[int, float, str, float | int | str, str]
"""Step, Unix time, name, value (a text if JSON has no number for it), and reduction or ""."""


@dataclass(frozen=True, slots=True)
class Metrics(Event):
    """Numbers that the program has logged."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Idle(Event):
    """The program has made no progress for so many seconds; 0 if it goes on."""

    seconds: float


# What a supervisor notices of its programs.


@dataclass(frozen=True, slots=True)
class Spawned(Event):
    """The program was started."""

    pid: int


@dataclass(frozen=True, slots=True)
class Stalled(Event):
    """The program's pulse has stopped; its state in the kernel, in words."""

    state: str


@dataclass(frozen=True, slots=True)
class Stacks(Event):
    """The Python stacks of the program's threads."""

    stacks: str


@dataclass(frozen=True, slots=True)
class Killed(Event):
    """Command lines of what the program left behind, which was killed."""

    killed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogFailed(Event):
    """The program's log is not complete."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class Exited(Event):
    """The program has ended.

    Attributes:
        code: Its exit code, negative for a signal.
        log_tail: The last lines of its output.
        by_supervisor: Whether its supervisor sent that signal.
        out_of_memory: Whether the kernel killed it for lack of memory.
    """

    code: int
    log_tail: str
    by_supervisor: bool = False
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class GaveUp(Event):
    """The supervisor ended its program without an order."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The supervisor has ended the program, as ordered."""


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The head has lost the supervisor of the process."""

    why: str


# What the head orders its agents, and they their programs.


@dataclass(frozen=True, slots=True)
class Order:
    """Something that the head wants done on every machine."""


@dataclass(frozen=True, slots=True)
class Go(Order):
    """Start the programs.

    Attributes:
        run: Name of the run, and of this attempt.
        folder: Folder of the logs.
        num_processes: Number of processes of the run.
        coordinator: Address for the runtime's coordinator; None for one process.
        restarts: How often the programs were started before.
        mtls: Whether the programs have certificates.
    """

    run: str
    folder: str
    num_processes: int
    coordinator: str | None
    restarts: int
    mtls: bool = False


@dataclass(frozen=True, slots=True)
class SendSignal(Order):
    """Pass a signal on to the programs."""

    number: int


@dataclass(frozen=True, slots=True)
class Preempt(Order):
    """Ask the programs for their steps."""


@dataclass(frozen=True, slots=True)
class StopAt(Order):
    """Tell the programs at which step they stop."""

    step: int


@dataclass(frozen=True, slots=True)
class SendStacks(Order):
    """Emit the stacks of the programs, which go on."""


@dataclass(frozen=True, slots=True)
class End(Order):
    """End the programs, after their stacks if these are wanted."""

    stacks: bool = False


# What supervisors tell each other besides.


@dataclass(frozen=True, slots=True)
class Join:
    """The first message of a supervisor to the head.

    Attributes:
        process: Its process index.
        num_processes: Number of processes of the run, as it knows it.
        host: Name of its machine.
        pid: Its process id.
        facts: Versions and settings, to compare with those of the others.
        mtls: Its public key, or why it has none.
        cannot_start: Why it cannot start its program; "" if it can.
        exit_code: Its exit code in that case.
    """

    process: int
    num_processes: int
    host: str
    pid: int
    facts: Mapping[str, str]
    mtls: Mapping[str, str] = field(default_factory=dict)
    cannot_start: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """The head's answer to a process of its run, with its certificate, if it gets one."""

    mtls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """The head's answer to another, with the exit code to take; None for its own."""

    why: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """A heartbeat."""


@dataclass(frozen=True, slots=True)
class Report:
    """The run is over."""

    exit_code: int
    summary: str


Message = Event | Order | Join | Admitted | Refused | Alive | Report

FROM_PROGRAM: Mapping[str, type[Event]] = {
    "phase": Phase,
    "pulse": Pulse,
    "error": Raised,
    "signal": GotSignal,
    "cooperates": Cooperates,
    "step": Step,
    "stopped": Stopped,
    "metrics": Metrics,
    "idle": Idle,
}
"""What a program may say of itself."""

EVENTS: Mapping[str, type[Event]] = {
    **FROM_PROGRAM,
    "spawned": Spawned,
    "stalled": Stalled,
    "stacks": Stacks,
    "killed": Killed,
    "log_failed": LogFailed,
    "exited": Exited,
    "gave_up": GaveUp,
    "ended": Ended,
    "lost": Lost,
}
"""What a supervisor tells the head of its processes."""

ORDERS: Mapping[str, type[Order]] = {
    "go": Go,
    "signal": SendSignal,
    "preempt": Preempt,
    "stop_at": StopAt,
    "stacks": SendStacks,
    "end": End,
}
"""What the head orders."""

FROM_HEAD: Mapping[str, type[Order | Admitted | Refused | Alive | Report]] = {
    **ORDERS,
    "admitted": Admitted,
    "refused": Refused,
    "alive": Alive,
    "report": Report,
}
"""What the head tells a supervisor."""

FIRST: Mapping[str, type[Join]] = {"join": Join}
"""What a supervisor may say first."""

_TYPES = {kind: name for table in (EVENTS, FROM_HEAD, FIRST) for name, kind in table.items()} | {
    Alive: "alive"
}

M = TypeVar("M")


def write(message: Message) -> dict[str, Any]:
    """The JSON object of a message."""
    kind = type(message)
    return {"type": _TYPES[kind], **{f: getattr(message, f) for f, _, _ in _fields(kind)}}


def read(table: Mapping[str, type[M]], message: Any) -> M | None:
    """The message that a JSON object is.

    Args:
        table: The messages that may come.
        message: The object. Fields that its message does not have are ignored.

    Returns:
        The message; None if the object is none of these: another type, or a field that is absent
        or of another type.
    """
    try:
        kind = table[message["type"]]
        given = {}
        for name, convert, required in _fields(kind):
            if required or name in message:
                given[name] = convert(message[name])
        return kind(**given)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None  # another version's message, or a program that wrote to its supervisor's line


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(map(str, value))


def _record(step: Any, at: Any, name: Any, value: Any, reduction: Any) -> Record:
    if isinstance(value, bool):
        raise TypeError
    float(value)
    return operator.index(step), float(at), _text(name), value, _text(reduction)


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


_CONVERT: Mapping[Any, Callable[[Any], Any]] = {
    int: operator.index,
    int | None: _or_none(operator.index),
    float: float,
    bool: bool,
    str: _text,
    str | None: _or_none(_text),
    tuple[str, ...]: _texts,
    Mapping[str, str]: lambda value: {str(k): str(v) for k, v in value.items()},
    Kind: Kind,
    tuple[Record, ...]: lambda value: tuple(_record(*each) for each in value),
}

_known: dict[type, list[tuple[str, Callable[[Any], Any], bool]]] = {}


def _fields(kind: type) -> list[tuple[str, Callable[[Any], Any], bool]]:
    """Name and conversion of each field of a message, and whether it must be there."""
    if kind not in _known:
        _known[kind] = [
            (f.name, _CONVERT[f.type], f.default is MISSING and f.default_factory is MISSING)
            for f in fields(kind)
        ]
    return _known[kind]
