"""This machine's host name, clock, shared memory, limits and disks; its launchers: Slurm, gcloud.

The first of the launchers' rows says which process of a run this is.
"""

import configparser
import ipaddress
import os
import re
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..arrays.text import bytes_text
from ..base.counted import counted
from ..base.errors import FileError
from ..base.files import cache_folder
from ..base.settings import COMPILE_CACHE
from ..process.compile_cache import check_owner, size_of
from ..process.group.coordinator import coordinator_note
from ..process.group.group import LaunchError
from ..process.group.resolvers import explain
from .accelerators import gpu_count
from .check import CheckResult, Machine
from .software import place_of

_GIB = 2**30
MIN_CACHE, MIN_DEPOT, MIN_SHM = 1 * _GIB, 8 * _GIB, 1 * _GIB
MIN_FILES = 4096
SHM = "/dev/shm"  # noqa: S108 - only its size is read
_TEMPORARY = "/tmp"  # noqa: S108 - only its size is read


_MOST_HOSTS = 64
"""Hosts of a run whose names are resolved."""


def host_name(machine: Machine, seconds: float = 5.0) -> CheckResult:
    """Whether the hosts of a run reach each other by their names; Debian's own is 127.0.1.1.

    Inside a run whose launcher names the hosts, those are checked as they resolve here.
    """
    group = explain(machine.environ).decider.group
    of_run = dict.fromkeys((group and group.hosts) or ())
    hosts = dict.fromkeys((machine.host, *(of_run if len(of_run) > 1 else ())))
    names = [*hosts][:_MOST_HOSTS]
    answers = _addresses_of(machine, names, seconds)
    own = answers[machine.host]
    if isinstance(own, Exception):
        fix = f"getent hosts {shlex.quote(machine.host)}"
        return CheckResult("warn", f"{machine.host} does not resolve here ({own})", fix)
    if _are_loopback(own):
        text = (
            f"{machine.host} is {', '.join(own)} here, which no other machine can reach; that is "
            "fine for runs on this machine; in a run on several, each host's own name must be its "
            "real address: on CPU all processes connect to each other by these names, on "
            "accelerators to process 0, whose address PYREACTANT_COORDINATOR_ADDRESS can give"
        )
        return CheckResult("warn", text, _true_address(machine))
    others = {name: _problem(answers[name]) for name in names if name != machine.host}
    wrong = {name: problem for name, problem in others.items() if problem}
    if wrong:
        first = next(iter(wrong))
        text = "; ".join(f"{name} {problem}" for name, problem in wrong.items())
        return CheckResult("warn", f"of this run's hosts {text}", f"getent hosts {first}")
    shown = [f"{n} is {', '.join(a)}" for n, a in answers.items() if isinstance(a, list)]
    more = f"; {len(hosts) - len(names)} more were not resolved" if len(hosts) > len(names) else ""
    return CheckResult("pass", "; ".join(shown) + more)


def _addresses_of(
    machine: Machine, names: Sequence[str], seconds: float
) -> dict[str, list[str] | Exception]:
    """The addresses of each name, or why it has none."""
    answers: dict[str, list[str] | Exception] = {}

    def ask(name: str) -> None:
        try:
            answers[name] = [address.partition("%")[0] for address in machine.addresses(name)]
        except (OSError, UnicodeError) as error:
            answers[name] = error

    # A name server may not answer.
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = TimeoutError(f"no answer within {seconds:g} s")
    return {name: answers.get(name, late) for name in names}


def _are_loopback(addresses: Sequence[str]) -> bool:
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def _problem(answer: list[str] | Exception) -> str:
    """What is wrong with another host's name; "" if nothing is."""
    if isinstance(answer, Exception):
        return f"does not resolve here ({answer})"
    return f"is {', '.join(answer)} here, which is this machine" if _are_loopback(answer) else ""


def _true_address(machine: Machine) -> str:
    """The command that replaces the 127.0.1.1 of Debian's installer by the real address."""
    host = re.escape(machine.host)
    try:
        hosts, own = machine.file("/etc/hosts").read_text(), machine.own_address()
    except OSError:
        return f"getent hosts {shlex.quote(machine.host)}"
    if re.search(rf"^127\.0\.1\.1\s.*\b{host}\b", hosts, re.MULTILINE):
        # No other name means 127.0.1.1, as localhost means 127.0.0.1.
        return f"sudo sed -i 's/^127[.]0[.]1[.]1\\s/{own} /' /etc/hosts"
    return f"grep -n {shlex.quote(machine.host)} /etc/hosts"


