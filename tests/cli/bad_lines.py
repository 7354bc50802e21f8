"""Bad command lines, made from the commands themselves, and the laws that all of them obey.

A larger sweep than the test's: ``python -m tests.cli.bad_lines 3000 --seed 7``; it prints the lines
that break a law. It is a process of its own because it forks, which is unsafe beside JAX's threads.
"""

import argparse
import contextlib
import gc
import io
import itertools
import os
import random
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer.core

from pyreactant.cli import app
from pyreactant.cli.command import KEYWORDS as COMMAND_KEYWORDS
from tests.cli.tree import LEAVES, TREE

LIMIT = 20.0
"""Seconds after which a line hangs."""

CODES = frozenset(range(9))
"""The exit codes of the commands, as the end of ``pyreactant --help`` lists them."""

MARK = "BAD_LINE_OF_A_TEST"

MINE = "mine.npy"
"""A file of the user's, which no line may change without ``--overwrite``."""

NUMBERS = ["-1", "0", "1e400", "nan", "inf", "-inf", "1.5", "9" * 30, "0x10", "²", "१२", "", "1_0"]
TEXTS = [
    "",
    " ",
    "-",
    "é",
    "日本",
    "🎉",
    "\udcff",
    "[bold]",
    "%s{}",
    "a\nb",
    "a" * 5000,
    "None",
    ",",
]
PATHS = [
    "/dev/full",
    "/",
    ".",
    "/proc/nothing",
    "no/such/folder/file",
    "/proc/version",
    "a" * 300,
    MINE,
]
FORMS = ["2x", "x=", "x=-1", "x=9999999999999", "²x2", "x,y,", "x;y", "x+", "x,x", "v6e-", "v6e-0"]
FORMS += ["v6e-99999999", "v6e:0x4", "float13", "object", "a:b", ":", "no_such:thing", "quantum"]
FORMS += ["jax,quantum", "1..2", "../x", "NAME=", "=", "processes=x", "--", "x" * 300, "0,0", "1,²"]

# What keeps a line from work in earnest if all its absurd values are allowed: it is checked late.
STOPS: Mapping[str, Sequence[str]] = {
    "matmul": ["--backend", "quantum"],
    "crosscheck": ["--backends", "quantum"],
    "compare": ["no-such-run"],
    "doctor": ["--backend", "quantum"],
    "setup": ["--offline", "--project", "/proc/nothing"],
    "prefs set": ["--project", "/proc/nothing"],
    "prefs unset": ["--project", "/proc/nothing"],
    "run": ["--", "missing.py"],
    "burnin run": ["--platform", "quantum"],
    "preflight": ["--topology", "v9z-1"],
    "plan": ["--topology", "v9z-1"],
    "jobs clean": ["--dry-run"],
    **{f"tpu {name}": ["--transport", "quantum"] for name in ("create", "wait", "status", "list")},
    **{f"tpu {name}": ["--transport", "quantum"] for name in ("delete", "gc", "ssh")},
}

# Lines that once broke a law.
MENDED = [
    "run -m -- missing.py",
    "run -n 1000 --platform quantum -- ls",
    "run -n 99999999999 -- ls",
    "run --grace inf -- ls",
    f"jobs attach {'a' * 300}",
    f"run --detach -- {'a' * 5000}",
    f"compare {'a' * 5000}",
    "topology v6e-4 --slices 0",
    "matmul --mesh 2x2 --device-ids 0,0,1,1",
    "matmul --mesh 2x2 --devices-per-process 8",
    "matmul --mesh 4x4 --devices-per-process 8",
    "crosscheck --size 0",
    "crosscheck --processes 0",
    "doctor --timeout 0",
    "setup --gpu quantum",
    "setup --gpu-version 12",
    "setup --wait -1",
    "setup --julia 1.2",
    "plan --devices 0 --platform cpu --size 8",
    "plan --tried 0 --platform cpu --size 8",
    "run --detach --max-restarts -1 -- -m this",
    "run --on slurm --max-restarts -1 --dry-run -- -m this",
    "run --on tpu -- -m this",
    "crosscheck --on tpu --name A --project my-project --zone a-b1-c --topology v6e-4",
    "crosscheck --on tpu --name a --project my-project --zone a-b1-c --topology v6e-4 --slices 0",
    "preflight --topology v6e-1 --stablehlo /dev/full",
    "run --detach --requirements /dev/zero -- -m this",
    "preflight softmax --topology v6e-1 --shape ²x2",
    "plan jax.nn:softmax --topology v6e-1 --shape ²x2",
    "plan f: --topology v6e-1",
    "preflight : --topology v6e-1",
    "preflight M. --backend reactant --topology v6e-1 --shape 8",
]

