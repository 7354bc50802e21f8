"""What programs, their supervisors and the head of a run tell each other.

Each message is an immutable object with fields. On the line it is a JSON object with its "type" and
its fields, which `write` and `read` make and take; a connection may add what it alone knows, such
as the time or the process. Who gets a message matches its class.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from ..base.errors import (
    DeadlineError,
    PeerLostError,
    PortTakenError,
    PyReactantError,
    RendezvousError,
    RequirementError,
    code_of,
)


@dataclass_transform(frozen_default=True)
class Message:
    """Any message; its subclasses say who may send it.

    A subclass states its fields as a dataclass does, and type checkers see a frozen one. At run
    time it is none, because every program of a run makes all these classes at its start, and a
    dataclass takes ten times as long to make.
    """

    fields: ClassVar[Mapping[str, type]] = {}
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        own = cls.__annotations__
        cls.fields = {**cls.fields, **own}
        cls.__match_args__ += () if kw_only else tuple(own)  # type: ignore[misc]
        _KINDS[cls.__name__] = cls

    def __init__(self, *values: Any, **named: Any) -> None:
        given = {**dict(zip(self.__match_args__, values, strict=False)), **named}
        lacking = [name for name in self.fields if not (name in given or hasattr(self, name))]
        if (
            lacking
            or len(given) < len(values) + len(named)
            or not given.keys() <= self.fields.keys()
        ):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.fields)}; got {given}")
        self.__dict__.update(given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and write(self) == write(other)

    def __repr__(self) -> str:
        given = (f"{name}={getattr(self, name)!r}" for name in self.fields)
        return f"{type(self).__name__}({', '.join(given)})"

    def but(self, **changes: Any) -> Self:
        """The same message with other values in some fields."""
        return type(self)(**{**self.__dict__, **changes})


M = TypeVar("M", bound=Message)

_KINDS: dict[str, type[Message]] = {}


class Event(Message, kw_only=True):
    """Something that happened to one process of the run, as its supervisor tells the head.

    Attributes:
        process: Index of the process; None if only this machine's supervisor is meant.
        age: Seconds since it happened.
    """

    process: int | None = None
    age: float = 0.0


class ProgramEvent(Event):
    """What a program may say of itself; its supervisor passes it on to the head."""


class Phase(ProgramEvent):
    """The program has reached a phase.

    Attributes:
        phase: Its name.
        collectives: Number of collective operations begun.
        code: The exit code of a program that is "ending".
        alone: Whether such a program has loaded a runtime, and not called JAX's initialize.
    """

    phase: str
    collectives: int = 0
    code: int | None = None
    alone: bool = False


class Pulse(ProgramEvent):
    """The number of collective operations begun, and whether the process waits in one.

    Attributes:
        saving: Whether it writes or reads a checkpoint, in whichever thread.
    """

    collectives: int
    waiting: bool
    saving: bool = False


class Kind(StrEnum):
    """What an exception is about, as its class says."""

    OTHER = "other"
    PORT_TAKEN = "port taken"
    RENDEZVOUS = "rendezvous"
    PEER_LOST = "peer lost"
    DEADLINE = "deadline"
    REQUIREMENT = "requirement"
    INTERRUPT = "interrupt"

    @staticmethod
    def of(error: BaseException) -> "Kind":
        """The kind of an exception."""
        return next((kind for cls, kind in _CLASSES if isinstance(error, cls)), Kind.OTHER)

    @classmethod
    def _missing_(cls, value: object) -> "Kind":
        return cls.OTHER


_CLASSES: Sequence[tuple[type[BaseException], Kind]] = (
    (PortTakenError, Kind.PORT_TAKEN),  # a RendezvousError, too
    (RendezvousError, Kind.RENDEZVOUS),
    (PeerLostError, Kind.PEER_LOST),
    (DeadlineError, Kind.DEADLINE),
    (RequirementError, Kind.REQUIREMENT),
    (KeyboardInterrupt, Kind.INTERRUPT),
)


class Raised(ProgramEvent):
    """The exception that ends the program.

    Attributes:
        exception: Name of its type.
        message: Its text.
        traceback: With the frames of the program.
        causes: Types and texts of the exceptions that led to it and are not pyreactant's own, the
            latest first.
        code: Exit code of the process.
        kind: What the exception is about.
        peer_lost: Whether it, or one that led to it, says that another process was lost.
        own: Whether it is pyreactant's own, so that its kind says what it is about, not its words.
        relayed: Whether it, or one that led to it, only says that another process failed.
    """

    exception: str
    message: str
    traceback: str = ""
    causes: tuple[str, ...] = ()
    code: int | None = None
    kind: Kind = Kind.OTHER
    peer_lost: bool = False
    own: bool = False
    relayed: bool = False

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
            tuple(
                f"{type(e).__name__}: {text_of(e)}"[:500]
                for e in chain[1:]
                if not isinstance(e, PyReactantError)
            ),
            code_of(error),
            Kind.of(error),
            any(isinstance(e, PeerLostError) for e in chain),
            isinstance(error, PyReactantError),
            any(getattr(e, "failed_process", None) is not None for e in chain),
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


class GotSignal(ProgramEvent):
    """A signal asks the run to stop, or warns of that."""

    number: int


class Cooperates(ProgramEvent):
    """The program calls `reached_preemption`."""


class Step(ProgramEvent):
    """The step that the program has begun, in answer to a preemption; None if none."""

    step: int | None


class Stopped(ProgramEvent):
    """`reached_preemption` is true in the program."""


Record = tuple[int, float, str, float | int | str, str]
"""Step, Unix time, name, value (a text if JSON has no number for it), and reduction or ""."""


class Metrics(ProgramEvent):
    """Numbers that the program has logged."""

    records: tuple[Record, ...]


class Compiled(ProgramEvent):
    """What the program has compiled and loaded so far.

    Attributes:
        compiled: Programs that were compiled, and the seconds that this took.
        loaded: Programs that a cache had, of pyreactant's or JAX's own, and the seconds.
        cache: The folder of pyreactant's cache; "off: " and the reason if it cannot be used; "" if
            none was asked for.
    """

    compiled: int
    compile_seconds: float
    loaded: int
    load_seconds: float
    cache: str = ""


class Profiled(ProgramEvent):
    """What became of the profile that the user of the run asked for.

    Attributes:
        file: The profile of this process; "" if there is none.
        note: What is missing, and why; "" if nothing is.
        began_ns: When it began, in Unix nanoseconds by the clock of this host; 0 if that is not
            known.
    """

    file: str
    note: str = ""
    began_ns: int = 0


class Restored(ProgramEvent):
    """The program goes on from the checkpoint of this step."""

    step: int


class WaitsFor(ProgramEvent):
    """The program waits for another process, to write or read a checkpoint with it, for instance.

    Attributes:
        what: What they do, as "save 900".
        other: Index of that process.
        seconds: How long it has waited.
    """

    what: str
    other: int
    seconds: float

    def text(self, name: str, other: str) -> str:
        """The sentence about it, with the names of both processes."""
        return f"{name} has waited {self.seconds:.0f} s in {self.what} for {other}"


class Idle(ProgramEvent):
    """The program has made no progress for so many seconds; 0 if it goes on."""

    seconds: float


# What a supervisor notices of its programs.


class Spawned(Event):
    """The program was started."""

    pid: int


class Stalled(Event):
    """The program's pulse has stopped; its state in the kernel, in words."""

    state: str


