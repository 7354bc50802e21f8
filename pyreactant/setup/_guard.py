"""Run a command, and kill it with all that it started when standard input closes.

Started in a session of its own, with the other end of its standard input in the hands of who
started it: so Julia and the processes that it compiles in end with a setup that is killed. It
runs as a script and imports only what takes no time.
"""

import os
import signal
import sys
import threading


def main(argv: list[str]) -> int:
    """Run the command; its exit code, as shells count it."""
    threading.Thread(target=_watch, daemon=True).start()
    null = os.open(os.devnull, os.O_RDONLY)
    child = os.posix_spawnp(
        argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 0)]
    )
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _watch() -> None:
    os.read(0, 1)  # nobody writes: it returns when the other end is closed
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
