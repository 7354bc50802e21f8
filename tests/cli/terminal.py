"""`pyreactant` on a terminal."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence

from tests.harness import environment


def run(words: Sequence[str], *, columns: int = 80, code: str = "") -> tuple[int, str]:
    """Exit code and screen of a command line, or of Python code, on a terminal of its own."""
    argv = [sys.executable, *(["-c", code] if code else ["-m", "pyreactant", *words])]
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = environment(TERM="xterm")
    env.pop("COLUMNS", None)  # of the tests' own terminal; it would win over this one's width
    process = subprocess.Popen(argv, stdin=side, stdout=side, stderr=side, env=env)
    os.close(side)
    read = b""
    with contextlib.suppress(OSError):  # the end of the last process on a terminal is an error
        while part := os.read(main, 65536):
            read += part
    os.close(main)
    return process.wait(60), read.decode().replace("\r\n", "\n")
