"""Mutual TLS of supervised runs: real JAX processes, and outsiders whom the coordinator refuses."""

import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

from pyreactant.process.group.coordinator import why_not
from pyreactant.runs.supervisor.mtls import Authority, Key, variables
from tests.harness import Finished, environment, free_port, spawn
from tests.launch.runs import (
    RUN,
    Run,
    run_script,
    run_tasks,
    running,
    script,
    task_environments,
)

WITHOUT = why_not("jax", {})
needs_mtls = pytest.mark.skipif(bool(WITHOUT), reason=f"no mutual TLS: {WITHOUT}")

MEETS = """
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
from jax._src import distributed

address = os.environ["PYREACTANT_COORDINATOR_ADDRESS"]
jax.distributed.initialize(address, 2, int(index), cluster_detection_method="deactivate")
if index == "0":
    Path("address").write_text(address + " " + jax.config.jax_mtls_peer_uri_prefix)
ready()
while not Path("go on").exists():
    time.sleep(0.05)
distributed.global_state.client.wait_at_barrier("after the outsiders", 60_000)
print("went on with", jax.process_count(), "processes and", os.environ["JAX_MTLS_KEY_FILE"])
"""
"""A plain JAX program, which knows nothing of certificates."""

OUTSIDER = """
import sys, jax
address, *files = sys.argv[1:]
names = ("mtls_cert_file", "mtls_key_file", "mtls_ca_file", "mtls_peer_uri_prefix")
given = {"cluster_detection_method": "deactivate", **dict(zip(names, files))}
jax.distributed.initialize(address, 2, 1, initialization_timeout=3, **given)
print("joined")
"""


@dataclass(frozen=True)
class Attacked:
    """A run of two JAX processes, and how outsiders who took the index of one ended."""

    run: Run
    outsiders: dict[str, Finished]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    folder = tmp_path_factory.mktemp("attacked")
    with running(folder, MEETS) as supervisor:
        address, prefix = (folder / "address").read_text().split()
        key = Key()
        other = Authority(prefix.split("/")[2]).certify(key.public(), 1)
        key.store(folder / "other", other)
        files = variables(folder / "other", other["prefix"])
        paths = [files[f"JAX_MTLS_{name}_FILE"] for name in ("CERT", "KEY", "CA")]
        (folder / "outsider.py").write_text(OUTSIDER)
        argv = [sys.executable, str(folder / "outsider.py"), address]
        ended = spawn([argv, [*argv, *paths, other["prefix"]]], [environment()] * 2, folder, 120)
        outsiders = dict(zip(("no certificate", "another authority"), ended, strict=True))
        (folder / "go on").touch()
        said, _ = supervisor.communicate(timeout=120)
    return Attacked(Run([Finished(supervisor.returncode, said)], folder / "run"), outsiders)


@needs_mtls
@pytest.mark.parametrize("kind", ["no certificate", "another authority"])
def test_an_outsider_is_refused(attacked: Attacked, kind: str) -> None:
    ended = attacked.outsiders[kind]
    assert ended.code not in (0, None), ended.log
    assert "joined" not in ended.log


@needs_mtls
def test_the_run_goes_on(attacked: Attacked) -> None:
    """The keys are gone when it has ended."""
    run = attacked.run
    assert run.code == 0, run
    assert (run.report["cause"], run.report["mutual_tls"]) == ("done", "on")
    assert "TLS" not in (run.folder / "report.txt").read_text()
    for process in range(2):
        last = run.log(process).decode().splitlines()[-1]
        assert last.startswith("went on with 2 processes and "), last
        key = Path(last.split()[-1])
        assert key.name == "key.pem"
        assert not key.parent.parent.exists()


SHOWS = """
import json, os, sys
from pathlib import Path
found = {n: v for n, v in os.environ.items() if n.startswith("JAX_MTLS_")}
for name, value in list(found.items()):
    if name.endswith("_FILE"):
        found[f"text of {name}"] = Path(value).read_text()
print(json.dumps(found))
sys.exit(int(os.environ["PYREACTANT_RESTART_COUNT"] == "0"))
"""


