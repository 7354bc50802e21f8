"""The roll-call's lines: only who has the secret can make one, and none works twice."""

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant._system.lines import LINE_LIMIT, Wire, WireError

SECRET = b"a secret of sixteen or more"


def pair(client_secret: bytes = SECRET) -> tuple[Wire, Wire]:
    server, client = Wire(SECRET, server=True), Wire(client_secret, server=False)
    client.read_greeting(server.greeting())
    return server, client


MESSAGES = st.dictionaries(
    st.text(),
    st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s, max_size=3)),
    max_size=4,
).map(lambda d: {**d, "type": "x"})


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(st.tuples(st.booleans(), MESSAGES), max_size=4))
def test_messages_arrive_as_they_were(said: list[tuple[bool, dict[str, object]]]) -> None:
    server, client = pair()
    server.unpack(client.pack({"type": "join"}))
    for from_server, message in said:
        source, target = (server, client) if from_server else (client, server)
        assert target.unpack(source.pack(message)) == message


@hypothesis.given(st.data())
def test_no_changed_line_is_taken(data: st.DataObject) -> None:
    server, client = pair()
    line = client.pack({"type": "join", "process": 1})
    position = data.draw(st.integers(0, len(line) - 2))
    changed = bytearray(line)
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        server.unpack(bytes(changed))


def test_no_line_works_twice_or_backwards() -> None:
    server, client = pair()
    first = client.pack({"type": "join"})
    server.unpack(first)
    second = client.pack({"type": "alive"})
    server.unpack(second)
    with pytest.raises(WireError, match="secret"):
        server.unpack(second)
    own = server.pack({"type": "go"})
    with pytest.raises(WireError, match="secret"):
        server.unpack(own)
    with pytest.raises(WireError):
        Wire(SECRET, server=True).unpack(first)  # recorded, and played to another run


def test_wrong_secret() -> None:
    server, client = pair(b"another secret, long enough")
    with pytest.raises(WireError, match="does not have this run's secret"):
        server.unpack(client.pack({"type": "join"}))


@hypothesis.given(st.binary())
def test_garbage_raises_nothing_else(line: bytes) -> None:
    server, client = pair()
    with pytest.raises(WireError):
        server.unpack(line)
    with pytest.raises(WireError):
        client.unpack(line)
    with pytest.raises(WireError):
        Wire(SECRET, server=False).read_greeting(line)


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"type":1}', b"nonsense", b"[" * 50_000])
def test_members_that_say_no_message(text: bytes) -> None:
    server, client = pair()
    server.unpack(client.pack({"type": "join"}))
    line = client._code(b"c", 1, text) + b" " + text + b"\n"
    with pytest.raises(WireError, match="message"):
        server.unpack(line)


def test_too_long() -> None:
    """It is not sent, and what comes after it is understood."""
    server, client = pair()
    for message in ({"type": "join"}, {"type": "alive"}):
        with pytest.raises(WireError, match=f"longer than {LINE_LIMIT}"):
            client.pack({"type": "x", "text": "x" * LINE_LIMIT})
        assert server.unpack(client.pack(message)) == message
