"""`make faults`: inject each fault many times; check the cause, leftovers and time to the end.

`python -m benchmarks.faults [--times N] [--quick] [--json FILE] [--how local|tasks|both]
[--faults NAME...] [--backend jax|jax-gpu|reactant]` breaks
one of two processes with `tests/launch/faulty.py`. "local" uses one
supervisor for both processes, "tasks" one supervisor per process, as srun starts them, and "both"
alternates. The exit code is 1 if a report names the wrong cause or a process remains; exceeding a
time bound does not change it. `--backend reactant` runs over the stand-in for Reactant and needs
the real-Julia level of the tests (PYREACTANT_TEST_JULIA, PYREACTANT_TEST_JULIA_PROJECT).
`--backend jax-gpu` has both processes on one GPU; the others run on CPU.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyreactant import MismatchError
from tests.gpu.common import SHARE_ONE, cannot_share
from tests.harness import environment
from tests.julia import place
from tests.launch.runs import FAULTY, RUN, left_behind, task_environments
from tests.launch.test_faults import CAUSES

from ._measure import machine

BOUND = 2.0
"""Seconds from the fault until the report is written and every supervisor has ended."""

GUARD = 6.0  # abort() sleeps so long while the guard is on
START = 3.0


@dataclass(frozen=True)
class Runtime:
    """A runtime: the settings that choose it, and limits in seconds that let it start."""

    settings: Callable[[], Mapping[str, str]]
    stall: float
    rendezvous: float  # initialization_timeout in faulty.py
    whole: float


RUNTIMES = {
    "jax": Runtime(dict, 5.0, 4.0, 60.0),
    "jax-gpu": Runtime(lambda: SHARE_ONE, 8.0, 20.0, 90.0),
    # Julia starts within the deadline of initialize, and holds Python's lock meanwhile.
    "reactant": Runtime(
        lambda: {"PYREACTANT_BACKEND": "reactant", **place.stand_in()}, 30.0, 60.0, 240.0
    ),
}

NAMES = {
    "raise": "raises",
    "kill": "SIGKILL",
    "stop": "SIGSTOP",
    "segv": "SIGSEGV",
    "abort": "abort()",
    "abort-unguarded": "abort(), guard off",
    "term": "SIGTERM from outside",
    "exit0": "sys.exit(0)",
    "leave0": "os._exit(0)",
    "exit3": "sys.exit(3)",
    "never": "never starts",
}
WHENS = {"start": "before initialize", "cold": "cold", "warm": "warm"}


@dataclass(frozen=True)
class Case:
    """A row of the table: the fault, when it happens, and in which process."""

    fault: str
    when: str
    process: int


@dataclass
class Injection:
    """One broken run and its outcome."""

    case: Case
    how: str
    seconds: float | None = None
    miss: str | None = None
    left: Sequence[str] = field(default_factory=list)
    load: float = 0.0


def cases() -> list[Case]:
    """List every fault before initialize, cold and warm, in either process.

    To the others, a process that stops before initialize looks like one that never starts, so
    both share one row.
    """
    broken = [
        Case(fault, when, process)
        for fault in NAMES
        for when in WHENS
        for process in (0, 1)
        if fault != "never" and (fault, when) != ("stop", "start")
    ]
    return broken + [Case("never", "start", process) for process in (0, 1)]


def inject(case: Case, how: str, runtime: Runtime, folder: Path) -> Injection:
    """Break one run in its own folder."""
    done = Injection(case, how, load=os.getloadavg()[0])
    absent = case.process if (case.fault, how) == ("never", "tasks") else None
    began = time.time()
    codes, ended = _supervisors(case, how, runtime, folder, absent)
    done.left = left_behind(folder)
    _end(folder)
    report = _report(folder)
    done.miss = _miss(case, absent, report, codes)
    event = folder / "event"
    if event.exists():
        began = float(event.read_text())
    elif absent is None:
        done.miss = f"the fault was never reached; {done.miss}"
        return done
    done.seconds = ended - began - _deadline(case, how, runtime)
    return done


def _deadline(case: Case, how: str, runtime: Runtime) -> float:
    """Seconds of the timeout that detects this fault; 0.0 if detection is immediate."""
    if case.fault == "abort" and case.when != "start":
        return GUARD
    if case.fault == "never":
        return START if how == "tasks" else runtime.rendezvous
    return runtime.stall if case.fault == "stop" else 0.0


def _supervisors(
    case: Case, how: str, runtime: Runtime, folder: Path, absent: int | None
) -> tuple[list[int], float]:
    """Run the supervisors; return their exit codes and the time when the last one ended."""
    argv = [*RUN, "--out", str(folder / "run"), "--stall-timeout", str(runtime.stall)]
    chosen = {**runtime.settings(), "FAULT_RENDEZVOUS": str(runtime.rendezvous)}
    if how == "local":
        argv += ["--processes", "2"]
        event = {"FAULT_EVENT": str(folder / "event")}
        settings = environment(**{"PYREACTANT_PLATFORM": "cpu", **event, **chosen})
        environments: list[Mapping[str, str]] = [settings]
    else:
        environments = list(task_environments(folder, 2, [chosen] * 2))
    if absent is not None:
        argv += ["--start-timeout", str(START)]
        del environments[absent]
    if case.fault == "abort-unguarded":
        environments = [{**settings, "PYREACTANT_GUARD": "0"} for settings in environments]
    argv += ["--", FAULTY, case.fault, str(case.process), case.when]
    running = [start(argv, settings, folder, i) for i, settings in enumerate(environments)]
    overdue = threading.Timer(runtime.whole, _kill_sessions, [running])
    overdue.start()
    try:
        # A timer enforces the limit, because Popen.wait with a timeout polls only every 50 ms.
        codes = [process.wait() for process in running]
        return codes, time.time()
    finally:
        overdue.cancel()
        _kill_sessions(running)


def start(
    argv: Sequence[str], settings: Mapping[str, str], folder: Path, number: int
) -> "subprocess.Popen[bytes]":
    """Start a supervisor in a session of its own; its output goes to the folder."""
    with (folder / f"supervisor-{number}.log").open("wb") as out:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=settings,
            cwd=folder,
            start_new_session=True,
        )


def _kill_sessions(running: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _end(folder: Path) -> None:
    """Kill the leftover processes; call it after counting them."""
    mark = f"FAULT_EVENT={folder}/event".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def _report(folder: Path) -> dict[str, Any] | None:
    """Read the run's report, or process 1's own report if process 0 never started."""
    for name in ("report.json", "report-process-1.json"):
        path = folder / "run" / name
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
    return None


def _miss(
    case: Case, absent: int | None, report: Mapping[str, Any] | None, codes: Sequence[int]
) -> str | None:
    """Describe how the report differs from the expected cause; None if it is right."""
    by = {case.process}
    cause, code, words = CAUSES[case.fault]
    if absent is not None:
        words = "did not join the roll-call|could not reach process 0"
    if case.fault == "exit0" and case.when != "start":
        # The guard finds out, in both processes, and says which of them has ended.
        by, code, words = {0, 1}, MismatchError.exit_code, rf"\bend on {case.process}\b"
    if report is None:
        return f"no report, exit codes {codes}"
    reported = (report["first_error"] or {}).get("process"), report["cause"], report["exit_code"]
    if (
        reported[0] not in by
        or reported[1:] != (cause, code)
        or set(codes) != {code}
        or not re.search(words, report["summary"])
    ):
        return f"reported {reported}, exit codes {codes}: {report['summary']}"
    return None


def row(case: Case, done: Sequence[Injection]) -> dict[str, Any]:
    """Figures of one row, for JSON."""
    seconds = [d.seconds for d in done if d.seconds is not None]
    return {
        **asdict(case),
        "injections": len(done),
        "local": sum(d.how == "local" for d in done),
        "misses": [d.miss for d in done if d.miss],
        "left": [line for d in done for line in d.left],
        "median": statistics.median(seconds) if seconds else None,
        "worst": max(seconds, default=None),
        "within": sum(s <= BOUND for s in seconds),
        "bound": BOUND,
        "seconds": [(d.how, d.seconds, d.load) for d in done],
    }


def text(found: Mapping[str, Any]) -> str:
    """Format one row of the table."""
    median, worst = (
        "never" if found[name] is None else f"{found[name]:.2f} s" for name in ("median", "worst")
    )
    verdict = "within"
    if found["within"] < found["injections"]:
        verdict = f"**{found['injections'] - found['within']} later**"
    cells = [
        NAMES[found["fault"]],
        WHENS[found["when"]],
        found["process"],
        found["injections"],
        len(found["misses"]),
        len(found["left"]),
        median,
        worst,
        f"{found['bound']:g} s",
        verdict,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _one(case: Case, how: str, runtime: Runtime, base: Path, number: int) -> Injection:
    """Inject once; if the outcome is wrong or late, print it and keep the folder."""
    folder = base / f"{number:04}"
    folder.mkdir()
    done = inject(case, how, runtime, folder)
    if done.miss or done.left or done.seconds is None or done.seconds > BOUND:
        print(f"{folder}: {done}", file=sys.stderr, flush=True)
    else:
        shutil.rmtree(folder)
    return done


def _all(
    times: int, how: str, runtime: Runtime, out: Path | None, faults: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Inject all cases round by round, so that other load on the machine affects all rows."""
    chosen = [case for case in cases() if faults is None or case.fault in faults]
    done: dict[Case, list[Injection]] = {case: [] for case in chosen}
    base = Path(tempfile.mkdtemp(prefix="pyreactant-faults-"))
    rows: list[dict[str, Any]] = []
    for repetition in range(times):
        for number, case in enumerate(chosen):
            # Processes 0 and 1 alternate differently, so that each round has as many of both.
            turn = ("local", "tasks")[(repetition + number // 2 + case.process) % 2]
            chosen_how = turn if how == "both" else how
            serial = repetition * len(chosen) + number
            done[case].append(_one(case, chosen_how, runtime, base, serial))
        rows = [row(case, done[case]) for case in chosen]
        if out is not None:
            out.write_text(json.dumps({**machine(), "rows": rows}, indent=2))
        print(f"round {repetition + 1} of {times}", file=sys.stderr, flush=True)
    if not any(base.iterdir()):
        base.rmdir()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="same as --times 2")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--how", choices=("local", "tasks", "both"), default="both")
    parser.add_argument("--faults", nargs="+", choices=NAMES, help="these faults only")
    parser.add_argument("--backend", choices=RUNTIMES, default="jax")
    args = parser.parse_args()
    if args.backend == "reactant" and (why := place.absent()):
        parser.error(why)
    if args.backend == "jax-gpu" and (why := cannot_share()):
        parser.error(why)
    if args.backend == "reactant":
        place.compile_packages()  # which takes longer than any limit here
    times, runtime = 2 if args.quick else args.times, RUNTIMES[args.backend]
    rows = _all(times, args.how, runtime, args.json, args.faults)
    here = machine()
    print(", ".join(f"{name} {number}" for name, number in here.pop("versions").items()))
    print(", ".join(f"{name} {value}" for name, value in here.items()), end="\n\n")
    print(
        "| fault | when | process | injections | misses | left | median | worst | bound | |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    for found in rows:
        print(text(found))
    return int(any(found["misses"] or found["left"] for found in rows))


if __name__ == "__main__":
    sys.exit(main())
