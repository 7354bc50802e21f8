"""Run a command, and kill it with everything that it started when standard input closes.

The parent holds the other end of standard input, so Julia and the processes that it compiles in
end with a setup that is killed. This runs as a script in a session of its own (see
`base.child.started`) and imports only what loads at once.
"""

import os
import signal
import sys
import threading


def main(argv: list[str]) -> int:
    """Run the command; return its exit code as shells count it."""
    threading.Thread(target=_kill_at_end_of_input, daemon=True).start()
    null = os.open(os.devnull, os.O_RDONLY)
    child = os.posix_spawnp(
        argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 0)]
    )
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _kill_at_end_of_input() -> None:
    os.read(0, 1)  # returns when the other end closes: nobody writes to it
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
