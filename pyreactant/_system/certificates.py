"""Certificates of one run: an authority in the memory of one process, and a key for each process.

A process makes its key and a signing request; the authority answers with a certificate whose only
name is the URI pyreactant://RUN/process/INDEX. `cryptography` is imported at first use: it takes a
tenth of a second, and most processes need none of this.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import FileError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder, Name

_CLOCKS = timedelta(days=1)  # by which the clocks of two machines may differ
_VALID = timedelta(days=365)  # longer than any run; the keys are deleted when it ends


@dataclass(frozen=True, slots=True)
class Certified:
    """What an authority answers to a signing request.

    Attributes:
        certificate: The certificate, in PEM.
        authority: The authority's own certificate, in PEM.
        prefix: How the URI of every process of the run begins.
    """

    certificate: str
    authority: str
    prefix: str


def uri_prefix(run: str) -> str:
    """How the URI of every process of a run begins."""
    return f"pyreactant://{run}/"


class Authority:
    """The authority of one run. Its key is never written or sent.

    Args:
        run: Name of the run, of letters, digits and hyphens.

    Examples:
        >>> authority, key = Authority("a-run"), Key()
        >>> authority.certify(key.request(), 1).prefix
        'pyreactant://a-run/'
    """

    def __init__(self, run: str) -> None:
        from cryptography.x509 import BasicConstraints

        self.prefix = uri_prefix(run)
        self._key = _new_key()
        self._name = _name(f"pyreactant run {run}")
        builder = _builder(self._name, self._name).public_key(self._key.public_key())
        builder = builder.add_extension(BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = self._sign(builder)

    def certify(self, request: str, process: int) -> Certified:
        """The certificate of a process.

        Args:
            request: What its `Key.request` returned.
            process: Its index, which the certificate names.

        Raises:
            ValueError: It is no signing request, or not signed by its own key.
        """
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        try:
            asked = x509.load_pem_x509_csr(request.encode())
            valid, public = asked.is_signature_valid, asked.public_key()
        except (ValueError, UnsupportedAlgorithm):
            raise ValueError("it is no signing request") from None
        if not valid:
            raise ValueError("the signing request is not signed by its own key")
        uri = x509.UniformResourceIdentifier(f"{self.prefix}process/{process}")
        both = x509.ExtendedKeyUsage([Usage.SERVER_AUTH, Usage.CLIENT_AUTH])
        builder = (
            _builder(x509.Name([]), self._name)
            .public_key(public)
            .add_extension(x509.SubjectAlternativeName([uri]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(both, critical=False)
        )
        return Certified(self._sign(builder), self._certificate, self.prefix)

    def _sign(self, builder: "CertificateBuilder") -> str:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()


class Key:
    """The private key of one process; it is written to `store`'s folder only, and never sent."""

    def __init__(self) -> None:
        self._key = _new_key()

    def request(self) -> str:
        """A signing request for this key, in PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding

        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()

    def store(self, folder: Path, certified: Certified) -> None:
        """Write key and certificates to the files that `variables` names, the certificate last.

        Args:
            folder: Made so that only this user can read it, as each of the files.
            certified: The answer to the signing request.

        Raises:
            FileError: The files cannot be written.
        """
        from cryptography.hazmat.primitives import serialization as form

        key = self._key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        texts = {"KEY": key.decode(), "CA": certified.authority, "CERT": certified.certificate}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for what, text in texts.items():
                partial = folder / "partial"
                with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                    file.write(text)
                partial.replace(folder / _FILES[what])  # who finds a file finds the whole of it
        except OSError as error:
            raise FileError(
                f"the key of a process cannot be written to {folder} ({error.strerror}); make room "
                "there, set TMPDIR to another folder, or run with --no-mtls"
            ) from None


_FILES = {"KEY": "key.pem", "CA": "authority.pem", "CERT": "certificate.pem"}


def variables(folder: Path, prefix: str) -> dict[str, str]:
    """JAX's variables of a process.

    Args:
        folder: Where `Key.store` writes the files, or will write them.
        prefix: As in `Certified`.
    """
    paths = {f"JAX_MTLS_{what}_FILE": str(folder / name) for what, name in _FILES.items()}
    return {**paths, "JAX_MTLS_PEER_URI_PREFIX": prefix}


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> "Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(subject: "Name", issuer: "Name") -> "CertificateBuilder":
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + _VALID)
    )
