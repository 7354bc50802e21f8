"""This machine: its name, clock, shared memory, limits and disks."""

import ipaddress
import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._system.folders import cache_folder
from ._accelerators import gpu_count
from ._check import Found
from ._julia import place_of
from ._machine import Machine

_GIB = 2**30
LEAST_CACHE, LEAST_DEPOT, LEAST_SHM = 1 * _GIB, 8 * _GIB, 1 * _GIB
LEAST_FILES = 4096
SHM = "/dev/shm"  # noqa: S108 - only asked for its size
_TEMPORARY = "/tmp"  # noqa: S108 - only asked for its size


def host_name(machine: Machine, seconds: float = 5.0) -> Found:
    """Whether other machines would reach this one by its name: Debian writes 127.0.1.1 for it."""
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(list(machine.addresses(machine.host)))
        except (OSError, UnicodeError) as error:
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True)  # a name server may not answer
    thread.start()
    thread.join(seconds)
    if not answer:
        text = f"{machine.host}: no answer within {seconds:g} s"
        return Found("warn", text, "cat /etc/resolv.conf")
    if isinstance(answer[0], Exception):
        text = f"{machine.host} does not resolve here ({answer[0]})"
        return Found("warn", text, f"getent hosts {shlex.quote(machine.host)}")
    found = [address.partition("%")[0] for address in answer[0]]
    if all(ipaddress.ip_address(address).is_loopback for address in found):
        text = (
            f"{machine.host} is {', '.join(found)} here, which no other machine can reach: fine "
            "for runs on this one; process 0 of a larger run needs its own address in "
            "PYREACTANT_COORDINATOR_ADDRESS"
        )
        return Found("warn", text, _true_address(machine))
    return Found("pass", f"{machine.host} is {', '.join(found)}")


def _true_address(machine: Machine) -> str:
    """What gives the name its own address where Debian's installer wrote 127.0.1.1."""
    host = re.escape(machine.host)
    try:
        hosts, own = machine.file("/etc/hosts").read_text(), machine.own_address()
    except OSError:
        return f"getent hosts {shlex.quote(machine.host)}"
    if re.search(rf"^127\.0\.1\.1\s.*\b{host}\b", hosts, re.MULTILINE):
        # No other name stands for 127.0.1.1, as localhost does for 127.0.0.1.
        return f"sudo sed -i 's/^127[.]0[.]1[.]1\\s/{own} /' /etc/hosts"
    return f"grep -n {shlex.quote(machine.host)} /etc/hosts"


def clock(machine: Machine, now: float | None = None) -> Found:
    """Certificates, munge and gcloud refuse a clock that is wrong."""
    installed = Path(__file__).stat().st_mtime
    now = time.time() if now is None else now
    mend = "sudo timedatectl set-ntp true"
    shown = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    if now < installed - 86400:
        return Found("warn", f"{shown}, which is before pyreactant was installed", mend)
    timedatectl = machine.which("timedatectl")
    if timedatectl is not None:
        ran = machine.run([timedatectl, "show", "-p", "NTPSynchronized", "--value"], 3)
        if ran.code == 0 and ran.out.strip() == "no":
            return Found("warn", f"{shown}, not kept in step with any time server", mend)
        if ran.code == 0 and ran.out.strip() == "yes":
            return Found("pass", f"{shown}, kept in step")
    return Found("pass", f"{shown}; whether it is kept in step cannot be seen here")


def shared_memory(machine: Machine) -> Found:
    """The memory through which NCCL connects the GPUs of a machine."""
    folder = machine.file(SHM)
    gpus = gpu_count(machine)
    if not folder.is_dir():
        if gpus > 1:
            mend = f"sudo mount -t tmpfs -o size=8G shm {SHM}"
            return Found("warn", f"not there; NCCL between {gpus} GPUs needs it", mend)
        return Found("pass", "not there; only NCCL between several GPUs needs it")
    total, free = machine.disk(folder)
    text = f"{_size(free)} of {_size(total)} free"
    if gpus > 1 and free < LEAST_SHM:
        text += f"; NCCL between {gpus} GPUs wants {_size(LEAST_SHM)} (in Docker: --shm-size=8g)"
        return Found("warn", text, f"sudo mount -o remount,size=8G {SHM}")
    return Found("pass", text)


def open_files(machine: Machine) -> Found:
    """Each connection between processes, and each library, is a file."""
    soft, hard = machine.open_files()
    if 0 <= soft < LEAST_FILES:
        most = "unlimited" if hard < 0 else str(hard)
        higher = hard < 0 or hard >= LEAST_FILES
        text = f"at most {soft} at once; large runs need {LEAST_FILES} or more (up to {most} here)"
        return Found("warn", text, f"ulimit -n {65536 if hard < 0 else hard}" if higher else "")
    return Found("pass", "no limit" if soft < 0 else f"up to {soft} at once")


def disk(machine: Machine) -> Found:
    """Room and permission to write where results of compiling and Julia's packages are kept."""
    rows, full, closed = [], [], []
    for name, folder, least in _folders(machine):
        there = _nearest(folder)
        free = machine.disk(there).free
        rows.append(f"{name} {_size(free)}")
        if least and not os.access(there, os.W_OK):
            closed.append(f"{name} ({folder})")
        elif free < least:
            full.append(f"{name} ({folder}) has {_size(free)} of {_size(least)} wanted")
    if closed:
        text = f"cannot be written: {', '.join(closed)}"
        return Found("warn", text, "export XDG_CACHE_HOME=$TMPDIR JULIA_DEPOT_PATH=$TMPDIR/julia")
    if full:
        return Found("warn", "; ".join(full), "df -h")
    return Found("pass", f"free: {', '.join(rows)}")


def _folders(machine: Machine) -> Iterator[tuple[str, Path, int]]:
    environ = machine.environ
    yield "cache", cache_folder(), LEAST_CACHE
    place = place_of(machine)
    depots = (place and place.depot) or environ.get("JULIA_DEPOT_PATH", "")
    depot = depots.partition(os.pathsep)[0]
    folder = Path(depot or machine.home() / ".julia")
    # What Reactant's library and its packages take; once they are there, nothing need be added.
    there = (folder / "packages" / "Reactant").is_dir()
    yield "Julia depot", folder, 0 if there else LEAST_DEPOT
    yield "temporary files", Path(environ.get("TMPDIR") or _TEMPORARY), LEAST_CACHE
    compiled = environ.get("JAX_COMPILATION_CACHE_DIR", "")
    if compiled and "://" not in compiled:
        yield "JAX's cache", Path(compiled), LEAST_CACHE


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def _size(number: int) -> str:
    return f"{number / _GIB:.1f} GiB" if number < 10 * _GIB else f"{number // _GIB} GiB"
