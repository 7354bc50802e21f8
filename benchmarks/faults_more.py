"""`make faults`, continued: what is not the fault of one process at one moment.

`python -m benchmarks.faults_more [--times N] [--json FILE] [--kinds NAME...]
[--backend jax|reactant]` breaks runs on CPU. The exit code is 1 if an outcome is not what the
kind's rule says, or if a process remains. `--backend reactant` needs what `benchmarks.faults`
needs.

- A stopped head: the supervisor of process 0 is stopped for longer than the heartbeat. All end with
  6, and blame process 0.
- Two faults: both processes fail after the same operation. The report names one of them, by its own
  fault and not by a consequence of the other's.
- A full disk: the run's folder is too small for its logs and its report. A good run ends with 0 and
  says what is not written; of a bad run the terminal names the culprit.
- Descriptors: too low a hard limit is refused with exit code 3, and names ulimit; a soft one is
  raised, and the programs have it as it was; a program that runs out of them is named. Only the
  program of the last kind starts a runtime.
- Ends early: one of three plain JAX programs ends while the others wait for it in their first
  collective, or, in a kind of its own, in a later one; it is named. Then JAX waits for 5 minutes.
- Never comes to an operation: one of three processes computes on, with pyreactant's collectives and
  with JAX's. `--end-stalled` ends the run and names it.
- A reader that does not read: nothing reads the terminal until the run's report is written. The
  program is not held up, and the report follows on the terminal.
- A host name that does not resolve: a machine's own, so that Gloo cannot start, and that of the
  coordinator, which every process says. The cause is the environment, 3.
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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.harness import environment
from tests.julia import place
from tests.launch.runs import FAULTY, RUN, left_behind, task_environments
from tests.launch.test_faults import CAUSES

from ._measure import machine
from .faults import RUNTIMES, Runtime, start

HEARTBEAT = 2.0
_LIMIT = 90.0
_GLOO = 300.0
"""Seconds for which Gloo waits in a collective."""
_FULL = 'mount -t tmpfs -o size=256k tmpfs run && "$@"; code=$?; cat process-*; exit $code'
_START = """
import os, sys, time
import pyreactant as pr
pr.initialize(initialization_timeout=float(os.environ["FAULT_RENDEZVOUS"]))
"""
_CHATTY = """
print(("x" * 1023 + "\\n") * 1024, flush=True)
if sys.argv[1] == "raise" and os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    raise ValueError("broken here")
"""
_GREEDY = """
if os.environ["PYREACTANT_PROCESS_INDEX"] == "0":
    time.sleep(1000)
files = []
while True:
    files.append(open("/dev/null"))
"""
_EARLY = """
import sys, jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
if sys.argv[2] == "later":
    multihost_utils.process_allgather(jnp.ones(2))
if jax.process_index() == int(sys.argv[1]):
    sys.exit(0)
print(multihost_utils.process_allgather(jnp.ones(2)))
"""
_ABSENT = {
    "pyreactant's": """
import os
import numpy as np
import pyreactant as pr
mesh = pr.Mesh((len(pr.devices()),), ("i",))
x = pr.device_put(np.ones((6, 6), np.float32), pr.NamedSharding(mesh, ("i",)))
x.gather()
while os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    pass
x.gather()
""",
    "JAX's": """
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
jax.distributed.initialize()
multihost_utils.process_allgather(jnp.ones(2))
while jax.process_index() == 1:
    pass
multihost_utils.process_allgather(jnp.ones(2))
""",
}
_UNREAD = """
import sys
for i in range(16):
    sys.stdout.write("x" * (1 << 20) + "\\n")