class Stacks(Event):
    """The Python stacks of the program's threads."""

    stacks: str


class Killed(Event):
    """Command lines of what the program left behind, which was killed."""

    killed: tuple[str, ...]


class LogFailed(Event):
    """The program's log is not complete."""

    path: str
    error: str


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


class GaveUp(Event):
    """The supervisor ended its program without an order."""

    why: str


class Ended(Event):
    """The supervisor has ended the program, as ordered."""


class ClockAsked(Event):
    """A supervisor asks for the time of the head's host, which is told at once.

    Attributes:
        sent_ns: When it was asked, in Unix nanoseconds by the clock of the host that asks.
    """

    sent_ns: int


class ClockCompared(Event):
    """The clock of this host, compared with that of the head's.

    Attributes:
        offset_ns: What the clock of the head's host shows beyond this one, in nanoseconds.
        error_ns: The largest error of that.
    """

    offset_ns: int
    error_ns: int


class Lost(Event):
    """The head has lost the supervisor of the process."""

    why: str


# What the head orders its agents, and they their programs.


class HeadMessage(Message):
    """What the head tells a supervisor."""


class Order(HeadMessage):
    """Something that the head wants done on every machine."""


class Go(Order):
    """Start the programs.

    Attributes:
        run: Name of the run, and of this attempt.
        folder: Folder of the logs.
        num_processes: Number of processes of the run.
        coordinator: Address for the runtime's coordinator; None for one process.
        restarts: How often the programs were started before.
        mtls: Whether the programs have certificates.
        places: The supervisors' numbers in the order of the process indices; () if each process has
            the number of its supervisor.
    """

    run: str
    folder: str
    num_processes: int
    coordinator: str | None
    restarts: int
    mtls: bool = False
    places: tuple[int, ...] = ()

    def process_index(self, place: int) -> int | None:
        """The process index of the program of a supervisor; None if it has none this time."""
        if not self.places:
            return place
        return self.places.index(place) if place in self.places else None