KEYWORDS = {
    **{keyword.lower(): option for keyword, option in COMMAND_KEYWORDS.items()},
    **{
        name[2:].replace("-", "_"): name
        for command in LEAVES.values()
        for one in command.params
        for name in one.opts
        if name.startswith("--") and len(name) > 3  # an axis is called x, too
    },
}
"""Names of arguments in Python, each with the option that a message must have in its place."""

WRITES = {"--out", "--html", "--report", "--hlo", "--request"}
"""Options that ask for files."""


@dataclass(frozen=True)
class Line:
    """A command line with its environment."""

    words: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return shlex.join([*(f"{k}={v}" for k, v in self.settings), "pyreactant", *self.words])


def lines(count: int, seed: int, *, earnest: bool = False) -> Iterator[Line]:
    """Lines with one to three absurd values each.

    Args:
        count: Number of lines.
        seed: The same seed gives the same lines.
        earnest: Whether lines may do their work if all of their values are allowed.
    """
    choice = random.Random(seed)
    names = sorted(LEAVES)
    for number in range(count):
        name = names[number % len(names)]
        command = LEAVES[name]
        options = [one for one in command.params if isinstance(one, typer.core.TyperOption)]
        words: list[str] = []
        for option in choice.sample(options, min(len(options), choice.randint(1, 3))):
            if option.name in ("help", "verbose"):  # with -v the traceback is asked for
                continue
            names_of = [*option.opts, *option.secondary_opts]
            words.append(choice.choice(names_of))
            if not option.is_flag:
                words.append(choice.choice(_values(option)))
        for argument in command.params:
            if argument.param_type_name == "argument" and choice.random() < 0.7:
                words += _argument(choice, name)
        if not earnest or name == "setup":
            stop = list(STOPS.get(name, ()))
            before = words.index("--") if "--" in words else len(words)
            words = [*words[:before], *stop] if "--" in stop else [*stop, *words]
        yield Line((*name.split(), *words), _settings(choice))


def _values(option: typer.core.TyperOption) -> list[str]:
    kind = str(getattr(option, "annotation", "")) + option.bare_type()
    if "int" in kind or "float" in kind:
        return [*NUMBERS, "x", "--"]
    return [*TEXTS, *PATHS] if "ath" in kind else [*TEXTS, *FORMS, *NUMBERS[:4], *PATHS[:2]]


def _argument(choice: random.Random, name: str) -> list[str]:
    word = choice.choice([*TEXTS, *FORMS, *PATHS, "4711", "missing.py", "-1"])
    return ["--", word] if word.startswith("-") or name == "run" else [word]


def _settings(choice: random.Random) -> tuple[tuple[str, str], ...]:
    found = {}
    if choice.random() < 0.3:
        found["XDG_STATE_HOME"] = "/proc/nothing"  # a folder that cannot be made
    if choice.random() < 0.2:
        found["COLUMNS"] = "1"
    return tuple(found.items())


def broken(line: Line, folder: Path) -> list[str]:
    """The laws that a line breaks, run in a child of this process.

    Args:
        line: The line.
        folder: An empty folder for the child's current folder and its output.
    """
    here, output = folder / "here", folder / "output"
    here.mkdir(parents=True)
    (here / MINE).write_text("mine")
    pid = os.fork()
    if pid == 0:
        _child(line, here, output)
    code = _wait(pid)
    printed = output.read_text(errors="replace") if output.exists() else ""
    found = []
    if code is None:
        found.append(f"it hangs for more than {LIMIT:g} s")
    elif code not in CODES:
        found.append(f"exit code {code}")
    found += [words for words in ("Traceback", "internal error") if words in printed]
    if code and not printed.strip():
        found.append("no message")
    found += [f"it says {name}" for name in python_names(printed, line)]
    if (here / MINE).read_text() != "mine" and "--overwrite" not in line.words:
        found.append("it destroyed a file")
    new = sorted(path.name for path in here.iterdir() if path.name != MINE)
    if new and not WRITES.intersection(line.words):
        found.append(f"it wrote {new}")
    return [f"{what}: {line}\n{printed[-600:]}" for what in found]


