"""Faults of links and hosts, and how often a burn-in names them; false alarms beside a load.

`python -m benchmarks.burnin_hosts` starts burn-ins of 9.6 s on four hosts: network namespaces of
this machine, of which each pair has a cable, as with srun. It needs root, ip, tc, nft and cgroups.
Each injection has another victim. A fault is named if the certificate calls its host or link
suspicious or failed, or, where it ends the run, if the reason names the process. What else stands
out is counted, too. `--loaded N` starts N burn-ins without a fault beside a load of all cores.
The exit code is 1 if a fault was not named, or a burn-in without one calls something failed or
suspicious.
"""

import argparse
import contextlib
import ctypes
import fcntl
import heapq
import itertools
import json
import multiprocessing
import os
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.burnin.hook import Fault
from tests.burnin.hook import environment as with_fault
from tests.harness import environment, until
from tests.hosts import cable, joined_hosts, on_hosts

from ._measure import machine

HOSTS = ("hosta", "hostb", "hostc", "hostd")
LINKS = tuple(itertools.combinations(range(len(HOSTS)), 2))
BURNIN = "burnin --platform cpu --devices-per-process 1 --minutes 0.16"


@dataclass(frozen=True)
class Place:
    """Where a burn-in runs: its folder, and the namespaces of the hosts."""

    folder: Path
    namespaces: Sequence[str]

    def ip(self, host: int, *words: str) -> None:
        run("ip", "-n", self.namespaces[host], *words)

    def has(self, host: int, device: str) -> bool:
        argv = ["ip", "-n", self.namespaces[host], "link", "show", device]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def inside(self, host: int, *words: str) -> None:
        run("ip", "netns", "exec", self.namespaces[host], *words)


Victim = tuple[int, ...]
Broken = Callable[[Place, Victim], AbstractContextManager[Any]]


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@contextlib.contextmanager
def narrow(place: Place, link: Victim) -> Iterator[None]:
    """The cable carries 100 Mbit/s."""
    bucket = "root", "tbf", "rate", "100mbit", "burst", "64kb", "latency", "50ms"
    for here, there in (link, link[::-1]):
        place.inside(here, "tc", "qdisc", "add", "dev", cable(there), *bucket)
    yield
    for here, there in (link, link[::-1]):
        place.inside(here, "tc", "qdisc", "del", "dev", cable(there), "root")


@contextlib.contextmanager
def lossy(place: Place, link: Victim) -> Iterator[None]:
    """Each end drops 3 of 100 packets that come over the cable."""
    for here, there in (link, link[::-1]):
        chain = "{ type filter hook input priority 0; }"
        place.inside(here, "nft", "add", "table", "inet", "loss")
        place.inside(here, "nft", "add", "chain", "inet", "loss", "drops", chain)
        some = f"iif {cable(there)} numgen random mod 100 < 3 drop"
        place.inside(here, "nft", "add", "rule", "inet", "loss", "drops", *some.split())
    yield
    for here in link:
        place.inside(here, "nft", "delete", "table", "inet", "loss")


@contextlib.contextmanager
def distant(place: Place, link: Victim) -> Iterator[None]:
    """Instead of the cable, a program carries packets over /dev/net/tun, each 20 ms later."""
    forwarder = multiprocessing.Process(
        target=forward, args=([place.namespaces[host] for host in link], 0.02), daemon=True
    )
    forwarder.start()
    until(lambda: all(place.has(host, "far") for host in link))
    for here, there in (link, link[::-1]):
        place.ip(here, "link", "set", cable(there), "down")
        way = f"10.77.0.{here + 1}", "peer", f"10.77.0.{there + 1}/32"
        place.ip(here, "addr", "add", *way, "dev", "far")
        place.ip(here, "link", "set", "far", "up")
    yield
    forwarder.kill()
    forwarder.join()
    until(lambda: not any(place.has(host, "far") for host in link))
    for here, there in (link, link[::-1]):
        place.ip(here, "link", "set", cable(there), "up")


