"""Clusters of Ray as this process sees them: one child process per cluster, with deadlines."""

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ....base.child import import_path
from ....base.errors import FileError, RequirementError, argument
from ....base.say import say
from ....process.group.coordinator import NAME_ERRORS

_CONNECT = 90.0
"""Seconds for the connection to a cluster; Ray itself waits longer."""
_GREETING = 10.0
"""Seconds for the first word of a head that is asked as any server of gRPC is."""
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The preface of HTTP/2 (RFC 9113, 3.4), with settings that say nothing."""
_SILENT = 5.0
"""Seconds after which a line says what is waited for."""
_HERE = "auto"
"""The address of the cluster of this machine."""
_LOOK = 3.0
"""Seconds after which the child is not only waited for: its cluster may have ended."""
_FORGIVE = 10.0
"""Seconds for which a cluster that did not answer is not asked again."""


class UnreachableError(RequirementError):
    """The cluster does not answer.

    Attributes:
        gone: Whether nothing listens at the address.
    """

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


@dataclass
class Cluster:
    """A connection to a cluster.

    Attributes:
        address: As for `ray.init`; "auto" for the cluster of this machine.
        pass_fds: Descriptors that the child inherits.
    """

    address: str
    pass_fds: Sequence[int] = ()
    _child: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None
    _input: bytes = b""
    _failed: tuple[float, UnreachableError] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        """Send a request to the child, and wait for its answer.

        Args:
            limit: Seconds for the answer, and for a connection that must be made before.
            request: What is asked.

        Raises:
            UnreachableError: The cluster does not answer.
            FileError: The child cannot write what it brings.
        """
        with self._lock:
            if self._failed is not None:
                at, before = self._failed
                if time.monotonic() - at < _FORGIVE:
                    raise UnreachableError(str(before), gone=before.gone)
            try:
                self.connect(limit)
                assert self._child is not None
                assert self._child.stdin is not None
                self._child.stdin.write(json.dumps(request).encode() + b"\n")
                self._child.stdin.flush()
                answer = self._answer(limit)
            except BrokenPipeError:
                self.close()
                raise UnreachableError(f"{self._name} broke the connection") from None
            except UnreachableError as error:
                self._failed = time.monotonic(), error
                self.close()
                raise
        if answer.get("kind") == "FileError":
            raise FileError(answer["error"])
        if "error" in answer:
            raise UnreachableError(f"{self._name} refused: {answer['error']}")
        return answer

    def connect(self, limit: float = _CONNECT) -> None:
        """Start the child, unless it runs.

        Args:
            limit: Seconds that it may take at most.

        Raises:
            UnreachableError: The cluster does not answer, or refuses.
        """
        if self._child is not None and self._child.poll() is None:
            return
        limit = min(limit, _CONNECT)
        waiting = threading.Timer(
            _SILENT, say, [f"waiting for {self._name}, for {limit:g} s at most"]
        )
        waiting.daemon = True
        waiting.start()
        try:
            self._connect(limit)
        finally:
            waiting.cancel()

    def _connect(self, limit: float) -> None:
        failure = _failure(self.address, greeting=True)  # Ray itself would try for a long time
        if isinstance(failure, ConnectionRefusedError):
            raise self._absent()
        if isinstance(failure, TimeoutError):
            raise self._silent(_GREETING)
        if isinstance(failure, NAME_ERRORS):
            why = failure.strerror if isinstance(failure, OSError) else failure
            raise UnreachableError(
                f"{self._name} cannot be reached: {why}; correct "
                f"{argument('address')}, or RAY_ADDRESS"
            )
        self._input, self._log = b"", tempfile.TemporaryFile()  # noqa: SIM115 - lives as the child
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pyreactant.runs.places.ray.driver", self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": import_path(), "RAY_LOG_TO_DRIVER": "0"},
            pass_fds=list(self.pass_fds),
            start_new_session=True,  # Ctrl-C is for this process
        )
        _open.append(self)
        answer = self._answer(limit)
        if "error" not in answer:
            self.address = answer["connected"]
            return
        text = str(answer["error"])
        if self.address == _HERE:
            raise self._absent()
        raise UnreachableError(f"{self._name} cannot be reached: {text}")

    def _silent(self, limit: float) -> UnreachableError:
        return UnreachableError(
            f"{self._name} does not answer within {limit:g} s; see whether its head runs, and try "
            "again"
        )

    def _absent(self) -> UnreachableError:
        if self.address == _HERE:
            return UnreachableError(
                f"there is no Ray cluster on this machine; give {argument('address')}, set "
                "RAY_ADDRESS, or start one with: ray start --head",
                gone=True,
            )
        return UnreachableError(
            f"{self._name} cannot be reached: nothing listens there; see whether its head runs",
            gone=True,
        )

    @property
    def _name(self) -> str:
        at = "of this machine" if self.address == _HERE else f"at {self.address}"
        return f"the Ray cluster {at}"

    def _answer(self, limit: float) -> dict[str, Any]:
        """The next line of the child."""
        assert self._child is not None
        assert self._child.stdout is not None
        deadline = time.monotonic() + limit
        descriptor = self._child.stdout.fileno()
        while b"\n" not in self._input:
            left = deadline - time.monotonic()
            if not select.select([descriptor], [], [], max(0.0, min(left, _LOOK)))[0]:
                if _refused(self.address):  # Ray itself would wait for a head that is gone
                    raise self._absent()
                if left <= _LOOK:
                    raise self._silent(limit)
                continue
            if not (data := os.read(descriptor, 65536)):
                if _refused(self.address):
                    raise self._absent()
                assert self._log is not None
                self._log.seek(0)
                printed = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
                raise UnreachableError(
                    f"{self._name} ended the connection: {' '.join(printed)[:500]}"
                )
            self._input += data
        line, _, self._input = self._input.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout, self._log):
                if stream is not None:
                    stream.close()


_open: list[Cluster] = []
_clusters: dict[str, Cluster] = {}


def cluster_at(address: str) -> Cluster:
    """The connection of this process to a cluster."""
    return _clusters.setdefault(address, Cluster(address))


def keep(cluster: Cluster) -> None:
    """Use a connection for later questions to its cluster, unless there is one."""
    cluster.pass_fds = ()  # the caller closes them, and another child may follow this one
    if _clusters.setdefault(cluster.address, cluster) is not cluster:
        cluster.close()


def _refused(address: str) -> bool:
    """Whether the machine answers that nothing listens at the address."""
    return isinstance(_failure(address), ConnectionRefusedError)


def _failure(address: str, *, greeting: bool = False) -> OSError | UnicodeError | None:
    """Why no connection to an address is made; None if one is, or if the address has no port.

    Args:
        address: As for `ray.init`.
        greeting: Whether what listens there must say a word, too. The kernel takes connections for
            a head that is stopped.
    """
    if address == _HERE:  # Ray notes the cluster that was started here last
        noted = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")  # noqa: S108
        with contextlib.suppress(OSError, ValueError):
            address = noted.read_text().strip()
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _GREETING) as connection:
            if greeting:
                connection.sendall(_HELLO)
                with contextlib.suppress(ConnectionError):  # one with TLS hangs up
                    connection.recv(1)
            return None
    except (OSError, UnicodeError) as error:
        return error


@atexit.register
def _close_all() -> None:
    for cluster in _open:
        cluster.close()
