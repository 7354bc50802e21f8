"""The coordinator of a run: the secret of those who may join, and its name and port checked.

JAX crashes with a segmentation fault if the port is taken, and reports a closed port, an
unresolvable name and a missing process with the same message. Here each has its own. With mutual
TLS JAX's coordinator accepts only the processes of its run.
"""

import errno
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import shlex
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.errors import (
    FileError,
    InvalidArgumentError,
    PortTakenError,
    RendezvousError,
    RequirementError,
)
from ...base.facts import package_version
from ...base.files import check_home, config_folder
from .group import ProcessGroup, split_address

SECRET = "PYREACTANT_SECRET"  # noqa: S105 - the variable's name
SECRET_FILE = "PYREACTANT_SECRET_FILE"  # noqa: S105
MEETING_SECRET = "PYREACTANT_MEETING_SECRET"  # noqa: S105
"""The variable with the secret that a supervisor gives its programs, for their connections."""
SAME_SECRET = f"set {SECRET} or {SECRET_FILE} to the same on every process"
"""What to do if two processes have different secrets."""

_MIN_LENGTH = 16


def run_secret(group: ProcessGroup, environ: Mapping[str, str] = os.environ) -> bytes:
    """The secret of this run, the same on every process.

    It is ``PYREACTANT_SECRET``, or in the file that ``PYREACTANT_SECRET_FILE`` names. If neither is
    set, it is in the user's key file (``~/.config/pyreactant/key``, created on first use), which
    the machines of a cluster share with the home directory.

    Raises:
        InvalidArgumentError: The secret is too short.
        FileError: The file cannot be read or created, or other users can read it.
    """
    base = user_key(environ)
    # Each run has its own key, so messages of one run prove nothing in another.
    this_run = f"{group.run_id} {group.coordinator_address}".encode()
    return hmac.digest(base, this_run, hashlib.sha256)


def user_key(environ: Mapping[str, str] = os.environ) -> bytes:
    """The user's secret, from which those of runs are made; as for `run_secret`.

    Raises:
        InvalidArgumentError, FileError: As `run_secret`.
    """
    path = environ.get(SECRET_FILE)
    if environ.get(SECRET):
        base, source = os.fsencode(environ[SECRET]), SECRET
    elif path:
        base, source = _read(Path(path)), f"{SECRET_FILE} ({path})"
    else:
        key = _key_file()
        base, source = _read(key), str(key)
    if len(base) < _MIN_LENGTH:
        raise InvalidArgumentError(
            f"{source} must hold a secret of {_MIN_LENGTH} characters or more, got {len(base)}; "
            "make one with: python -c 'import secrets; print(secrets.token_hex())'"
        )
    return base


def meeting_secret(secret: bytes) -> str:
    """The secret of a run's programs; the run's own secret cannot be derived from it."""
    return hmac.digest(secret, b"the programs among themselves", hashlib.sha256).hex()