def forward(namespaces: Sequence[str], delay: float) -> None:
    """Carry packets between devices named far in two namespaces, each so much later."""
    libc = ctypes.CDLL(None, use_errno=True)
    ends = []
    for name in namespaces:
        with Path("/run/netns", name).open() as namespace:
            assert libc.setns(namespace.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        end = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(end, 0x400454CA, struct.pack("16sH", b"far", 0x1001))  # TUNSETIFF: TUN, bare
        ends.append(end)
    others = dict(zip(ends, reversed(ends), strict=True))
    due: list[tuple[float, int, int, bytes]] = []
    number = itertools.count()
    while True:
        wait = max(0.0, due[0][0] - time.monotonic()) if due else None
        for end in select.select(ends, (), (), wait)[0]:
            packet = os.read(end, 65536)
            heapq.heappush(due, (time.monotonic() + delay, next(number), others[end], packet))
        while due and due[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):  # a device that is not up yet
                os.write(due[0][2], due[0][3])
            heapq.heappop(due)


@contextlib.contextmanager
def slow(place: Place, host: Victim) -> Iterator[Path]:
    """A cgroup whose processes have 3 % of a core, once all are initialized."""
    group = Path("/sys/fs/cgroup/cpu", f"burnin-{os.getpid()}")
    group.mkdir()
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def throttled(group: Path) -> None:
    (group / "cpu.cfs_period_us").write_text("40000")
    (group / "cpu.cfs_quota_us").write_text("1200")


@contextlib.contextmanager
def nothing(place: Place, victim: Victim) -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Case:
    """A fault.

    Attributes:
        victims: Whom it hits, in turns.
        broken: What breaks the hosts or links while the burn-in runs.
        variables: Variables of the victim's process.
        code: Exit code of the burn-in.
        options: More options of the burn-in.
    """

    victims: Sequence[Victim]
    broken: Broken = nothing
    variables: Callable[[int], Mapping[str, str]] = lambda host: {}
    code: int = 0
    options: str = ""


def hooked(kind: str, **more: Any) -> Callable[[int], Mapping[str, str]]:
    plain = environment()["PYTHONPATH"]
    return lambda host: with_fault(Fault(kind, process=host, **more), plain)


EACH = tuple((host,) for host in range(len(HOSTS)))
CASES = {
    "slow link: packets 20 ms later": Case(LINKS, distant),
    "narrow link: 100 Mbit/s": Case(LINKS, narrow),
    "lossy link: 3 of 100 packets": Case(LINKS, lossy),
    "slow host: 3 % of a core": Case(EACH, slow),
    "clock 5 s ahead": Case(EACH, variables=hooked("clock")),
    "other XLA_FLAGS": Case(
        EACH, variables=lambda host: {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}, code=3
    ),
    "hang in a collective": Case(
        EACH,
        variables=hooked("hang", dtype="int32", ndim=1, after=5),
        code=7,
        options="--stall-timeout 5s",
    ),
}


@dataclass(frozen=True)
class Ended:
    """A burn-in that ended: its code, what the first host printed, and its certificate."""

    code: int
    text: str
    certificate: Mapping[str, Any]

    @property
    def odd(self) -> list[Victim]:
        """The processes of what is failed or suspicious."""
        findings = self.certificate.get("findings", ())
        return [tuple(f["processes"]) for f in findings if f["state"] in ("failed", "suspicious")]


def burn_in(place: Place, case: Case, victim: Victim) -> Ended:
    """One burn-in on the hosts, broken as the case says."""
    shared = {
        "PYREACTANT_NUM_PROCESSES": str(len(HOSTS)),
        "PYREACTANT_COORDINATOR_ADDRESS": f"{HOSTS[0]}:4711",
        "PYREACTANT_SECRET": "a secret of more than sixteen characters",
        "PYREACTANT_COMPILE_CACHE": str(place.folder / "cache"),
    }
    argv = [sys.executable, "-m", "pyreactant", *BURNIN.split(), *case.options.split()]
    logs = [place.folder / f"{name}.log" for name in HOSTS]
    processes = []
    with case.broken(place, victim) as group:
        try:
            for host, words in enumerate(on_hosts(place.namespaces, place.folder, *argv)):
                folder = place.folder / HOSTS[host]
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                own = dict(case.variables(host)) if (host,) == victim else {}
                variables = {**environment(**shared), "PYREACTANT_PROCESS_INDEX": str(host), **own}
                with logs[host].open("w") as log:
                    processes.append(
                        subprocess.Popen(
                            words,
                            cwd=folder,
                            env=variables,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                        )
                    )
                if group and (host,) == victim:
                    (group / "cgroup.procs").write_text(str(processes[-1].pid))
            if group:
                until(lambda: "all 4 initialized" in logs[0].read_text())
                throttled(group)
            for process in processes:
                process.wait(240)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    written = place.folder / HOSTS[0] / "burnin.json"
    certificate = json.loads(written.read_text()) if written.exists() else {}
    return Ended(processes[0].returncode, logs[0].read_text(), certificate)


def names(case: Case, victim: Victim, ended: Ended) -> bool:
    """Whether the burn-in names the victim."""
    if case.code:
        name = f"process {victim[0]} on {HOSTS[victim[0]]}"
        return ended.code == case.code and name in " ".join(ended.text.split())
    return victim in ended.odd


def injected(place: Place, name: str, times: int) -> bool:
    """Print how many injections of a fault are named."""
    case, right, beside, took = CASES[name], 0, 0, []
    for number in range(times):
        victim = case.victims[number % len(case.victims)]
        began = time.monotonic()
        ended = burn_in(place, case, victim)
        took.append(time.monotonic() - began)
        named = names(case, victim, ended)
        right += named
        beside += any(odd != victim for odd in ended.odd)
        if not named:
            print(f"  missed {victim}: code {ended.code}, {ended.odd}\n{ended.text}", flush=True)
    print(
        f"{name}: {right} of {times} named, something else beside it in {beside}; "
        f"median {statistics.median(took):.0f} s, load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return right == times


def loaded(place: Place, times: int) -> bool:
    """Print what burn-ins without a fault say beside a load of all cores."""
    failed = suspicious = 0
    spin = [sys.executable, "-c", "while True: pass"]
    load = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        for number in range(1, times + 1):
            ended = burn_in(place, Case(EACH), ())
            failed += ended.code != 0
            suspicious += bool(ended.odd)
            text = ended.text if ended.code or ended.odd else ""
            print(f"  {number}: code {ended.code}, {ended.odd} {text}", flush=True)
    finally:
        for process in load:
            process.kill()
            process.wait()
    print(
        f"{times} burn-ins beside a load: {failed} failed, {suspicious} with something suspicious; "
        f"load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return not failed and not suspicious


def main() -> int:
    """Inject each fault, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--loaded", type=int, default=0)
    parser.add_argument("--faults", nargs="*", default=[*CASES], metavar="WORDS")
    given = parser.parse_args()
    print(machine())
    chosen = [name for name in CASES if any(words in name for words in given.faults)]
    with tempfile.TemporaryDirectory() as folder, joined_hosts(Path(folder), HOSTS) as namespaces:
        place = Place(Path(folder), namespaces)
        good = [injected(place, name, given.times) for name in chosen]
        if given.loaded:
            good.append(loaded(place, given.loaded))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
