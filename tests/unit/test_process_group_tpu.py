"""Cloud TPU slices on GKE and by metadata; a stand-in serves metadata in the documented formats."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

import hypothesis.strategies as st
import pytest
from hypothesis import given

import pyreactant as pr
from pyreactant.process.group import ProcessGroup, resolve
from pyreactant.process.group.cloud_tpu import (
    endpoints,
    gke,
    host_of,
    metadata,
    tpu_env,
    worker_number,
)
from tests.harness import free_port
from tests.unit.test_process_group_slurm import message

Environment = dict[str, str]
ATTRIBUTES = "/computeMetadata/v1/instance/attributes/"


def pods(slices: int, workers: int) -> list[Environment]:
    """The environment that GKE gives to each pod of some slices."""
    return [
        {
            "TPU_WORKER_ID": str(worker),
            "TPU_WORKER_HOSTNAMES": ",".join(f"job-{s}-{w}.svc" for w in range(workers)),
        }
        | (
            {
                "MEGASCALE_NUM_SLICES": str(slices),
                "MEGASCALE_SLICE_ID": str(s),
                "MEGASCALE_COORDINATOR_ADDRESS": "job-0-0.svc:8080",
            }
            if slices > 1
            else {}
        )
        for s in range(slices)
        for worker in range(workers)
    ]


@given(st.integers(1, 4), st.integers(1, 5))
def test_all_pods_agree(slices: int, workers: int) -> None:
    groups = [resolve(environ=environ) for environ in pods(slices, workers)]
    count = slices * workers
    hosts = tuple(f"job-0-{w}.svc" for w in range(workers)) if slices == 1 else None
    assert [g.process_index for g in groups] == list(range(count))
    assert {(g.num_processes, g.coordinator_address, g.hosts, g.source) for g in groups} == {
        (count, "job-0-0.svc:8482" if count > 1 else None, hosts, "Cloud TPU on GKE")
    }


def test_one_host() -> None:
    expected = ProcessGroup(source="Cloud TPU on GKE", hosts=("localhost",))
    assert resolve(environ={"TPU_WORKER_HOSTNAMES": "localhost"}) == expected
    both = {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
    assert resolve(environ=both) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"TPU_WORKER_ID": ""}, "TPU_WORKER_ID must be set beside"),
        ({"TPU_WORKER_ID": "two"}, "TPU_WORKER_ID must be a whole number, got 'two'"),
        ({"TPU_WORKER_ID": "2"}, "TPU_WORKER_ID must be from 0 to 1, got 2"),
        ({"TPU_WORKER_HOSTNAMES": "a,,b"}, "TPU_WORKER_HOSTNAMES must name hosts"),
        ({"MEGASCALE_SLICE_ID": ""}, "MEGASCALE_SLICE_ID must be set beside"),
        ({"MEGASCALE_SLICE_ID": "2"}, "MEGASCALE_SLICE_ID must be from 0 to 1, got 2"),
        ({"MEGASCALE_NUM_SLICES": "-1"}, "MEGASCALE_NUM_SLICES must be from 1"),
        ({"MEGASCALE_COORDINATOR_ADDRESS": ""}, "MEGASCALE_COORDINATOR_ADDRESS must be set"),
        ({"MEGASCALE_COORDINATOR_ADDRESS": "a b"}, "MEGASCALE_COORDINATOR_ADDRESS must name hosts"),
    ],
)
def test_contradictions(change: Environment, expected: str) -> None:
    assert expected in message(pods(2, 2)[3] | change)


@pytest.mark.parametrize("change", [{"TPU_WORKER_ID": "1"}, {"MEGASCALE_NUM_SLICES": "2"}])
def test_a_part_of_a_slice_does_not_run_alone(change: Environment) -> None:
    assert "(from Cloud TPU) means that this process is one of several" in message(change)
    alone = change | {"PYREACTANT_NUM_PROCESSES": "1"}
    assert resolve(environ=alone).num_processes == 1
    assert resolve(environ={"TPU_WORKER_ID": "0", "MEGASCALE_NUM_SLICES": "1"}) == ProcessGroup()


def test_hosts() -> None:
    texts = ["a", " a.b:80 ", "10.0.0.1", "fe80::1", "[fe80::1]:80"]
    assert [host_of("x", t) for t in texts] == ["a", "a.b", "10.0.0.1", "fe80::1", "fe80::1"]


# The metadata server


class _Handler(BaseHTTPRequestHandler):
    documents: Mapping[str, str | int | bytes]
    queries: list[str]
    flavor = "Google"

    def do_GET(self) -> None:
        key = self.path.removeprefix(ATTRIBUTES)
        self.queries.append(key)
        found = self.documents.get(key, 404)
        if self.headers["Metadata-Flavor"] != "Google":
            found = 403
        status, body = (found, b"") if isinstance(found, int) else (200, found)
        self.send_response(status)
        self.send_header("Metadata-Flavor", self.flavor)
        self.end_headers()
        self.wfile.write(body.encode() if isinstance(body, str) else body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def stand_in(
    documents: Mapping[str, str | int | bytes], *, flavor: str = "Google"
) -> Iterator[tuple[Environment, list[str]]]:
    """A stand-in for Google's metadata server; yields its variable and the requests it gets."""
    queries: list[str] = []
    served = {"documents": documents, "queries": queries, "flavor": flavor}
    handler = type("Handler", (_Handler,), served)
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield {"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}, queries
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyreactant.process.group.cloud_tpu._PAUSE", 0.0)


OLD = "unknown:0:10.0.0.2,unknown:1:10.0.0.3,unknown:2:10.0.0.4,unknown:3:10.0.0.5"
NEW = "10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5"
TPU_ENV = "ACCELERATOR_TYPE: 'v5litepod-16'\nTPU_TOPOLOGY: '4x4'\nWORKER_ID: '2'\n"
SLICES = (
    "MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n"
    "MEGASCALE_COORDINATOR_ADDRESS: '10.9.0.2:8080'\n"
)


def machine(
    worker: str = "2", hosts: str = NEW, env: str = TPU_ENV
) -> dict[str, str | int | bytes]:
    return {"agent-worker-number": worker, "worker-network-endpoints": hosts, "tpu-env": env}


@pytest.mark.parametrize("hosts", [OLD, NEW])
def test_metadata(hosts: str) -> None:
    groups = []
    for worker in range(4):
        with stand_in(machine(str(worker), hosts)) as (environ, _):
            groups.append(resolve(environ=environ))
    assert [g.process_index for g in groups] == [0, 1, 2, 3]
    assert {(g.num_processes, g.coordinator_address, g.hosts, g.source) for g in groups} == {
        (4, "10.0.0.2:8482", tuple(NEW.split(",")), "Cloud TPU metadata")
    }


def test_metadata_of_several_slices() -> None:
    with stand_in(machine(env=TPU_ENV + SLICES)) as (environ, _):
        group = resolve(environ=environ)
        moved = resolve(environ=environ | {"MEGASCALE_SLICE_ID": "0"})
    assert (group.num_processes, group.process_index) == (8, 6)
    assert (group.coordinator_address, group.hosts) == ("10.9.0.2:8482", None)
    assert moved.process_index == 2


def test_metadata_of_one_machine() -> None:
    for env in (TPU_ENV, ""):
        with stand_in(machine("0", "10.0.0.2", env)) as (environ, _):
            group = resolve(environ=environ)
        assert group == ProcessGroup(source="Cloud TPU metadata", hosts=("10.0.0.2",))


def test_proxies_are_gone_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with stand_in(machine()) as (environ, _):
        assert resolve(environ=environ).process_index == 2


def test_metadata_of_a_machine_without_slice() -> None:
    with stand_in({}) as (environ, queries):
        assert resolve(environ=environ) == ProcessGroup()
        assert "agent-worker-number" in queries
        queries.clear()
        found = metadata(environ | {"TPU_SKIP_MDS_QUERY": "1"})
    assert found.reason == "not asked: TPU_SKIP_MDS_QUERY is set"
    assert queries == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"agent-worker-number": "two"}, "metadata agent-worker-number must be a whole number"),
        ({"agent-worker-number": "4"}, "agent-worker-number must be from 0 to 3, got 4"),
        ({"worker-network-endpoints": 404}, "metadata worker-network-endpoints must name hosts"),
        (
            {"worker-network-endpoints": "a:b"},
            "worker-network-endpoints must look like 'host,host'",
        ),
        ({"worker-network-endpoints": "<html>"}, "worker-network-endpoints must name hosts"),
        ({"tpu-env": "MEGASCALE_NUM_SLICES: 'x'"}, "MEGASCALE_NUM_SLICES must be a whole number"),
        ({"tpu-env": "MEGASCALE_NUM_SLICES: '2'"}, "MEGASCALE_SLICE_ID must be set"),
        ({"agent-worker-number": b"\xff"}, "metadata agent-worker-number: .*did not answer"),
        ({"tpu-env": "x" * (1 << 21)}, "metadata tpu-env: .*answered with more than"),
        ({"tpu-env": 503}, "metadata tpu-env: .*answered 503, so the index of this worker"),
    ],
)
def test_wrong_answers(change: dict[str, str | int | bytes], expected: str) -> None:
    with (
        stand_in(machine() | change) as (environ, _),
        pytest.raises(pr.InvalidArgumentError, match=expected),
    ):
        resolve(environ=environ)


