"""XLA for the library of the tests: serve its requests over a socket until it closes it.

Started by the library as `python -I main.py FILE_DESCRIPTOR`.
"""

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # -I leaves the script's folder out

# The library's process handles signals for the group; this one ends when that one does.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)

import jax

# Reactant decides about dtypes, and this process never asks for a backend of jax itself.
jax.config.update("jax_enable_x64", True)

import arrays
import clients
import programs
from objects import release
from wire import Answer, Message, receive, send

OPERATIONS: dict[str, Callable[[Message, Answer], None]] = {
    **clients.OPERATIONS,
    **arrays.OPERATIONS,
    **programs.OPERATIONS,
}


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    while (message := receive(connection)) is not None:
        send(connection, _answer(message))
    os._exit(0)


def _answer(message: Message) -> Answer:
    release(message.numbers())
    name = message.text()
    answer = Answer().number(0)
    try:
        OPERATIONS[name](message, answer)
    except Exception as error:
        return Answer().number(1).text(f"{name}: {error}")
    return answer


def _end_with(connection: socket.socket) -> None:
    """End this process with the library's, also during a call that waits for other processes."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


main()
