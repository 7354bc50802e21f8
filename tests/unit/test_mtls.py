"""Certificates of a run, who gets them, and where the coordinator listens without them."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import pyreactant as pr
from pyreactant.process.events import Join
from pyreactant.process.group import ProcessGroup, resolve
from pyreactant.process.group import coordinator as who
from pyreactant.process.group.coordinator import bind_host, coordinator_note, why_not
from pyreactant.runs.supervisor.mtls import Authority, Certifier, Key, Keys, off_reason
from pyreactant.runs.supervisor.mtls import variables as named
from tests.harness import environment

RUN = "2026-11-22T204100-ab12"


def public_bytes(key: object) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_a_certificate_names_its_process_only(tmp_path: Path) -> None:
    authority, key = Authority(RUN), Key()
    certified = authority.certify(key.public(), 7)
    certificate = x509.load_pem_x509_certificate(certified["certificate"].encode())
    issuer = x509.load_pem_x509_certificate(certified["authority"].encode())
    certificate.verify_directly_issued_by(issuer)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(f"pyreactant://{RUN}/process/7")]
    assert certified["prefix"] == f"pyreactant://{RUN}/"
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for one in (certificate, issuer):  # the clock of a machine may be wrong by years
        assert one.not_valid_before_utc.year == 1970
        assert one.not_valid_after_utc.year == 9999
    key.store(tmp_path / "keys", certified)
    variables = named(tmp_path / "keys", certified["prefix"])
    assert set(variables) == {
        "JAX_MTLS_CERT_FILE",
        "JAX_MTLS_KEY_FILE",
        "JAX_MTLS_CA_FILE",
        "JAX_MTLS_PEER_URI_PREFIX",
    }
    stored = Path(variables["JAX_MTLS_KEY_FILE"])
    private = serialization.load_pem_private_key(stored.read_bytes(), None)
    assert public_bytes(private.public_key()) == public_bytes(certificate.public_key())
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert stat.S_IMODE(stored.parent.stat().st_mode) == 0o700
    other = Authority(RUN).certify(key.public(), 7)
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(
            x509.load_pem_x509_certificate(other["authority"].encode())
        )


def test_only_process_0_has_the_names_of_its_host() -> None:
    """Not addresses, nor what TLS cannot name."""
    hosts = ["gpu07", "gpu07.cluster", "10.0.0.7", "::1", "rechner-\u00fc", "localhost"]
    certifier = Certifier(RUN, 2, hosts)
    first, other = (
        x509.load_pem_x509_certificate(
            certifier.certify(asking(index, {"public": Key().public()}))["certificate"].encode()
        )
        for index in range(2)
    )

    def names(certificate: x509.Certificate) -> list[str]:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        return extension.value.get_values_for_type(x509.DNSName)

    assert set(names(first)) == {"gpu07", "gpu07.cluster", "localhost", socket.gethostname()}
    assert names(other) == []


def test_a_long_name_of_a_run() -> None:
    assert Authority("r" * 100).certify(Key().public(), 0)["prefix"] == f"pyreactant://{'r' * 100}/"


def pem(key: object) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


@pytest.mark.parametrize(
    "public",
    [
        "",
        "nonsense",
        "-----BEGIN PUBLIC KEY-----\né",
        pem(ed25519.Ed25519PrivateKey.generate()),
        pem(ec.generate_private_key(ec.SECP384R1())),
    ],
    ids=["empty", "nonsense", "not-ascii", "ed25519", "another-curve"],
)
def test_what_is_no_public_key(public: str) -> None:
    with pytest.raises(ValueError, match=r"it is no public key|must be on the curve secp256r1"):
        Certifier(RUN, 2).certify(asking(1, {"public": public}))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(pr.PyReactantError, match="set TMPDIR to another folder, or run with --no-"):
        Key().store(
            tmp_path / "file" / "keys", dict.fromkeys(("certificate", "authority", "prefix"), "")
        )


def test_every_process_or_none() -> None:
    def off(*offers: dict[str, str]) -> str:
        certifier = Certifier(RUN, len(offers))
        for process, offer in enumerate(offers):
            certifier.certify(asking(process, offer))
        return certifier.off

    asks = {"public": Key().public()}
    assert off(asks, asks, asks) == ""
    assert off(asks) == off({"off": "--no-mtls"}) == "one process"
    assert off(asks, asks, {"off": "--no-mtls"}) == "process 2: --no-mtls"
    assert off({"off": "x"}, {"off": "x"}) == "x"
    assert off({"off": "y"}, asks) == "process 0: y"
    for nothing in ({}, {"off": ""}, {"other": "x"}):
        assert off(asks, nothing, asks) == "process 1: its supervisor makes no keys"
    assert Certifier(RUN, 2).off == "not all processes joined"


def asking(process: int, offer: dict[str, str]) -> Join:
    """The first message of a process."""
    return Join(process, 3, "host", 1, {}, offer)


def folder_of(keys: Keys) -> Path:
    (folder,) = {Path(v["JAX_MTLS_KEY_FILE"]).parent.parent for v in keys.variables.values()}
    return folder


def test_keys_are_stored_and_removed() -> None:
    certifier = Certifier(RUN, 3)
    for indices in ([0, 1], [2]):
        keys = Keys("")
        for index in indices:
            keys.accept(index, certifier.certify(asking(index, keys.offer(index))))
        folder = folder_of(keys)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sorted(p.name for p in folder.iterdir()) == [str(index) for index in indices]
        for of_process in folder.iterdir():
            assert sorted(p.name for p in of_process.iterdir()) == [
                "authority.pem",
                "certificate.pem",
                "key.pem",
            ]
        keys.remove()
        keys.remove()
        assert not folder.exists()
        assert keys.variables == {}


def test_no_keys() -> None:
    none = Keys("--no-mtls")
    assert none.offer(0) == {"off": "--no-mtls"}
    none.accept(0, Certifier(RUN, 2).certify(asking(0, none.offer(0))))
    assert none.variables == {}
    none.remove()


def test_no_folder_for_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    keys = Keys("")
    certificate = Certifier(RUN, 2).certify(asking(0, keys.offer(0)))
    with pytest.raises(pr.FileError, match="set TMPDIR to another folder, or run with --no-mtls"):
        keys.accept(0, certificate)


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYREACTANT_BACKEND", raising=False)
    versions = {"0.10.2": "jax 0.10.2 has none, jax 0.11.2 does", "0.12.0.1": "", "0.11.2": ""}
    for version, reason in versions.items():
        monkeypatch.setattr(who, "package_version", lambda _, version=version: version)
        assert why_not("jax", {}) == off_reason(None, 2, False) == reason
    packages = {"jax": "0.12.0"}
    monkeypatch.setattr(who, "package_version", packages.get)
    assert why_not("jax", {}) == "cryptography is not installed"
    assert off_reason("jax", 2, True) == "--no-mtls"
    assert off_reason("jax", 1, False) == "one process"
    assert off_reason("reactant", 2, False) == "Reactant's coordinator has none"
    monkeypatch.setenv("PYREACTANT_BACKEND", "reactant")
    assert off_reason(None, 2, False) == "Reactant's coordinator has none"
    assert why_not("jax", {"PYREACTANT_MTLS": "0"}) == "PYREACTANT_MTLS=0"
    own = {"JAX_MTLS_CERT_FILE": "mine.pem"}
    assert why_not("jax", own) == "JAX_MTLS_CERT_FILE is set, and decides"
    monkeypatch.setattr(who, "package_version", lambda _: None)
    assert why_not("jax", {}) == "jax is not installed"


def own_addresses() -> list[str]:
    """Addresses of this machine that other machines may reach."""
    found = []
    for target in ("10.255.255.1", "192.0.2.1"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))  # sends nothing
            except OSError:
                continue
            found.append(str(probe.getsockname()[0]))
    return [address for address in found if not address.startswith("127.")]


def test_where_the_coordinator_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bind_host("127.0.0.1:4711") == "127.0.0.1"
    assert bind_host("localhost:4711") == "localhost"
    assert bind_host("[::1]:4711") == "::1"
    assert bind_host("no-such-host.invalid:4711") is None
    assert bind_host("192.0.2.77:4711") is None  # reserved for documentation: not this machine's
    assert bind_host("0.0.0.0:4711") is None

    def resolves_to(*addresses: str) -> None:
        families = [socket.AF_INET6 if ":" in a else socket.AF_INET for a in addresses]
        infos = [(f, 0, 0, "", (a, 0)) for f, a in zip(families, addresses, strict=True)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: infos)

    resolves_to("127.0.1.1")  # as Debian's installer names a machine
    assert bind_host("hosta:4711") is None
    resolves_to("fe80::1%eth0")
    assert bind_host("hosta:4711") is None
    for own in own_addresses():
        resolves_to(own, own)
        assert bind_host("hosta:4711") == own
        resolves_to(own, "192.0.2.77")  # another process may take the other one
        assert bind_host("hosta:4711") is None


def test_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (ProcessGroup(2, index, "localhost:4711") for index in range(2))
    monkeypatch.setattr(who, "package_version", lambda _: "0.10.2")
    assert coordinator_note(first, {}) == (
        "no mutual TLS (jax 0.10.2 has none, jax 0.11.2 does): the coordinator listens on "
        "localhost, port 4711, and whoever reaches it can end the run"
    )
    monkeypatch.setattr(who, "package_version", lambda _: "0.12.0.1")
    supervised = "mutual TLS under pyreactant run; without a supervisor the coordinator listens on "
    assert coordinator_note(second, {}).startswith(supervised + "localhost, port 4711, and")
    elsewhere = ProcessGroup(2, 0, "192.0.2.77:4711")
    assert coordinator_note(elsewhere, {}).startswith(supervised + "every network of this machine")
    own = {"JAX_MTLS_CERT_FILE": "mine.pem"}
    assert "accepts processes with a certificate" in coordinator_note(first, own)
    assert coordinator_note(ProcessGroup(), {}) == ""
    assert coordinator_note(resolve(environ={}), {}) == ""


def test_nothing_else_imports_cryptography() -> None:
    code = (
        "import sys, pyreactant, pyreactant.process.group, pyreactant.runs.supervisor.supervisor;"
        "print('cryptography' in sys.modules, 'socket' in sys.modules)"
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
    assert os.environ.get("JAX_MTLS_CERT_FILE") is None
