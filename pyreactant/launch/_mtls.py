"""Mutual TLS of a run's coordinator: JAX gets a certificate for each process, made for this run.

Each supervisor makes the keys of its own programs and sends signing requests over the
authenticated roll-call; the head answers with certificates. A run uses them if every process has
one; else it says why not.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._errors import FileError
from .._system.certificates import Authority, Certified, Key, uri_prefix, variables
from ..process_group._mtls import why_not, without


class Keys:
    """The keys of the programs of one supervisor, each made when it is asked for.

    Args:
        indices: Indices of its processes.
        off: Why they have none; "" if they have.

    Attributes:
        variables: JAX's variables for each process that has a certificate, or gets it while it
            starts, by index.
    """

    def __init__(self, indices: Sequence[int], off: str) -> None:
        self.variables: dict[int, Mapping[str, str]] = {}
        self.off = off
        self._indices = indices
        self._keys: dict[int, Key] = {}
        self._folder: Path | None = None

    def offer(self, index: int) -> dict[str, str]:
        """What the first message of a process says: its signing request, or why it has none."""
        if self.off:
            return {"off": self.off}
        return {"request": self._keys.setdefault(index, Key()).request()}

    def prepare(self, prefix: str) -> None:
        """Make the folder of the keys, for this user alone, and name the files in `variables`.

        Args:
            prefix: How the URIs of the run begin.

        Raises:
            FileError: The folder cannot be made.
        """
        if self.off:
            return
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="pyreactant-keys-"))
        except OSError as error:
            raise FileError(
                f"the folder of the run's keys cannot be made ({error.strerror}); set TMPDIR to "
                "another folder, or run with --no-mtls"
            ) from None
        for index in self._indices:
            self.variables[index] = variables(self._folder / str(index), prefix)

    def accept(self, index: int, answer: Mapping[str, Any] | None) -> None:
        """Store a process's key, with the certificate that the head answered, if it has one.

        Raises:
            FileError: The files cannot be written.
        """
        if not answer or index not in self._keys:
            return
        fields = {name: str(answer[name]) for name in ("certificate", "authority", "prefix")}
        if self._folder is None:
            self.prepare(fields["prefix"])
        assert self._folder is not None
        self._keys[index].store(self._folder / str(index), Certified(**fields))

    def remove(self) -> None:
        """Delete the keys."""
        self.variables.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


_UNJOINED = "not all processes joined"


class Certifier:
    """The head's part: it certifies every process that asks, and knows whether all have asked.

    Args:
        run: Name of the run.
        count: Number of processes.
        keys: Those of the head's own programs. They are made while these start (`own`).
    """

    def __init__(self, run: str, count: int, keys: Keys) -> None:
        self._run, self._count, self._keys = run, count, keys
        self._authority: Authority | None = None
        self._off: dict[int, str] = {}
        self._asked: set[int] = set()
        self._own: list[int] = []

    def admit(self, index: int) -> None:
        """Note that a process of the head's own has joined."""
        if self._keys.off:
            self._off[index] = self._keys.off
            return
        if not self._own:
            self._keys.prepare(uri_prefix(self._run))
        self._asked.add(index)
        self._own.append(index)

    def welcome(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        """What a member of the roll-call is told: its certificate, if its supervisor asks for one.

        Raises:
            ValueError: Its signing request is malformed.
        """
        offer, process = hello.get("mtls"), int(hello["process"])
        if not isinstance(offer, dict) or "request" not in offer:
            off = offer.get("off") if isinstance(offer, dict) else None
            self._off[process] = str(off or "its supervisor makes no keys")
            return {}
        found = self._certify(process, str(offer["request"]))
        self._asked.add(process)
        return {"mtls": {name: getattr(found, name) for name in found.__slots__}}

    def certify_own(self) -> None:
        """Make and store the keys of the head's own programs, which wait for their certificates.

        It takes a tenth of a second, in which the programs start; once, also in a restarted run.

        Raises:
            FileError: The files cannot be written.
        """
        while self._own and not self.off:
            index = self._own.pop(0)
            found = self._certify(index, self._keys.offer(index)["request"])
            self._keys.accept(index, {name: getattr(found, name) for name in found.__slots__})

    def _certify(self, process: int, request: str) -> Certified:
        if self._authority is None:
            self._authority = Authority(self._run)
        return self._authority.certify(request, process)

    @property
    def off(self) -> str:
        """Why the run does without; "" if every process has a certificate."""
        if self._count == 1:
            return "one process"
        if self._off:
            process = min(self._off)
            where = "" if len(self._off) == self._count else f"process {process}: "
            return f"{where}{self._off[process]}"
        return "" if len(self._asked) == self._count else _UNJOINED


def off_reason(backend: str | None, count: int, no_mtls: bool) -> str:
    """Why the programs of this supervisor get no certificates; "" if they do.

    Args:
        backend: The runtime of the command line; None leaves it to the environment.
        count: Number of processes of the run.
        no_mtls: Whether the command line has --no-mtls.
    """
    if count == 1:
        return "one process"
    if no_mtls:
        return "--no-mtls"
    return why_not(_runtime(backend))


def off_note(backend: str | None, count: int, off: str) -> str:
    """What the user must know of a run whose runtime has mutual TLS, but which has none; or "".

    Args:
        backend: As for `off_reason`.
        count: As for `off_reason`.
        off: `Certifier.off`.
    """
    if not off or off == _UNJOINED or count == 1 or without(_runtime(backend)):
        return ""
    return f"mutual TLS is off ({off}): whoever reaches JAX's coordinator can end the run"


def _runtime(backend: str | None) -> str:
    return backend or os.environ.get("PYREACTANT_BACKEND") or "jax"
