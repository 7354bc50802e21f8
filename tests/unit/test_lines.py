"""Authenticated lines: writing one needs the secret, and no line is valid twice."""

import socket

import hypothesis
import hypothesis.strategies as st
import pytest

from pyreactant.base.lines import (
    FIRST_LIMIT,
    LINE_LIMIT,
    LineCodec,
    LineError,
    LineSocket,
    RefusedError,
    SecretError,
)

SECRET = b"a secret of sixteen or more"
CONVERSATION = "test"


def pair(client_secret: bytes = SECRET) -> tuple[LineCodec, LineCodec]:
    server, client = (
        LineCodec(SECRET, CONVERSATION, server=True),
        LineCodec(client_secret, CONVERSATION, server=False),
    )
    client.read_greeting(server.greeting())
    return server, client


MESSAGES = st.dictionaries(
    st.text(),
    st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s, max_size=3)),
    max_size=4,
).map(lambda d: {**d, "type": "x"})


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(st.tuples(st.booleans(), MESSAGES), max_size=4))
def test_messages_arrive_as_they_were(conversation: list[tuple[bool, dict[str, object]]]) -> None:
    server, client = pair()
    server.unpack(client.pack({"type": "join"}))
    for from_server, message in conversation:
        source, target = (server, client) if from_server else (client, server)
        assert target.unpack(source.pack(message)) == message


@hypothesis.given(st.data())
def test_no_changed_line_is_taken(data: st.DataObject) -> None:
    server, client = pair()
    line = client.pack({"type": "join", "process": 1})
    position = data.draw(st.integers(0, len(line) - 2))
    changed = bytearray(line)
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LineError):
        server.unpack(bytes(changed))


def test_no_line_works_twice_or_backwards() -> None:
    server, client = pair()
    first = client.pack({"type": "join"})
    server.unpack(first)
    second = client.pack({"type": "alive"})
    server.unpack(second)
    with pytest.raises(LineError, match="secret"):
        server.unpack(second)
    own = server.pack({"type": "go"})
    with pytest.raises(LineError, match="secret"):
        server.unpack(own)
    with pytest.raises(LineError):
        LineCodec(SECRET, CONVERSATION, server=True).unpack(
            first
        )  # a recorded line, replayed to another run


def test_wrong_secret() -> None:
    server, client = pair(b"another secret, long enough")
    with pytest.raises(SecretError, match="does not have this run's secret"):
        server.unpack(client.pack({"type": "join"}))
    with pytest.raises(RefusedError):
        client.unpack(server.refusal())


def test_refusal_is_only_a_first_line() -> None:
    """A refusal has no authentication code, so anyone on the network could forge a later one."""
    server, client = pair()
    server.unpack(client.pack({"type": "join"}))
    client.unpack(server.pack({"type": "go"}))
    with pytest.raises(SecretError):
        client.unpack(server.refusal())


def test_lines_of_another_conversation() -> None:
    server = LineCodec(SECRET, "a", server=True)
    with pytest.raises(LineError, match="is not the b of this version of pyreactant"):
        LineCodec(SECRET, "b", server=False).read_greeting(server.greeting())
    # A peer that relays lines from a client of "b" to the server of "a".
    client = LineCodec(SECRET, "b", server=False)
    client.read_greeting(server.greeting().replace(b" a ", b" b "))
    with pytest.raises(SecretError):
        server.unpack(client.pack({"type": "join"}))


@hypothesis.given(st.binary())
def test_garbage_raises_nothing_else(line: bytes) -> None:
    server, client = pair()
    with pytest.raises(LineError):
        server.unpack(line)
    with pytest.raises(LineError):
        client.unpack(line)
    with pytest.raises(LineError):
        LineCodec(SECRET, CONVERSATION, server=False).read_greeting(line)


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"type":1}', b"nonsense", b"[" * 50_000])
def test_members_that_say_no_message(text: bytes) -> None:
    server, client = pair()
    server.unpack(client.pack({"type": "join"}))
    line = client._code(b"c", 1, text) + b" " + text + b"\n"
    with pytest.raises(LineError, match="message"):
        server.unpack(line)