@needs_mtls
def test_each_supervisor_has_a_key_of_its_own(tmp_path: Path) -> None:
    """One task per process: requests and certificates pass through the roll-call; a restart."""
    run = run_tasks(tmp_path, "--max-restarts", "1", "--", script(tmp_path, SHOWS))
    assert [f.code for f in run.finished] == [0, 0], run
    assert run.report["mutual_tls"] == "on"
    assert len(run.report["restarts"]) == 1
    shown = [json.loads(run.log(process).splitlines()[-1]) for process in range(2)]
    names = []
    for found in shown:
        certificate, authority = (
            x509.load_pem_x509_certificate(found[f"text of JAX_MTLS_{name}_FILE"].encode())
            for name in ("CERT", "CA")
        )
        certificate.verify_directly_issued_by(authority)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        (uri,) = alternatives.value.get_values_for_type(x509.UniformResourceIdentifier)
        names.append(uri.removeprefix(found["JAX_MTLS_PEER_URI_PREFIX"]))
        assert not Path(found["JAX_MTLS_KEY_FILE"]).exists()
    assert names == ["process/0", "process/1"]
    first, second = shown
    assert first["text of JAX_MTLS_KEY_FILE"] != second["text of JAX_MTLS_KEY_FILE"]
    assert first["text of JAX_MTLS_CA_FILE"] == second["text of JAX_MTLS_CA_FILE"]


JOINS = """
import jax

jax.distributed.initialize()
print("joined", jax.process_count())
"""


@needs_mtls
@pytest.mark.parametrize("host", ["localhost", socket.gethostname()])
def test_a_host_with_a_name_is_no_error_of_grpc(host: str, tmp_path: Path) -> None:
    settings = [{"PYREACTANT_COORDINATOR_ADDRESS": f"{host}:{free_port()}"}] * 2
    run = run_tasks(tmp_path, "--", script(tmp_path, JOINS), settings=settings)
    assert [f.code for f in run.finished] == [0, 0], run
    assert run.report["mutual_tls"] == "on"
    assert [run.log(process).decode() for process in range(2)] == ["joined 2\n"] * 2


NONE = "import os\nassert not [n for n in os.environ if n.startswith('JAX_MTLS_')]"


@needs_mtls
def test_one_without_a_certificate_is_all_without(tmp_path: Path) -> None:
    settings = [{}, {"PYREACTANT_MTLS": "0"}]
    run = run_tasks(tmp_path, "--", script(tmp_path, NONE), settings=settings)
    assert [f.code for f in run.finished] == [0, 0], run
    assert run.report["mutual_tls"] == "off: process 1: PYREACTANT_MTLS=0"
    assert "off (process 1: PYREACTANT_MTLS=0)" in (run.folder / "report.txt").read_text()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-n", "2", "--no-mtls"], "--no-mtls"),
        (["-n", "2", "--backend", "reactant"], "Reactant's coordinator has none"),
        (["-n", "1"], "one process"),
    ],
)
def test_the_report_says_why_not(options: list[str], reason: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, NONE, *options)
    assert run.code == 0, run
    assert run.report["mutual_tls"] == f"off: {reason}"


@pytest.mark.skipif(not WITHOUT, reason="this jax has mutual TLS")
def test_jax_without_mutual_tls(tmp_path: Path) -> None:
    run = run_script(tmp_path, NONE, "-n", "2")
    assert (run.code, run.report["mutual_tls"]) == (0, f"off: {WITHOUT}"), run


@needs_mtls
def test_a_process_without_room_for_its_key(tmp_path: Path) -> None:
    """It is named, and all end with the exit code of its error."""
    argv = [*RUN, "--out", str(tmp_path / "run"), "--", script(tmp_path, SHOWS)]
    small = ["bash", "-c", 'ulimit -f 0; exec "$@"', "small", *argv]
    run = Run(spawn([argv, small], task_environments(tmp_path, 2), tmp_path, 90), tmp_path / "run")
    assert [f.code for f in run.finished] == [2, 2], run
    assert run.report["first_error"]["process"] == 1
    assert "raised FileError: the folder of the run's keys cannot be made" in run.report["summary"]