def clock(machine: Machine, now: float | None = None) -> CheckResult:
    """Whether the clock is right: certificates, munge and gcloud fail with a wrong clock."""
    installed = Path(__file__).stat().st_mtime
    now = time.time() if now is None else now
    mend = "sudo timedatectl set-ntp true"
    shown = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    if now < installed - 86400:
        return CheckResult("warn", f"{shown}, which is before pyreactant was installed", mend)
    timedatectl = machine.which("timedatectl")
    if timedatectl is not None:
        result = machine.run([timedatectl, "show", "-p", "NTPSynchronized", "--value"], 3)
        if result.code == 0 and result.out.strip() == "no":
            return CheckResult("warn", f"{shown}, not synchronized with a time server", mend)
        if result.code == 0 and result.out.strip() == "yes":
            return CheckResult("pass", f"{shown}, synchronized")
    return CheckResult("pass", f"{shown}; whether it is synchronized is unknown")


def shared_memory(machine: Machine) -> CheckResult:
    """The shared memory with which NCCL connects the GPUs of a machine."""
    folder = machine.file(SHM)
    gpus = gpu_count(machine)
    if not folder.is_dir():
        if gpus > 1:
            mend = f"sudo mount -t tmpfs -o size=8G shm {SHM}"
            return CheckResult("warn", f"missing; NCCL between {gpus} GPUs needs it", mend)
        return CheckResult("pass", "missing; only NCCL between several GPUs needs it")
    total, free = machine.disk(folder)
    text = f"{bytes_text(free)} of {bytes_text(total)} free"
    if gpus > 1 and free < MIN_SHM:
        text += f"; NCCL between {gpus} GPUs needs {bytes_text(MIN_SHM)} (in Docker: --shm-size=8g)"
        return CheckResult("warn", text, f"sudo mount -o remount,size=8G {SHM}")
    return CheckResult("pass", text)


def open_files(machine: Machine) -> CheckResult:
    """The limit of open files: each connection between processes and each library is one."""
    soft, hard = machine.open_files()
    if 0 <= soft < MIN_FILES:
        most = "unlimited" if hard < 0 else str(hard)
        higher = hard < 0 or hard >= MIN_FILES
        text = (
            f"at most {soft} at once (can be raised to {most}); large runs need {MIN_FILES} or more"
        )
        mend = f"ulimit -n {65536 if hard < 0 else hard}" if higher else ""
        return CheckResult("warn", text, mend)
    return CheckResult("pass", "no limit" if soft < 0 else f"up to {soft} at once")


def disk(machine: Machine) -> CheckResult:
    """Space and permission to write in the caches and in the folder of Julia's packages."""
    rows, full, closed = [], [], []
    for name, folder, least in _folders(machine):
        there = _nearest(folder)
        free = machine.disk(there).free
        rows.append(f"{name} {bytes_text(free)}")
        if least and not os.access(there, os.W_OK):
            closed.append(f"{name} ({folder})")
        elif free < least:
            full.append(f"{name} ({folder}) has {bytes_text(free)} of {bytes_text(least)} required")
    if closed:
        text = f"cannot be written: {', '.join(closed)}"
        return CheckResult(
            "warn", text, "export XDG_CACHE_HOME=$TMPDIR JULIA_DEPOT_PATH=$TMPDIR/julia"
        )
    if full:
        return CheckResult("warn", "; ".join(full), "df -h")
    return CheckResult("pass", f"free: {', '.join(rows)}")