def test_too_long() -> None:
    """A line that is too long is not sent, and the next line is read."""
    server, client = pair()
    for message, limit in (({"type": "join"}, FIRST_LIMIT), ({"type": "alive"}, LINE_LIMIT)):
        with pytest.raises(LineError, match=f"longer than {limit}"):
            client.pack({"type": "x", "text": "x" * limit})
        assert server.unpack(client.pack(message)) == message
    with pytest.raises(LineError, match=f"its line is longer than {LINE_LIMIT} bytes"):
        server.unpack(b"x" * LINE_LIMIT + b"\n")


def test_a_first_line_is_short() -> None:
    """A peer that has not shown the secret cannot fill the memory; the others may send more."""
    long = {"type": "x", "text": "x" * (FIRST_LIMIT + 1)}
    server, client = pair()
    with pytest.raises(LineError, match=f"its line is longer than {FIRST_LIMIT} bytes"):
        server.unpack(b"x" * FIRST_LIMIT + b"\n")
    server.unpack(client.pack({"type": "join"}))
    assert server.unpack(client.pack(long)) == client.unpack(server.pack(long)) == long


def nested(levels: int) -> dict[str, object]:
    inner: object = 1
    for level in range(levels - 1):
        inner = [inner] if level % 2 else {"x": inner, "y": 2}
    return {"type": "x", "more": inner}


def test_depth_of_messages() -> None:
    server, client = pair()
    assert server.unpack(client.pack(nested(32))) == nested(32)
    for levels in (33, 500):
        with pytest.raises(LineError, match="nested deeper than 32 levels"):
            server.unpack(client.pack(nested(levels)))
        assert server.unpack(client.pack({"type": "alive"})) == {"type": "alive"}


def sockets(limit: int = LINE_LIMIT) -> tuple[LineSocket, LineSocket]:
    one, other = socket.socketpair()
    return (
        LineSocket(one, SECRET, CONVERSATION, server=True, limit=limit),
        LineSocket(other, SECRET, CONVERSATION, server=False, limit=limit),
    )


def test_first_messages_wait_for_the_greeting() -> None:
    server, client = sockets()
    client.send({"type": "one"})
    client.send({"type": "two", "text": "é"})
    assert client.receive() == []
    assert server.receive() == [{"type": "one"}, {"type": "two", "text": "é"}]
    server.send({"type": "three"})
    assert client.receive() == [{"type": "three"}]
    server.close()
    with pytest.raises(OSError, match="closed the connection"):
        client.receive()
    client.close()


def test_lines_in_pieces() -> None:
    """Lines arrive in pieces; the message is complete with the last piece."""
    one, other = socket.socketpair()
    server = LineSocket(one, SECRET, CONVERSATION, server=True)
    client = LineCodec(SECRET, CONVERSATION, server=False)
    client.read_greeting(other.recv(4096))
    line = client.pack({"type": "join"}) + client.pack({"type": "alive"})
    received = []
    for start in range(0, len(line), 50):
        other.sendall(line[start : start + 50])
        received.append(server.receive())
    assert [m for messages in received for m in messages] == [{"type": "join"}, {"type": "alive"}]
    assert len(received) > 4
    server.close()
    other.close()


def test_a_line_without_end() -> None:
    server, client = sockets(limit=1000)
    client.connection.sendall(b"x" * 1001)
    with pytest.raises(LineError, match="longer than 1000 bytes"):
        server.receive()
    server.close()
    client.close()


def test_nothing_follows_part_of_a_line() -> None:
    """A truncated line ends the connection, because the next lines would be invalid."""
    server, client = sockets()
    client.receive()
    server.connection.shutdown(socket.SHUT_RD)
    client.send({"type": "lost"})
    with pytest.raises(OSError, match="closed"):
        client.receive()
    server.close()
    client.close()
