"""Mutual TLS of a run's coordinator: JAX gets a certificate for each process, made for this run.

Each supervisor makes the keys of its own programs and sends the public ones over the
authenticated roll-call; the head answers with certificates. A run uses them if every process has
one; else it says why not. The authority is in the memory of the head only. What admits a process
is the URI pyreactant://RUN/process/INDEX in its certificate. That of process 0, where JAX's
coordinator listens, also has the names of its host: gRPC prints an error for each connection to a
name that the certificate lacks, although JAX checks the URI alone. `cryptography` is imported at
first use: it takes a tenth of a second, and most processes need none of this.
"""

import ipaddress
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import FileError
from ...process.events import Join
from ...process.group.coordinator import why_not, without

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder, Name


# Certificates are valid at any time, since the clock of a machine may be wrong by years. They are
# of no use after the run: its authority is gone, and so is every key.
_VALID_FROM, _VALID_UNTIL = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


Answer = Mapping[str, str]
"""What an authority answers to a public key, on the line, too.

"certificate" and "authority" are the two certificates, in PEM; "prefix" is how the URI of every
process of the run begins.
"""


class Authority:
    """The authority of one run. Its key is never written or sent.

    Args:
        run: Name of the run, of letters, digits and hyphens.

    Examples:
        >>> authority, key = Authority("a-run"), Key()
        >>> authority.certify(key.public(), 1)["prefix"]
        'pyreactant://a-run/'
    """

    def __init__(self, run: str) -> None:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        self.prefix = f"pyreactant://{run}/"
        self._key = _new_key()
        text = f"pyreactant run {run}"[:64]
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
        own = (
            _builder(issuer=name, ca=True)
            .subject_name(name)
            .serial_number(x509.random_serial_number())
            .public_key(self._key.public_key())
        )
        self._certificate = self._sign(own)
        both = x509.ExtendedKeyUsage([Usage.SERVER_AUTH, Usage.CLIENT_AUTH])
        # Shared by all certificates: each of ten thousand must be made in a tenth of a millisecond.
        self._common = (
            _builder(issuer=name, ca=False)
            .subject_name(x509.Name([]))
            .add_extension(both, critical=False)
        )

    def certify(self, public: str, process: int, hosts: Sequence[str] = ()) -> Answer:
        """The certificate of a process.

        Args:
            public: What its `Key.public` returned. That the process has the private key need not be
                shown: without it, the certificate is of no use.
            hosts: Names by which clients reach it, each in ASCII.

        Raises:
            ValueError: It is no public key of this kind.
        """
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(public.encode())
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("it is no public key") from None
        if not isinstance(key, EllipticCurvePublicKey) or key.curve.name != _CURVE:
            raise ValueError(f"the public key must be on the curve {_CURVE}")
        uri = x509.UniformResourceIdentifier(f"{self.prefix}process/{process}")
        names = [x509.DNSName(host) for host in hosts]
        builder = (
            self._common.serial_number(x509.random_serial_number())
            .public_key(key)
            .add_extension(x509.SubjectAlternativeName([uri, *names]), critical=True)
        )
        return {
            "certificate": self._sign(builder),
            "authority": self._certificate,
            "prefix": self.prefix,
        }

    def _sign(self, builder: "CertificateBuilder") -> str:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()


class Key:
    """The private key of one process; it is written to `store`'s folder only, and never sent."""

    def __init__(self) -> None:
        self._key = _new_key()

    def public(self) -> str:
        """The public key, in PEM."""
        from cryptography.hazmat.primitives import serialization as form

        key = self._key.public_key()
        return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo).decode()

    def store(self, folder: Path, answer: Answer) -> None:
        """Write key and certificates to the files that `variables` names.

        Args:
            folder: Made so that only this user can read it, as each of the files.
            answer: The authority's.

        Raises:
            FileError: The files cannot be written.
        """
        from cryptography.hazmat.primitives import serialization as form

        key = self._key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        texts = {"KEY": key.decode(), "CA": answer["authority"], "CERT": answer["certificate"]}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for what, text in texts.items():
                path = folder / _FILES[what]
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                    file.write(text)
        except OSError as error:
            raise FileError(
                f"the key of a process cannot be written to {folder} ({error.strerror}); make room "
                "there, set TMPDIR to another folder, or run with --no-mtls"
            ) from None