def programs_secret(group: ProcessGroup, environ: Mapping[str, str] = os.environ) -> bytes:
    """The secret of a program that meets the others: its supervisor's, or else that of the run."""
    given = environ.get(MEETING_SECRET)
    return given.encode() if given else run_secret(group, environ)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(4096).strip()
    except OSError as error:
        raise FileError(
            f"the run's secret cannot be read from {path} ({error.strerror}); set {SECRET}, the "
            "same on every process"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise FileError(
            f"{path} holds the run's secret, but other users can read it; run: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
    return content


def _key_file() -> Path:
    path = config_folder() / "key"
    partial = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        if path.exists():
            return path
        check_home(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        try:
            os.link(partial, path)  # of several processes at once one succeeds, also on NFS
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    except OSError as error:
        raise FileError(
            f"no secret for this run is set, and the key file {path} cannot be created "
            f"({error.strerror}); set {SECRET}, the same on every process"
        ) from None
    return path


def check_coordinator(group: ProcessGroup, timeout: float) -> None:
    """Check that the processes of the run can meet at the coordinator's address.

    Process 0 binds the port as a test; the other processes wait until something listens there.

    Args:
        group: The processes of the run, at least two.
        timeout: Seconds for the host's name to resolve and for a listener, together.

    Raises:
        RequirementError: The host does not resolve.
        RendezvousError: The port is taken (process 0), or nothing listens there in time (the
            others).
    """
    assert group.coordinator_address is not None
    host, port = split_address(group.coordinator_address)
    deadline = time.monotonic() + timeout
    patience = NamePatience(group.coordinator_address, deadline)
    while True:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            break
        except NAME_ERRORS as error:
            patience.after(error)
        time.sleep(0.1)
    if group.process_index != 0:
        _wait_for_listener(group, timeout, deadline)
        return
    try:
        for bound in _bind(group.coordinator_address):  # one that listened would look like the run
            bound.close()
    except OSError as error:
        raise PortTakenError(
            f"process 0 must listen on port {port} of this machine, but it cannot be bound "
            f"({error.strerror}); choose another port in coordinator_address, the same on every "
            "process"
        ) from None


NAME_ERRORS = (socket.gaierror, UnicodeError)
"""What getaddrinfo raises for a name; Python refuses one that is no name with a UnicodeError."""

_NAME = 3.0
"""Seconds for a name that does not resolve; meanwhile process 0 hears from the others."""


class NamePatience:
    """How long to ask again for the address of a coordinator whose host does not resolve.

    In Kubernetes the name of a pod exists once the pod runs, so there it has the whole time for the
    start. So it has if the answer is that the name server does not answer just now.

    Args:
        address: The coordinator's address.
        deadline: When the time for the start is over, in monotonic seconds.
    """

    def __init__(
        self, address: str, deadline: float, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._address, self._late = address, bool(environ.get("KUBERNETES_SERVICE_HOST"))
        self._until, self._soon = deadline, min(deadline, time.monotonic() + _NAME)

    def after(self, error: Exception) -> str:
        """What to tell the user after an error of `NAME_ERRORS`, before the next attempt.

        Raises:
            RequirementError: The time is over.
        """
        host, _ = split_address(self._address)
        said = error.strerror if isinstance(error, socket.gaierror) else str(error)
        why = f"the host {host!r} does not resolve here ({said})"
        silent = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        if time.monotonic() < (self._until if self._late or silent else self._soon):
            return f"{why}; in Kubernetes it may come late" if self._late else why
        advice = "give"
        if silent:
            advice = "see that this machine's name server answers, or give"
        elif self._late:
            advice = (
                "see that its Service selects the pods and publishes those that are not ready, "
                "or give"
            )
        raise RequirementError(
            f"coordinator_address {self._address!r}: {why}; {advice} a name or address that every "
            "process can reach"
        )


_BACKLOG = 65535
"""Connections that wait in the kernel to be accepted; it takes its own limit if that is less."""


def listen(address: str) -> list[socket.socket]:
    """Process 0's listeners at a coordinator address, or on all addresses of this machine.

    They are for IPv4 and IPv6 where this machine has both, and do not block.

    Raises:
        OSError: The port is in use, or the host does not resolve.
    """
    listeners = _bind(address)
    try:
        for listener in listeners:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
    except OSError:
        _close(listeners)
        raise
    return listeners


def _bind(address: str) -> list[socket.socket]:
    """The sockets of `listen`, which do not listen yet."""
    host, port = split_address(address)
    infos = socket.getaddrinfo(
        host if is_loopback(address) else None,
        port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )
    bound: list[socket.socket] = []
    unusable: OSError | None = None
    for family, where in dict.fromkeys((info[0], info[4]) for info in infos):
        try:
            bound.append(_bound(family, where))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                _close(bound)
                raise
            unusable = error  # such as ::1 in /etc/hosts of a machine without IPv6
    if not bound:
        raise unusable or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return bound


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _bound(family: int, where: Any) -> socket.socket:
    """A socket as `socket.create_server` makes it, before it listens."""
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
    except OSError:
        bound.close()
        raise
    return bound


def is_loopback(address: str) -> bool:
    """Whether a coordinator address can be reached only from its own machine.

    Names other than localhost are not resolved: a host often resolves its own name to 127.0.1.1
    (Debian's installer writes that), while other machines resolve it to its real address.
    """
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def bind_host(address: str) -> str | None:
    """The one address of this machine on which the coordinator listens; None for all of them.

    That is the address that other machines connect to, if this machine has it and the name has no
    other; then nobody reaches the coordinator through another network of this machine.
    """
    host, port = split_address(address)
    if is_loopback(address):
        return host
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except NAME_ERRORS:
        return None
    families = {str(info[4][0]): info[0] for info in infos}
    if len(families) != 1:
        return None
    ((only, family),) = families.items()
    # Debian gives a machine's own name the address 127.0.1.1, which no other machine reaches.
    if "%" in only or ipaddress.ip_address(only).is_loopback or not _is_own(only, family):
        return None
    return only


def _is_own(address: str, family: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return not ipaddress.ip_address(address).is_unspecified


def _wait_for_listener(group: ProcessGroup, timeout: float, deadline: float) -> None:
    assert group.coordinator_address is not None
    address = split_address(group.coordinator_address)
    while True:
        try:
            with socket.create_connection(address, timeout=5) as connection:
                if connection.getsockname() != connection.getpeername():
                    return
                # From the very port on which nobody listens: TCP connects that with itself.
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except OSError as error:
            if time.monotonic() >= deadline:
                raise RendezvousError(
                    f"process {group.process_index} of {group.num_processes} found nothing "
                    f"listening at {group.coordinator_address} after {timeout:g} s "
                    f"({error.strerror or error}); check that process 0 runs on that host and that "
                    "no firewall closes the port"
                ) from None
            time.sleep(0.05)


MTLS = "PYREACTANT_MTLS"
"""The variable that switches mutual TLS off with 0."""
CERTIFICATE = "JAX_MTLS_CERT_FILE"
"""JAX's variable with this process's certificate."""

_FIRST = (0, 11, 2)  # jax with mutual TLS


def why_not(backend: str, environ: Mapping[str, str] = os.environ) -> str:
    """Why a supervised run has no mutual TLS of its own; "" if it has."""
    if environ.get(CERTIFICATE):
        return f"{CERTIFICATE} is set, and decides"
    if environ.get(MTLS) == "0":
        return f"{MTLS}=0"
    if lacking := without(backend):
        return lacking
    return "" if package_version("cryptography") else "cryptography is not installed"


def without(backend: str) -> str:
    """Why the runtime has no mutual TLS, whatever the settings; "" if it has."""
    if backend == "reactant":
        return "Reactant's coordinator has none"
    version = package_version("jax")
    if version is None:
        return "jax is not installed"
    # Not by `packaging`, for which every supervisor would wait 15 ms.
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < _FIRST:
        return f"jax {version} has none, jax {'.'.join(map(str, _FIRST))} does"
    return ""


def coordinator_note(group: ProcessGroup, environ: Mapping[str, str] = os.environ) -> str:
    """Who can reach the coordinator of a run, in one sentence; "" for one process."""
    if group.coordinator_address is None or group.num_processes == 1:
        return ""
    why = why_not(environ.get("PYREACTANT_BACKEND") or "jax", environ)
    if environ.get(CERTIFICATE):
        return f"mutual TLS: the coordinator accepts processes with a certificate ({CERTIFICATE})"
    where, port = split_address(group.coordinator_address)
    if group.process_index == 0:
        where = bind_host(group.coordinator_address) or "every network of this machine"
    open_ = (
        f"the coordinator listens on {where}, port {port}, and whoever reaches it can end the run"
    )
    if why:
        return f"no mutual TLS ({why}): {open_}"
    return f"mutual TLS under pyreactant run; without a supervisor {open_}"