def test_what_answers_is_no_metadata_server() -> None:
    with stand_in(machine(), flavor="other") as (environ, _):
        assert "did not answer as Google's metadata server does" in message(environ)


def test_no_server_or_a_wrong_name() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert f"{nobody} did not answer" in message({"GCE_METADATA_IP": nobody})
    assert "set PYREACTANT_NUM_PROCESSES," in message({"GCE_METADATA_IP": nobody})
    for name in ("a b", "host:port", "\n", "[", "x" * 300):
        assert "did not answer" in message({"GCE_METADATA_HOST": name})


def test_a_server_that_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = machine() | {"agent-worker-number": 503}
    with stand_in(documents) as (environ, _):
        monkeypatch.setattr("time.sleep", lambda _: documents.update(machine()))
        assert resolve(environ=environ).process_index == 2


@given(st.text(max_size=40))
def test_any_document_is_read_or_explained(text: str) -> None:
    for read in (worker_number, endpoints, lambda t: host_of("x", t)):
        with contextlib.suppress(pr.InvalidArgumentError):
            assert read(text) is not None
    assert isinstance(tpu_env(text), dict)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "TPU_WORKER_ID",
                "MEGASCALE_NUM_SLICES",
                "MEGASCALE_SLICE_ID",
                "MEGASCALE_COORDINATOR_ADDRESS",
            ]
        ),
        st.integers(-2, 5).map(str) | st.text(max_size=8),
    ),
    st.text("ab,:[]. ", max_size=12) | st.text(max_size=12),
)
def test_any_pod_is_read_or_explained(environ: Environment, hosts: str) -> None:
    found = gke(environ | {"TPU_WORKER_HOSTNAMES": hosts})
    assert found.applies == bool(hosts)