raise ValueError("broken here")
"""
_LIMITS = "import resource; print('soft limit', resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


@dataclass
class Outcome:
    """What came of one run."""

    kind: str
    miss: str | None = None
    seconds: float | None = None
    left: Sequence[str] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])


def stopped_head(folder: Path, runtime: Runtime) -> Outcome:
    """Stop the supervisor of process 0 until the other has given it up."""
    done = Outcome("stopped head")
    argv = [*_run(folder), "--heartbeat-timeout", str(HEARTBEAT), "--", FAULTY, "none", "1", "warm"]
    running = [start(argv, env, folder, i) for i, env in enumerate(_tasks(folder, runtime))]
    try:
        _until((folder / "event").exists)
        began = time.time()
        running[0].send_signal(signal.SIGSTOP)
        codes = [running[1].wait(_LIMIT)]
        done.seconds = time.time() - began - HEARTBEAT
        running[0].send_signal(signal.SIGCONT)
        codes.insert(0, running[0].wait(_LIMIT))
    finally:
        _kill(running)
    done.miss = _miss(folder, codes, [(0, "lost", 6, "no heartbeat from process 0 for 2 s")])
    return done


def two_faults(folder: Path, runtime: Runtime, first: str, second: str) -> Outcome:
    """Both processes fail after the same operation."""
    done = Outcome(f"two faults: {first} and {second}")
    argv = [*_run(folder), "--", FAULTY, f"{first}+{second}", "both", "warm"]
    codes, ended = _all_end(argv, _tasks(folder, runtime), folder)
    right = [(process, *CAUSES[fault]) for process, fault in enumerate((first, second))]
    done.miss = _miss(folder, codes, right)
    if (folder / "event").exists():
        done.seconds = ended - float((folder / "event").read_text())
    return done


def full_disk(folder: Path, runtime: Runtime, ending: str) -> Outcome:
    """Run in a mount namespace of its own, with the run's folder on 256 KiB."""
    done = Outcome(f"full disk, {'a good run' if ending == 'well' else 'a process raises'}")
    (folder / "run").mkdir()
    program = _script(folder, _START + _CHATTY)
    space = ["unshare", "--mount", "--propagation", "private", "bash", "-c", _FULL, "bash"]
    argv = [*space, *_run(folder), "-n", "2", "--all-output", "--", program, ending]
    codes, _ = _all_end(argv, [_environment(folder, runtime)], folder)
    said = (folder / "supervisor-0.log").read_text()
    words = ["cannot be written (No space left on device)"]
    if ending != "well":
        words += ["user: process 1 on ", "raised ValueError: broken here"]
    missing = [text for text in words if text not in said]
    if codes != [0 if ending == "well" else 1] or missing or "internal error" in said:
        done.miss = f"exit codes {codes}, not said: {missing}: {said[-500:]}"
    return done


def descriptors(folder: Path, runtime: Runtime, which: str) -> Outcome:
    """Limit the open files of the supervisor, or those of the programs."""
    done = Outcome(f"descriptors: {which}")
    limit, count, text, code, words = {
        "hard limit too low": ("-n 40", "20", _LIMITS, 3, "limit is 40 .*ulimit -n"),
        "soft limit too low": ("-Sn 64", "12", _LIMITS, 0, r"\[0\] soft limit 64"),
        "a program needs too many": (
            "-Sn 64",
            "2",
            _START + _GREEDY,
            1,
            "process 1 on .* raised OSError: .*Too many open files",
        ),
    }[which]
    shell = ["bash", "-c", f'ulimit {limit} && exec "$@"', "bash"]
    argv = [*shell, *_run(folder), "-n", count, "--", _script(folder, text)]
    codes, _ = _all_end(argv, [_environment(folder, runtime)], folder)
    said = (folder / "supervisor-0.log").read_text()
    if codes != [code] or not re.search(words, said) or "internal error" in said:
        done.miss = f"exit codes {codes}: {said[-500:]}"
    return done


def ends_early(folder: Path, runtime: Runtime, before: str) -> Outcome:
    """One of three plain JAX programs ends, process 0 as often as process 1."""
    done = Outcome(f"ends early, before a {before} collective")
    early = sum(map(ord, folder.name)) % 2
    argv = [*_run(folder), "-n", "3", "--", _script(folder, _EARLY), str(early), before]
    limit = _LIMIT + (_GLOO if before == "later" else 0.0)
    codes, _ = _all_end(argv, [_environment(folder, runtime)], folder, limit)
    words = f"process {early} on .* had ended its program while"
    done.miss = _miss(folder, codes, [(early, "user", 1, words)])
    return done


