"""Faults put into devices, and how often a burn-in names them; false alarms; what checks cost.

`python -m benchmarks.burnin` runs the rounds of a burn-in on eight CPU devices of this process. The
hook of the tests changes results, each time on another device. False alarms are counted over
records whose times are drawn anew from those of a real one. Process 0 of a burn-in of `--hosts`
hosts gets made-up numbers, in a child. A program is called `--calls` times with --replay-every, and
without. `--only` takes one of these parts. The exit code is 1 if a fault is not named, or a right
device is called failed or, with times drawn anew, suspicious.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.runtimes.runtime import current
from pyreactant.base.files import plain_json
from pyreactant.check.burnin.certificate import certify
from pyreactant.check.burnin.member import Book, member_of
from pyreactant.check.burnin.record import Measure, Record, merged, read_record
from pyreactant.check.burnin.rounds import Round, What, rounds_of
from pyreactant.check.burnin.verdict import State, judge
from pyreactant.check.burnin.work import Work
from pyreactant.check.product import whole
from tests.burnin import hook
from tests.burnin.hook import Fault
from tests.burnin.records import member, record

from ._measure import machine, quartiles

PRODUCTS, CHAINS = Round(What.PRODUCTS, dtype="float32"), Round(What.CHAINS)
FAULTS: dict[str, tuple[Fault, Round, int, State]] = {
    "a bit in each result": (Fault("flip"), PRODUCTS, 1, State.FAILED),
    "a bit in each 10th result": (Fault("flip", every=10), PRODUCTS, 3, State.FAILED),
    # It meets a product: in an operand, the bit would vanish in the rounding of the products.
    "a bit in each 100th result": (Fault("flip", every=100, after=3), PRODUCTS, 8, State.FAILED),
    "a stuck column": (Fault("column"), PRODUCTS, 1, State.FAILED),
    "a bit in the memory of an input": (
        Fault("flip", every=19, after=1),  # two operands and 17 products in a turn
        PRODUCTS,
        2,
        State.FAILED,
    ),
    "NaN in each 5th result": (Fault("nan", every=5), PRODUCTS, 2, State.FAILED),
    "a bit in floats without a reference": (Fault("flip"), CHAINS, 1, State.FAILED),
    "50 ms more in each call": (Fault("slow"), PRODUCTS, 3, State.SUSPICIOUS),
}


def measured(work: Work, rounds: Sequence[Round], turns: int, first: int = 0) -> Record:
    """The record of some turns."""
    kept: dict[Any, Measure] = {}
    for turn in range(first, first + turns):
        for job in rounds:
            merged(kept, work.run(job, turn))
    return record(kept.values(), members=(member_of(current().backend, work.gpus),))


def named(of: Record, state: State) -> list[int | None]:
    """The devices in a state; failed things of other kinds count as None."""
    return [f.device for f in judge(of) if f.state is state]


def injections(work: Work, times: int) -> bool:
    """Print how many of the injections of each fault are named, and by nothing else."""
    good = True
    for name, (fault, job, turns, state) in FAULTS.items():
        right, began = 0, time.perf_counter()
        for number in range(times):
            device = number % 8
            hook.set_fault(replace(fault, device=device))
            found = named(measured(work, [job], turns, first=number * turns), state)
            right += found == [device]
        hook.set_fault(None)
        good &= right == times
        print(f"{name}: {right} of {times} named, {time.perf_counter() - began:.0f} s", flush=True)
    return good


def false_alarms(work: Work, resampled: int) -> bool:
    """Print how often records of right devices, with times drawn anew, are not all passed."""
    small = [replace(job, nbytes=min(job.nbytes, 4096)) for job in rounds_of(1, "cpu")]
    real = measured(work, small, turns=8)
    pool: dict[str, list[float]] = {}
    for measure in real.measures:
        pool.setdefault(measure.round, []).extend(measure.seconds)
    draw = random.Random(5)
    alarms = failed = 0
    for _ in range(resampled):
        measures = tuple(
            replace(m, seconds=tuple(draw.choices(pool[m.round], k=len(m.seconds))))
            if m.seconds
            else m
            for m in real.measures
        )
        states = {f.state for f in judge(replace(real, measures=measures))}
        alarms += State.SUSPICIOUS in states
        failed += State.FAILED in states
    print(f"false alarms: {alarms} suspicious and {failed} failed of {resampled}", flush=True)
    return not failed and not alarms


def costs(size: int) -> None:
    """Print what checks cost, as a part of a product on one device."""
    import jax

    from pyreactant.arrays.runtimes.jax.digest import word

    x, y = (w.rows(0, size).astype(np.float32) for w in whole.operands("float32", (size,) * 3, 1))
    v = whole.weights(size, 1)
    product, check, digest = jax.jit(whole.product), jax.jit(whole.checked), jax.jit(word)
    held = [jax.device_put(a) for a in (x, y, v)]
    c = product(*held[:2])

    def median(call: Callable[[], Any]) -> float:
        jax.block_until_ready(call())
        took = []
        for _ in range(7):
            began = time.perf_counter()
            jax.block_until_ready(call())
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    whole_time = median(lambda: product(*held[:2]))
    parts = {"C v": lambda: check(c, held[2]), "digest": lambda: digest(c)}
    shares = (f"{name} {median(call) / whole_time:.1%}" for name, call in parts.items())
    print(f"product of {size}: {whole_time * 1e3:.0f} ms; of it {', '.join(shares)}", flush=True)


def simulated(hosts: int, path: Path, devices: int = 4, turns: int = 5) -> None:
    """Print what process 0 needs for a burn-in of so many hosts: rounds, memory, times.

    Their messages are a stand-in: made-up numbers, as the text that the processes would send.
    """
    members = tuple(
        member(p, range(p * devices, (p + 1) * devices), serials=[f"GPU-{p}"]) for p in range(hosts)
    )
    rounds = rounds_of(hosts, "gpu", devices)
    names = tuple(dict.fromkeys(job.name for job in rounds))
    before = peak_memory()
    book = Book(replace(record((), members=members), rounds=names, asked=1e9), path)
    draw, began = random.Random(1), time.perf_counter()
    for _ in range(turns):
        for number, job in enumerate(rounds):
            texts = [json.dumps([0.0, [*made_up(job, p, devices, draw)]]) for p in range(hosts)]
            book.enter(number, job, 1.0, map(json.loads, texts))
    book.finish()
    print(
        f"{hosts} hosts of {devices} devices: {len(rounds)} rounds in a turn, {turns} turns "
        f"entered in {time.perf_counter() - began:.0f} s, a record of "
        f"{path.stat().st_size / 2**20:.0f} MiB; peak memory of process 0 {peak_memory():.0f} MiB, "
        f"{before:.0f} at its start",
        flush=True,
    )


def certified(path: Path) -> None:
    """Print what the command needs to certify a record, and to write the certificate and page."""
    before, began = peak_memory(), time.perf_counter()
    certificate = certify(read_record(path), "")
    alarms = sum(f.state is not State.PASSED for f in certificate.findings)
    judged, judged_peak = time.perf_counter() - began, peak_memory()
    path.with_name("burnin.json").write_text(plain_json(certificate.data()))
    certificate.to_html(path.with_name("burnin.html"))
    print(
        f"certified in {judged:.1f} s, {alarms} alarms; peak memory of the command "
        f"{judged_peak:.0f} MiB, {before:.0f} at its start, {peak_memory():.0f} with the page",
        flush=True,
    )


def peak_memory() -> float:
    """The most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def made_up(job: Round, process: int, devices: int, draw: random.Random) -> Iterator[Any]:
    """What one process of a simulation tells of a round."""

    def measure(device: int | None) -> dict[str, Any]:
        seconds = tuple(draw.gauss(0.01, 0.001) for _ in range(4))
        return Measure(job.name, process, device, (), 5, seconds=seconds, nbytes=job.nbytes).told()

    if job.what is What.HOST or any(process in group for group in job.groups):
        yield measure(None)
    elif not job.groups:
        yield from (measure(process * devices + number) for number in range(devices))