class SendSignal(Order):
    """Pass a signal on to the programs."""

    number: int


class Preempt(Order):
    """Ask the programs for their steps."""


class StopAt(Order):
    """Tell the programs at which step they stop."""

    step: int


class SendStacks(Order):
    """Emit the stacks of the programs, which go on."""


class End(Order):
    """End the programs, after their stacks if these are wanted."""

    stacks: bool = False


# What supervisors tell each other besides.


class Join(Message):
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
        own_name: What the machine's name resolves to on it; "" if that is not known.
        address: The machine's address on the network to the head.
        head: The head's address there.
    """

    process: int
    num_processes: int
    host: str
    pid: int
    facts: Mapping[str, str]
    mtls: Mapping[str, str] = {}
    cannot_start: str = ""
    exit_code: int = 0
    own_name: str = ""
    address: str = ""
    head: str = ""


class Admitted(HeadMessage):
    """The head's answer to a process of its run, with its certificate, if it gets one."""

    mtls: Mapping[str, str] = {}


class Refused(HeadMessage):
    """The head's answer to another, with the exit code to take; None for its own."""

    why: str
    exit_code: int | None = None


class Alive(HeadMessage):
    """A heartbeat."""


class ClockTold(HeadMessage):
    """The answer to `ClockAsked`.

    Attributes:
        sent_ns: As it was asked.
        head_ns: Unix nanoseconds by the clock of the head's host.
    """

    sent_ns: int
    head_ns: int


class Report(HeadMessage):
    """The run is over."""

    exit_code: int
    summary: str


def write(message: Message) -> dict[str, Any]:
    """The JSON object of a message."""
    values = {name: getattr(message, name) for name in message.fields}
    return {"type": type(message).__name__, **values}


def read(expected: type[M], data: Any) -> M | None:
    """The message that a JSON object is.

    Args:
        expected: Its class, or a base of those that may come.
        data: The object. Fields that its message does not have are ignored.

    Returns:
        The message; None if the object is none of these: another type, or a field that is absent
        or of another type.
    """
    try:
        kind = _KINDS[data["type"]]
        if not issubclass(kind, expected):
            return None
        return kind(**{f: _CONVERT[t](data[f]) for f, t in kind.fields.items() if f in data})
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
    tuple[int, ...]: lambda value: tuple(map(operator.index, value)),
    Mapping[str, str]: lambda value: {str(k): str(v) for k, v in value.items()},
    Kind: Kind,
    tuple[Record, ...]: lambda value: tuple(_record(*each) for each in value),
}