def never_comes(folder: Path, runtime: Runtime, whose: str) -> Outcome:
    """One of three processes never begins the operation in which the others are."""
    done = Outcome(f"never comes to an operation of {whose}")
    options = ["-n", "3", "--stall-timeout", "6", "--end-stalled", "--devices-per-process", "1"]
    argv = [*_run(folder), *options, "--", _script(folder, _ABSENT[whose])]
    codes, _ = _all_end(argv, [_environment(folder, runtime)], folder)
    words = "did not begin operation" if whose == "pyreactant's" else "did make progress, and"
    done.miss = _miss(folder, codes, [(1, "timeout", 7, f"; process 1 on .* {words}")])
    return done


def unread(folder: Path, runtime: Runtime) -> Outcome:
    """The supervisor writes to a pipe that is read only when the report is written."""
    done = Outcome("reader that does not read")
    run = subprocess.Popen(
        [*_run(folder), "--", _script(folder, _UNREAD)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(folder, runtime),
        cwd=folder,
        start_new_session=True,
    )
    try:
        _until((folder / "run" / "report.json").exists)
        said, _ = run.communicate(timeout=_LIMIT)
    finally:
        _kill([run])  # type: ignore[list-item]
    done.miss = _miss(folder, [run.returncode], [(0, *CAUSES["raise"])])
    whole = (folder / "run" / "process-0.log").stat().st_size > 16 << 20
    if not whole or "\npyreactant: user: process " not in said:
        done.miss = f"a whole log: {whole}; said: {said[-500:]}"
    return done


def unresolved(folder: Path, runtime: Runtime) -> Outcome:
    """The machine has a name that no file and no server knows."""
    done = Outcome("host name that does not resolve")
    named = ["unshare", "--uts", "sh", "-c", 'hostname no-such-host && exec "$@"', "sh"]
    argv = [*named, *_run(folder), "-n", "2", "--", FAULTY, "none", "0", "start"]
    codes, _ = _all_end(argv, [_environment(folder, runtime)], folder)
    words = "no address of its own under the name no-such-host"
    right = [(process, "environment", 3, words) for process in range(2)]
    done.miss = _miss(folder, codes, right)
    return done


def unresolved_coordinator(folder: Path, runtime: Runtime) -> Outcome:
    """No file and no server knows the name of process 0's host; each of two processes says so."""
    done = Outcome("coordinator's host name that does not resolve")
    argv = [*_run(folder), "--", FAULTY, "none", "0", "start"]
    tasks = _tasks(folder, runtime)
    for task in tasks:
        task["PYREACTANT_COORDINATOR_ADDRESS"] = "no-such-host.invalid:4711"
    began = time.time()
    codes, ended = _all_end(argv, tasks, folder)
    done.seconds = ended - began
    words = "'no-such-host.invalid' does not resolve here"
    done.miss = _miss(folder, codes, [(0, "environment", 3, words)])
    logs = [(folder / f"supervisor-{i}.log").read_text() for i in range(2)]
    if not all(f"environment: process {i} on " in log for i, log in enumerate(logs)):
        done.miss = f"one does not say it: {logs}"
    return done


KINDS: Mapping[str, Sequence[Callable[[Path, Runtime], Outcome]]] = {
    "stopped-head": [stopped_head],
    "two": [
        partial(two_faults, first="kill", second="kill"),
        partial(two_faults, first="kill", second="raise"),
        partial(two_faults, first="raise", second="segv"),
        partial(two_faults, first="exit3", second="kill"),
    ],
    "disk": [partial(full_disk, ending="well"), partial(full_disk, ending="raise")],
    "descriptors": [
        partial(descriptors, which="hard limit too low"),
        partial(descriptors, which="soft limit too low"),
        partial(descriptors, which="a program needs too many"),
    ],
    "early": [partial(ends_early, before="first")],
    "early-later": [partial(ends_early, before="later")],
    "absent": [partial(never_comes, whose=whose) for whose in _ABSENT],
    "unread": [unread],
    "name": [unresolved, unresolved_coordinator],
}


def _run(folder: Path) -> list[str]:
    return [*RUN, "--out", str(folder / "run")]


def _script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def _chosen(runtime: Runtime) -> dict[str, str]:
    return {**runtime.settings(), "FAULT_RENDEZVOUS": str(runtime.rendezvous)}


def _environment(folder: Path, runtime: Runtime) -> dict[str, str]:
    event = str(folder / "event")
    return environment(PYREACTANT_PLATFORM="cpu", FAULT_EVENT=event, **_chosen(runtime))


def _tasks(folder: Path, runtime: Runtime) -> list[dict[str, str]]:
    return list(task_environments(folder, 2, [_chosen(runtime)] * 2))


def _all_end(
    argv: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    limit: float = _LIMIT,
) -> tuple[list[int], float]:
    running = [start(argv, env, folder, i) for i, env in enumerate(environments)]
    try:
        return [process.wait(limit) for process in running], time.time()
    finally:
        _kill(running)


def _kill(running: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the programs never came so far")
        time.sleep(0.01)


def _miss(
    folder: Path, codes: Sequence[int], right: Sequence[tuple[int, str, int, str]]
) -> str | None:
    """Describe a report that is none of the right ones: process, cause, exit code and words."""
    try:
        report = json.loads((folder / "run" / "report.json").read_text())
    except OSError:
        return f"no report, exit codes {codes}"
    found = (report["first_error"] or {}).get("process"), report["cause"], report["exit_code"]
    for process, cause, code, words in right:
        if (
            found == (process, cause, code)
            and set(codes) == {code}
            and re.search(words, report["summary"])
        ):
            return None
    return f"reported {found}, exit codes {codes}: {report['summary']}"


def _one(kind: Callable[[Path, Runtime], Outcome], folder: Path, runtime: Runtime) -> Outcome:
    folder.mkdir()
    try:
        done = kind(folder, runtime)
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        done = Outcome(folder.name, str(error))
    done.left = left_behind(folder)
    if done.miss or done.left:
        print(f"{folder}: {done}", file=sys.stderr, flush=True)
    else:
        shutil.rmtree(folder)
    return done


def _row(name: str, done: Sequence[Outcome]) -> str:
    seconds = [d.seconds for d in done if d.seconds is not None]
    median = f"{statistics.median(seconds):.2f} s" if seconds else ""
    worst = f"{max(seconds):.2f} s" if seconds else ""
    misses, left = sum(bool(d.miss) for d in done), sum(len(d.left) for d in done)
    return f"| {name} | {len(done)} | {misses} | {left} | {median} | {worst} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults_more", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path)
    quick = [name for name in KINDS if name != "early-later"]  # it takes 5 minutes each time
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=quick)
    parser.add_argument("--backend", choices=RUNTIMES, default="jax")
    args = parser.parse_args()
    if args.backend == "reactant" and (why := place.absent()):
        parser.error(why)
    if args.backend == "reactant":
        place.compile_packages()  # which takes longer than any limit here
    base = Path(tempfile.mkdtemp(prefix="pyreactant-faults-"))
    found: dict[str, list[Outcome]] = {}
    chosen = [kind for name in args.kinds for kind in KINDS[name]]
    for repetition in range(args.times):
        for number, kind in enumerate(chosen):
            done = _one(kind, base / f"{repetition:03}-{number:02}", RUNTIMES[args.backend])
            found.setdefault(done.kind, []).append(done)
        if args.json is not None:
            rows: dict[str, Any] = {n: [asdict(d) for d in all_] for n, all_ in found.items()}
            args.json.write_text(json.dumps({**machine(), "rows": rows}, indent=2))
        print(f"round {repetition + 1} of {args.times}", file=sys.stderr, flush=True)
    if not any(base.iterdir()):
        base.rmdir()
    print("| fault | injections | misses | left | median | worst |\n|---|---|---|---|---|---|")
    for name, outcomes in found.items():
        print(_row(name, outcomes))
    return int(any(d.miss or d.left for outcomes in found.values() for d in outcomes))


if __name__ == "__main__":
    sys.exit(main())