def simulation(hosts: int) -> None:
    """A burn-in of so many hosts, in two processes whose peak memory is their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "record.jsonl"))
        for words in (["--enter", path, "--hosts", str(hosts)], ["--certify", path]):
            subprocess.run([sys.executable, "-m", "benchmarks.burnin", *words], check=True)


def replayed(calls: int) -> None:
    """Print the time of a step with --replay-every 500 over that without.

    Both programs run in turns, step by step, so that other load meets both; a ratio is that of 500
    steps each, of which one runs twice.
    """
    rows = pr.NamedSharding(pr.Mesh((8,), ("x",)), ("x",))
    x = pr.device_put(np.ones((512, 512), np.float32), rows)
    programs: list[Any] = []
    for every in (500, 0):
        current().replay_every = every
        programs.append(pr.compile(lambda x: x @ x / 512, x))

    def step(program: Any) -> np.ndarray:
        began = np.array([time.perf_counter(), time.process_time()])
        program(x).block_until_ready()
        return np.array([time.perf_counter(), time.process_time()]) - began

    def turn() -> np.ndarray:
        took = np.zeros((2, 2))
        for number in range(500):
            for program in (0, 1) if number % 2 else (1, 0):
                took[program] += step(programs[program])
        return took

    turn()  # compiles the digests, too
    turns = np.array([turn() for _ in range(max(2, calls // 500))])
    for kind, name in enumerate(("time", "processor time")):
        twice, without = turns[:, 0, kind], turns[:, 1, kind]
        low, middle, high = quartiles(twice / without)
        print(
            f"--replay-every 500, {name} of a step: {np.median(without) * 2:.3f} ms without, ratio "
            f"{middle:.4f} ({low:.4f} to {high:.4f}), {len(turns)} turns of 500",
            flush=True,
        )


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--resampled", type=int, default=1000)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--hosts", type=int, default=4096)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--only", choices=["simulation", "replay", "faults"])
    parser.add_argument("--enter", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--certify", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.enter:
        simulated(given.hosts, given.enter)
    if given.certify:
        certified(given.certify)
    if given.enter or given.certify:
        return 0
    if given.only == "simulation":
        simulation(given.hosts)
        return 0
    pr.initialize("jax", platform="cpu", num_cpu_devices=8)
    print(machine())
    if given.only != "faults":
        replayed(given.calls)
    if given.only == "replay":
        return 0
    if given.only is None:
        simulation(given.hosts)
        costs(given.size)
    hook.install()
    work = Work(current().backend, size=64)
    measured(work, [PRODUCTS, CHAINS], 1)  # compiles
    good = injections(work, given.times)
    return 0 if false_alarms(work, given.resampled) and good else 1


if __name__ == "__main__":
    sys.exit(main())
