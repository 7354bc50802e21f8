"""Child processes: their environment, their end with this process, and one JSON request.

A child that runs `serve` gets its request as one line of standard input and answers with one line
on the original standard output; all other output goes to standard error. If standard input closes,
the parent is gone and the child ends. SIGKILL alone does not tell why a child ended;
`out_of_memory_kills` does.
"""

import contextlib
import json
import os
import queue
import re
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from .errors import DeadlineError, ExitCode, PyReactantError, as_data, from_data
from .packages import broken_package
from .words import fatal

LAUNCHERS = (
    *("PYREACTANT_", "SLURM_", "OMPI_", "PMI", "PRTE_", "MPI_LOCAL"),
    *("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_"),
)
"""Prefixes of the variables that make a process one of several of a run."""

TPU = ("TPU_", "MEGASCALE_", "CLOUD_TPU_")
"""Prefixes of the variables that describe this machine's TPU and its slice."""


def without(*prefixes: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of an environment without the variables that begin with one of these prefixes."""
    return {name: value for name, value in environ.items() if not name.startswith(prefixes)}


def import_path(*, current_folder: bool = False) -> str:
    """PYTHONPATH for a child that can import whatever this process can."""
    folders = [*sys.path, ""] if current_folder else sys.path
    return os.pathsep.join(folder or str(Path.cwd()) for folder in folders)


def output_of(argv: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command without input to its end, whatever its exit code; its output comes as text.

    Args:
        argv: The command.
        more: As for `subprocess.run`, such as `timeout`.

    Raises:
        OSError, subprocess.TimeoutExpired: As `subprocess.run`.
    """
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    return subprocess.run(argv, check=False, **{**how, **more})  # noqa: S603 - no shell


_LINES_OF_LOG = 15
_NOISE = re.compile(r"coredump_hook|process_state|Coroner|symbolize|Source Location|^\s+platforms/")


@contextlib.contextmanager
def started(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: int = subprocess.PIPE,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    folder: Path | None = None,
    grace: float = 0.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process in a session of its own, which is gone at the end of the block.

    So is everything that it started in its session: Julia compiles packages in further processes.
    Ctrl-C does not reach it directly. A child that ends when its standard input closes (see
    `serve`) never outlives this process, even if this process is killed.

    Args:
        environment: All of its environment.
        stdin: Its standard input; by default a pipe whose other end only this process holds.
        grace: Seconds between SIGTERM and SIGKILL at the end of the block; 0 sends only SIGKILL.

    Raises:
        OSError: The command cannot be started.
    """
    child = subprocess.Popen(  # noqa: S603 - an argument list, no shell
        argv,
        env=environment,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        try:
            if grace and child.poll() is None:
                _signal(child, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(grace)
        finally:
            kill(child)
            child.wait()
            for pipe in filter(None, (child.stdin, child.stdout, child.stderr)):
                with contextlib.suppress(OSError):  # closing flushes what nobody reads any more
                    pipe.close()


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and everything that it started in its session."""
    _signal(child, signal.SIGKILL)


@contextlib.contextmanager
def killed_after(seconds: float, child: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    """Kill a child if the block takes longer; the event says whether that was so."""
    late = threading.Event()

    def end() -> None:
        late.set()
        kill(child)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def send(child: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    """Write a line of JSON to a child's standard input.

    Raises:
        BrokenPipeError: The child has ended.
    """
    assert child.stdin is not None
    child.stdin.write(json.dumps(message).encode() + b"\n")
    child.stdin.flush()


def last_answer(output: bytes) -> dict[str, Any] | None:
    """The JSON object on the last line of a child's output; None if it is cut short or absent."""
    text, end, rest = output.rpartition(b"\n")
    if rest or not end:
        return None
    try:
        answer = json.loads(text.rpartition(b"\n")[2])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


class ChildLostError(PyReactantError, RuntimeError):
    """The child process ended without an answer."""

    exit_code: int = ExitCode.LOST


class Activity(NamedTuple):
    """What a child process does, in words, for messages.

    Attributes:
        present: Participle, as in "compiling for v6e-4 took too long".
        verb: Verb, as in "the process that compiles was killed".
        library: The library that may abort the process.
    """

    present: str
    verb: str
    library: str


def ask_child(
    module: str,
    environment: Mapping[str, str],
    request: Mapping[str, Any],
    *,
    timeout: float,
    activity: Activity,
    cached_answer: Callable[[Any], dict[str, Any] | None] = lambda shown: None,
) -> dict[str, Any]:
    """The answer of a child process that runs a module; see `serve`.

    Args:
        module: Name of the module, which calls `serve`.
        cached_answer: Called with what the child sends to `stop`, such as a digest of the lowered
            program; returns the answer if it is known, and the child is ended.

    Raises:
        ChildLostError: The child was killed, or ended without an answer.
        DeadlineError: The child did not answer in time.
        RequirementError: The child cannot import a package that it needs.
    """
    kills = out_of_memory_kills()
    argv = [sys.executable, "-P", "-m", __name__, module]
    with tempfile.TemporaryFile() as log, started(argv, environment, stderr=log) as child:
        with killed_after(timeout, child) as late:
            answer = _exchange(child, request, cached_answer)
        if answer is not None and _MISSING in answer:
            raise from_data(answer[_MISSING])
        if answer is not None:
            return answer
        child.wait()
        if late.is_set():
            raise DeadlineError(
                f"{activity.present} took longer than {timeout:g} s and was ended; "
                "allow more time with timeout= (--timeout)"
            )
        raise _lost(child.returncode, log, activity, out_of_memory=out_of_memory_kills() > kills)


def _exchange(
    child: subprocess.Popen[bytes],
    request: Mapping[str, Any],
    cached_answer: Callable[[Any], dict[str, Any] | None],
) -> dict[str, Any] | None:
    """The child's answer; None if it ended without one."""
    assert child.stdout is not None
    try:
        send(child, request)
        answer = last_answer(child.stdout.readline())
        if answer is not None and "lowered" in answer:
            known = cached_answer(answer["lowered"])
            if known is not None:
                return known
            send(child, {"stop": False})
            answer = last_answer(child.stdout.readline())
    except BrokenPipeError:
        return None
    return answer


def _lost(code: int, log: IO[bytes], activity: Activity, *, out_of_memory: bool) -> ChildLostError:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    advice = ""
    if code == -signal.SIGABRT:
        advice = f"; {activity.library} aborts on programs that break its assumptions"
    elif code == -signal.SIGKILL and out_of_memory:
        advice = (
            "; this machine ran out of memory: compile fewer programs at once, or use a larger "
            "machine"
        )
    elif code == -signal.SIGKILL:
        advice = "; something on this machine killed it"
    log.seek(0)
    text = log.read().decode(errors="replace")
    if last := fatal(text):
        advice += f": {last}"
    lines = [line for line in text.splitlines() if not _NOISE.search(line)][-_LINES_OF_LOG:]
    output = "\n".join(["", "its last output:", *(f"  {line}" for line in lines)]) if lines else ""
    return ChildLostError(f"the process that {activity.verb} {how}{advice}{output}")


_PERIOD = 1.0
"""Seconds between samples; a kill counts as recent for one to two of them."""


class MemoryKills:
    """Whether processes were killed for lack of memory just now.

    The kernel counts the kills of a whole cgroup or machine, so an old one says nothing about a
    process that ends now.
    """

    def __init__(
        self, count: Callable[[], int] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._clock = count or out_of_memory_kills, clock
        self._at = clock()
        self._older = self._newer = self._count()

    def sample(self) -> None:
        """Take a sample if one is due; to be called often."""
        if (now := self._clock()) - self._at >= _PERIOD:
            self._older, self._newer, self._at = self._newer, self._count(), now

    def is_recent(self) -> bool:
        """Whether there was a kill in the last second or two."""
        return self._count() > self._older


def out_of_memory_kills() -> int:
    """Number of kills for lack of memory in this process's cgroup, otherwise on the machine.

    From ``memory.events`` (cgroup v2), ``memory.oom_control`` (v1) or ``/proc/vmstat``, whose
    line ``oom_kill`` is described in the kernel's Documentation/admin-guide/cgroup-v2.rst.
    """
    for path in [*_cgroup_files(), Path("/proc/vmstat")]:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def _cgroup_files() -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, folder = line.split(":", 2)
        if not controllers:
            files.append(Path("/sys/fs/cgroup", folder.lstrip("/"), "memory.events"))
        elif "memory" in controllers.split(","):
            files.append(Path("/sys/fs/cgroup/memory", folder.lstrip("/"), "memory.oom_control"))
    return files


Request = Mapping[str, Any]
Stop = Callable[[Any], bool]
"""Sends plain JSON to the parent; returns whether the parent knows the answer already."""


def serve(answer: Callable[[Request, Stop], Mapping[str, Any]]) -> None:
    """Answer one request and end the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort is reported; no core file
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    # Julia makes its standard input non-blocking, which a reader would take for its end.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()

    def send(message: Mapping[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def stop(shown: Any) -> bool:
        send({"lowered": shown})
        return bool(json.loads(lines.get())["stop"])

    with contextlib.suppress(BrokenPipeError):
        try:
            reply = answer(json.loads(lines.get()), stop)
        except Exception as error:
            reply = _missing(error)
        send(reply)
    os._exit(ExitCode.DONE)  # an orderly shutdown of the runtime takes time


_MISSING = "missing package"
"""Key of an answer that says why a package cannot be imported."""


def _missing(error: Exception) -> dict[str, Any]:
    """The answer of a child that cannot import a package; any other error is raised."""
    broken = broken_package(error)
    if broken is None:
        raise error
    return {_MISSING: as_data(broken)}


def _run(module: str) -> None:
    """Run a module that calls `serve`; answer for it if it cannot be loaded."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception as error:
        sys.stdout.write(json.dumps(_missing(error)) + "\n")


def _read(requests: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in requests:
        lines.put(line)
    os._exit(ExitCode.FAILED)


if __name__ == "__main__":
    _run(sys.argv[1])