_FILES = {"KEY": "key.pem", "CA": "authority.pem", "CERT": "certificate.pem"}


def variables(folder: Path, prefix: str) -> dict[str, str]:
    """JAX's variables of a process.

    Args:
        folder: Where `Key.store` writes the files.
    """
    paths = {f"JAX_MTLS_{what}_FILE": str(folder / name) for what, name in _FILES.items()}
    return {**paths, "JAX_MTLS_PEER_URI_PREFIX": prefix}


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


_CURVE = "secp256r1"


def _builder(*, issuer: "Name", ca: bool) -> "CertificateBuilder":
    """What the certificates of an authority, or its own, have in common."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.BasicConstraints(ca, path_length=0 if ca else None), critical=True)
    )


class Keys:
    """The keys of the programs of one supervisor, each made when it is asked for.

    Args:
        off: Why they have none; "" if they have.

    Attributes:
        variables: JAX's variables of each process that has a certificate, by index.
    """

    def __init__(self, off: str) -> None:
        self.variables: dict[int, Mapping[str, str]] = {}
        self._off = off
        self._keys: dict[int, Key] = {}
        self._folder: Path | None = None

    def offer(self, index: int) -> dict[str, str]:
        """What the first message of a process says: its public key, or why it has none."""
        if self._off:
            return {"off": self._off}
        return {"public": self._keys.setdefault(index, Key()).public()}

    def accept(self, index: int, answer: Answer) -> None:
        """Store a process's key, with the certificate that the head answered, if it has one.

        Raises:
            FileError: The files cannot be written.
        """
        if not answer:
            return
        if self._folder is None:
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="pyreactant-keys-"))
            except OSError as error:
                raise FileError(
                    f"the folder of the run's keys cannot be made ({error.strerror}); set TMPDIR "
                    "to another folder, or run with --no-mtls"
                ) from None
        folder = self._folder / str(index)
        self._keys[index].store(folder, answer)
        self.variables[index] = variables(folder, answer["prefix"])

    def remove(self) -> None:
        """Delete the keys."""
        self.variables.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _is_name(host: str) -> bool:
    """Whether TLS asks for a host by this text: it asks for no address."""
    if not host.isascii():
        return False  # no such name is sent
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(host)
    return False


_UNJOINED = "not all processes joined"


class Certifier:
    """The head's part: it certifies every process that asks, and knows whether all have asked.

    Args:
        hosts: Names of process 0's host, as its launcher knows it.
    """

    def __init__(self, run: str, count: int, hosts: Iterable[str] = ()) -> None:
        self._run, self._count = run, count
        names = {*hosts, socket.gethostname(), "localhost"}
        self._hosts = sorted(name for name in names if _is_name(name))
        self._authority: Authority | None = None
        self._off: dict[int, str] = {}
        self._asked: set[int] = set()

    def certify(self, hello: Join) -> Answer:
        """The certificate of a process that joins, if its supervisor asks for one; or {}.

        Raises:
            ValueError: Its public key is malformed.
        """
        offer, process = hello.mtls, hello.process
        if "public" not in offer:
            self._off[process] = offer.get("off") or "its supervisor makes no keys"
            return {}
        if self._authority is None:
            self._authority = Authority(self._run)
        hosts = () if process else self._hosts
        answer = self._authority.certify(offer["public"], process, hosts)
        self._asked.add(process)
        return answer

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
    """
    if count == 1:
        return "one process"
    if no_mtls:
        return "--no-mtls"
    return why_not(_runtime(backend))


def off_note(backend: str | None, count: int, off: str) -> str:
    """What the user must know of a run whose runtime has mutual TLS, but which has none; or ""."""
    if not off or off == _UNJOINED or count == 1 or without(_runtime(backend)):
        return ""
    return f"mutual TLS is off ({off}): whoever reaches JAX's coordinator can end the run"


def _runtime(backend: str | None) -> str:
    return backend or os.environ.get("PYREACTANT_BACKEND") or "jax"