def python_names(printed: str, line: Line) -> list[str]:
    """The names of arguments in Python that a message has although they are options here."""
    given = " ".join(line.words)
    return [
        keyword
        for keyword, option in KEYWORDS.items()
        if re.search(rf"(?<![-\w.]){keyword}( must|=)", printed)
        and not re.search(option, printed)
        and f"{keyword}=" not in given
    ]


def numbers() -> Iterator[Line]:
    """A line for each option that takes a number, which is negative."""
    for name, command in LEAVES.items():
        for option in command.params:
            kind = str(getattr(option, "annotation", "")) + option.bare_type()
            if option.param_type_name == "option" and re.search("int|float", kind):
                stop = list(STOPS.get(name, ()))
                wrong = [*name.split(), option.opts[0], "-1"]
                yield Line((*wrong, *stop))


def _child(line: Line, here: Path, output: Path) -> None:
    """Run the line as the command line does, and end."""
    code = 1
    try:
        os.setsid()
        os.chdir(here)
        opened = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for number, target in ((null, 0), (opened, 1), (opened, 2)):
            os.dup2(number, target)
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
        for name, target in (("stdout", 1), ("stderr", 2)):
            raw = io.FileIO(target, "w", closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
        os.environ.update({MARK: "1", "PATH": str(here), "HOME": str(here.parent)})
        os.environ.update(XDG_STATE_HOME=f"{here.parent}/state", XDG_CACHE_HOME=f"{here.parent}/c")
        os.environ.update(dict(line.settings))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["pyreactant", *line.words]
        app.app = TREE  # built once, which is most of the work of a short line
        app.main()
        code = 0
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(pid: int) -> int | None:
    """The exit code of a child; None if it had to be killed."""
    end = time.monotonic() + LIMIT
    pause = 0.001
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def left_running() -> list[str]:
    """Processes that a line has left behind, once they had 5 s to end."""
    end = time.monotonic() + 5
    while (found := list(_marked())) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _marked() -> Iterator[str]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and f"{MARK}=1".encode() in (
                (entry / "environ").read_bytes().split(b"\0")
            ):
                yield (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def warm() -> None:
    """Import once what the children of this process would import each."""
    import pyreactant.check.run
    import pyreactant.doctor
    import pyreactant.fit.plan.plan
    import pyreactant.fit.preflight.preflight
    import pyreactant.julia.setup
    import pyreactant.runs.places.slurm_jobs
    import pyreactant.runs.queued.job
    import pyreactant.runs.queued.run
    import pyreactant.runs.submit
    import pyreactant.runs.supervisor
    import pyreactant.runs.targets

    with contextlib.suppress(ImportError):
        import pyreactant.runs.queued.client  # noqa: F401
    with contextlib.redirect_stdout(io.StringIO()):
        TREE.main(["topology", "v6e-16"], standalone_mode=False)  # typer's own late imports
    gc.freeze()


def sweep(count: int, seed: int, folder: Path, *, earnest: bool = False) -> list[str]:
    """What is broken by the lines of a seed, and by those that once broke a law."""
    warm()
    found = []
    mended = (Line(tuple(text.split())) for text in MENDED)
    chosen = itertools.chain(mended, numbers(), lines(count, seed, earnest=earnest))
    for number, line in enumerate(chosen):
        found += broken(line, folder / str(number))
    return found + [f"left running: {command}" for command in left_running()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--earnest", action="store_true", help="let allowed lines do their work")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        problems = sweep(asked.count, asked.seed, Path(made), earnest=asked.earnest)
    print("\n".join(problems).encode(errors="backslashreplace").decode())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(problems)} problems of {asked.count} lines, {used.ru_utime + used.ru_stime:.1f} s")
    sys.exit(bool(problems))
