"""Messages between programs, supervisors and the head: what is written is read, or ignored."""

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import pyreactant as pr
from pyreactant.base.errors import PeerLostError, PortTakenError
from pyreactant.process.events import (
    Event,
    Exited,
    Go,
    HeadMessage,
    Join,
    Kind,
    Message,
    Phase,
    ProgramEvent,
    Raised,
    Step,
    StopAt,
    read,
    write,
)

EXPECTED = (Event, HeadMessage, Join)
"""What one end of a line or the other may read."""

VALUES: dict[Any, Any] = {
    int: 3,
    int | None: None,
    float: 0.5,
    bool: True,
    str: "text é\n",
    str | None: "text",
    tuple[int, ...]: (0, 2),
    tuple[str, ...]: ("a", "b"),
    Kind: Kind.PORT_TAKEN,
}


def example(kind: type[Message]) -> Message:
    """A message whose fields all have another value than their default."""
    values: dict[str, Any] = {}
    for name, annotation in kind.fields.items():
        if name == "records":
            values[name] = ((1, 0.5, "loss", "nan", "mean"),)
        elif name in ("facts", "mtls"):
            values[name] = True if annotation is bool else {"jax": "0.9"}
        else:
            values[name] = VALUES[annotation]
    return kind(**values)


def leaves(kind: type[Message]) -> list[type[Message]]:
    """The messages below a base class."""
    return [leaf for each in kind.__subclasses__() for leaf in leaves(each)] or [kind]


ALL = [(expected, kind) for expected in EXPECTED for kind in leaves(expected)]


@pytest.mark.parametrize(("expected", "kind"), ALL, ids=lambda value: value.__name__)
def test_what_is_written_is_read(expected: type[Message], kind: type[Message]) -> None:
    message = example(kind)
    data = json.loads(json.dumps(write(message)))
    assert data["type"] == kind.__name__
    assert read(expected, data) == message
    # Of another version: a field more is ignored, and a field less if it has a default.
    assert read(expected, {**data, "new": [1]}) == message
    for name in kind.fields:
        less = read(expected, {k: v for k, v in data.items() if k != name})
        assert (less is None) == (not hasattr(kind, name))


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2), {}), ((1,), {"step": 1}), ((1,), {"stop": 2})]
)
def test_a_message_has_its_fields_once(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="StopAt takes step; got"):
        StopAt(*values, **named)


def test_a_message_has_the_text_of_its_fields() -> None:
    assert repr(StopAt(7)) == "StopAt(step=7)"
    assert StopAt(7).but(step=8) == StopAt(step=8) != StopAt(7)


def test_a_message_is_plain_json() -> None:
    """Programs in any language can write these."""
    assert write(Phase("started", process=1)) == {
        "type": "Phase",
        "phase": "started",
        "collectives": 0,
        "code": None,
        "alone": False,
        "process": 1,
        "age": 0.0,
    }
    assert read(Event, {"type": "Phase", "phase": "x"}) == Phase("x")
    assert write(StopAt(7)) == {"type": "StopAt", "step": 7}


@pytest.mark.parametrize(
    "strange",
    [
        None,
        3,
        [],
        {},
        {"type": 3},
        {"type": []},
        {"type": "nonsense"},
        {"type": "Go"},
        {"type": "Exited", "code": 1},
        {"type": "Exited", "code": "1", "log_tail": ""},
        {"type": "Exited", "code": 1.5, "log_tail": ""},
        {"type": "Exited", "code": 1, "log_tail": None},
        {"type": "Exited", "code": 1, "log_tail": "", "age": "old"},
        {"type": "Exited", "code": 1, "log_tail": "", "age": 10**400},
        {"type": "Killed", "killed": "text"},
        {"type": "Step"},
    ],
)
def test_what_is_no_event_is_ignored(strange: Any) -> None:
    assert read(Event, strange) is None


def test_a_program_speaks_for_itself_only() -> None:
    ended = write(Exited(0, ""))
    assert read(Event, ended) == Exited(0, "")
    assert read(ProgramEvent, ended) is None
    assert read(ProgramEvent, write(Step(3))) == Step(3)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
)


@hypothesis.settings(max_examples=200)
@hypothesis.given(st.data())
def test_any_values_give_a_message_or_none(data: st.DataObject) -> None:
    expected, kind = data.draw(st.sampled_from(ALL))
    values = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(kind.fields, ANYTHING)))
    message = read(expected, {"type": kind.__name__, **values})
    assert message is None or read(expected, json.loads(json.dumps(write(message)))) is not None


def caused(error: BaseException, by: BaseException) -> BaseException:
    error.__cause__ = by
    return error


class DeadlineError(Exception):
    """A user's own class."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PortTakenError("x"), Kind.PORT_TAKEN),
        (pr.RendezvousError("x"), Kind.RENDEZVOUS),
        (PeerLostError("x"), Kind.PEER_LOST),
        (pr.DeadlineError("x"), Kind.DEADLINE),
        (pr.RequirementError("x"), Kind.REQUIREMENT),
        (KeyboardInterrupt(), Kind.INTERRUPT),
        (DeadlineError("x"), Kind.OTHER),
        (ValueError("x"), Kind.OTHER),
    ],
)
def test_the_kind_of_an_exception(error: BaseException, kind: Kind) -> None:
    assert Raised.of(error).kind is kind
    assert Raised.of(error).peer_lost == (kind is Kind.PEER_LOST)
    assert Raised.of(caused(ValueError("y"), error)).kind is Kind.OTHER
    assert Raised.of(caused(ValueError("y"), error)).peer_lost == (kind is Kind.PEER_LOST)


def test_an_exception_of_pyreactant_says_so() -> None:
    ours = caused(pr.DeadlineError("c"), caused(PortTakenError("UNAVAILABLE"), ValueError("b")))
    assert (Raised.of(ours).own, Raised.of(ours).causes) == (True, ("ValueError: b",))
    assert not Raised.of(ValueError("b")).own


def test_an_unknown_kind_is_none_of_ours() -> None:
    data = {**write(Raised("E", "m")), "kind": "of a later version"}
    assert read(Event, data) == Raised("E", "m")


def test_the_exceptions_before_it() -> None:
    first = caused(KeyError("a"), ValueError("b"))
    assert Raised.of(caused(TypeError("c"), first)).causes == ("KeyError: 'a'", "ValueError: b")
    first.__cause__ = first  # a circle ends
    assert Raised.of(first).causes == ()


def test_go_says_all_that_a_machine_needs() -> None:
    assert read(HeadMessage, write(Go("r-0", "out", 2, None, 0))) == Go("r-0", "out", 2, None, 0)
    assert read(Join, write(Join(1, 2, "h", 3, {}))) == Join(1, 2, "h", 3, {})