def compile_cache(machine: Machine) -> CheckResult:
    """The folder in which processes keep what they compiled."""
    name = machine.environ.get(COMPILE_CACHE)
    if not name:
        return CheckResult("pass", f"none; {COMPILE_CACHE} names its folder")
    folder = Path(name).absolute()
    there = _nearest(folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        text = f"{there} must be a folder that can be written; what is compiled is not kept"
        return CheckResult("warn", text, f"ls -ld {shlex.quote(str(there))}")
    try:
        for kind in folder.glob("jax-*"):
            check_owner(kind)
    except (FileError, OSError) as error:
        return CheckResult("warn", f"{error}", f"ls -l {shlex.quote(str(folder))}")
    count, size = size_of(folder)
    free = machine.disk(there).free
    text = f"{folder}: {counted(count, 'program')}, {bytes_text(size)}; {bytes_text(free)} free"
    return CheckResult(
        "pass" if free >= MIN_CACHE else "warn", text, "" if free >= MIN_CACHE else "df -h"
    )


def _folders(machine: Machine) -> Iterator[tuple[str, Path, int]]:
    environ = machine.environ
    yield "cache", cache_folder(), MIN_CACHE
    place = place_of(machine)
    depots = (place and place.depot) or environ.get("JULIA_DEPOT_PATH", "")
    depot = depots.partition(os.pathsep)[0]
    folder = Path(depot or machine.home() / ".julia")
    # The space is for Reactant's library and packages; once they are installed, none is needed.
    there = (folder / "packages" / "Reactant").is_dir()
    yield "Julia depot", folder, 0 if there else MIN_DEPOT
    yield "temporary files", Path(environ.get("TMPDIR") or _TEMPORARY), MIN_CACHE
    compiled = environ.get("JAX_COMPILATION_CACHE_DIR", "")
    if compiled and "://" not in compiled:
        yield "JAX's cache", Path(compiled), MIN_CACHE


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


_TOOLS = ("sinfo", "srun", "sbatch", "scontrol")


def who_am_i(machine: Machine) -> CheckResult:
    """The process group of this process, as `pyreactant explain` shows it."""
    explained = explain(machine.environ)
    decider = explained.decider
    error = decider.error
    if isinstance(error, LaunchError):
        return CheckResult("warn", f"{decider.name}: {error.problem}", error.command)
    if error is not None:
        return CheckResult("warn", f"{decider.name}: {error}", "pyreactant explain")
    group = decider.group
    assert group is not None
    text = f"process {group.process_index} of {group.num_processes}, decided by {group.source}"
    note = coordinator_note(group, machine.environ)
    return CheckResult("pass", "; ".join((text, *decider.notes, *([note] if note else []))))


def slurm(machine: Machine) -> CheckResult:
    """Slurm's commands, and whether its controller answers."""
    present = [name for name in _TOOLS if machine.which(name)]
    job = machine.environ.get("SLURM_JOB_ID")
    if not present:
        if job:
            text = f"inside job {job}, but Slurm's commands are not on PATH"
            return CheckResult("warn", text, 'export PATH="$PATH:/usr/bin:/opt/slurm/bin"')
        return CheckResult("pass", "not installed")
    absent = [name for name in _TOOLS if name not in present]
    if absent:
        text = f"{', '.join(present)} are on PATH, but not {', '.join(absent)}"
        return CheckResult("warn", text, f"ls -l {machine.which(present[0])}")
    result = machine.run([str(machine.which("scontrol")), "ping"], 5)
    if result.code != 0 or not re.search(r"\bUP\b", result.out):
        how = "did not answer within 5 s" if result.code is None else "does not answer"
        text = f"installed, but its controller {how}"
        return CheckResult(
            "warn", text, "scontrol ping" if job else "sudo systemctl status slurmctld"
        )
    where = f"inside job {job}" if job else "not inside a job"
    return CheckResult("pass", f"its controller answers; {where}")


def gcloud(machine: Machine) -> CheckResult:
    """Whether gcloud is installed and has an account and a project; the account is not shown."""
    path = machine.which("gcloud")
    if path is None:
        return CheckResult("pass", "not installed; only TPU slices on Google Cloud need it")
    version = _version(Path(path).resolve()) or "unknown version"
    account, project = (_setting(machine, name) for name in ("account", "project"))
    if not account:
        return CheckResult("warn", f"{version}, no account is set", "gcloud auth login")
    if not project:
        mend = "gcloud config set project PROJECT"
        return CheckResult("warn", f"{version}, an account but no project is set", mend)
    return CheckResult("pass", f"{version}, an account is set, project {project}")


def _version(executable: Path) -> str | None:
    try:
        return (executable.parent.parent / "VERSION").read_text().strip()
    except OSError:
        return None


def _setting(machine: Machine, name: str) -> str | None:
    """A property of gcloud's [core], from the environment or the active configuration."""
    variable = machine.environ.get(f"CLOUDSDK_CORE_{name.upper()}")
    if variable:
        return variable
    folder = Path(machine.environ.get("CLOUDSDK_CONFIG") or machine.home() / ".config" / "gcloud")
    active = machine.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME")
    if not active:
        try:
            active = (folder / "active_config").read_text().strip()
        except OSError:
            active = "default"
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(folder / "configurations" / f"config_{active}")
    return settings.get("core", name, fallback=None)
