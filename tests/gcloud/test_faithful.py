"""The stand-in API, used by the real gcloud and Google's clients; our requests match gcloud's.

Tests of our client on the stand-in prove something only if the stand-in is faithful.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.gcloud.cloud import Cloud, cloud, hosts_of, slice_request
from tests.gcloud.tpu_api import Fault, TpuApi
from tests.harness import REPOSITORY, require, until


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cloud]:
    require(shutil.which("gcloud"), "gcloud")
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as found:
        yield found


def gcloud(made: Cloud, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [
        "gcloud",
        "compute",
        "tpus",
        "queued-resources",
        verb,
        *arguments,
        "--zone=asia-northeast1-b",
        "--quiet",
    ]
    return subprocess.run(argv, env=made.settings, capture_output=True, text=True, timeout=120)


ASKED = ["--accelerator-type=v6e-16", "--runtime-version=v2-alpha-tpuv6e"]


def body_of(made: Cloud) -> Any:
    """The request body of the only resource."""
    (resource,) = made.api.resources.values()
    return resource.body["tpu"]["nodeSpec"][0]


@pytest.mark.slow
def test_gcloud_gets_on_with_it(made: Cloud) -> None:
    done = gcloud(made, "create", "test", "--node-id=test", *ASKED)
    assert done.returncode == 0, done.stderr
    until(lambda: len(made.api.left()) == 2)
    described = gcloud(made, "describe", "test", "--format=value(state.state)")
    assert described.stdout.strip() == "ACTIVE"
    assert "test" in gcloud(made, "list").stdout
    again = gcloud(made, "create", "test", "--node-id=test", *ASKED)
    assert again.returncode == 1
    assert "ALREADY_EXISTS" in again.stderr
    assert (
        gcloud(made, "delete", "test").returncode == 1
    )  # an ACTIVE resource, deleted without force
    assert gcloud(made, "delete", "test", "--force").returncode == 0
    until(lambda: made.api.left() == [])
    gone = gcloud(made, "describe", "test")
    assert (gone.returncode, "NOT_FOUND" in gone.stderr) == (1, True)


@pytest.mark.parametrize("slices", [1, 2])
def test_we_ask_as_gcloud_does(made: Cloud, slices: int) -> None:
    """The body is the same, except for our labels, the startup script and the VM's scope."""
    nodes = ["--node-id=test"] if slices == 1 else ["--node-count=2", "--node-prefix=test"]
    done = gcloud(
        made, "create", "test", *nodes, *ASKED, "--spot", "--valid-until-duration=7200s", "--async"
    )
    assert done.returncode == 0, done.stderr
    (from_gcloud,) = made.api.resources.values()
    made.api.resources.clear()
    made.api.nodes.clear()
    from pyreactant.runs.queued.client import Client

    request = slice_request(slice_count=slices, provisioning="spot", valid_for=7200.0)
    Client(environ=made.settings).create(request, "run", "")
    (ours,) = made.api.resources.values()
    a, b = (dict(r.body) for r in (from_gcloud, ours))
    assert a["spot"] == b["spot"] == {}
    assert a["queueingPolicy"] == b["queueingPolicy"]
    one, two = (dict(x["tpu"]["nodeSpec"][0]) for x in (a, b))
    # gcloud writes the project's name, as we do.
    assert one["parent"].endswith("/locations/asia-northeast1-b")
    one_node, two_node = one.pop("node"), two.pop("node")
    one.pop("parent"), two.pop("parent")
    assert one == two
    for own in ("labels", "metadata", "serviceAccount"):
        two_node.pop(own)
        one_node.pop(own, None)
    assert one_node.pop("networkConfig")["enableExternalIps"]
    assert two_node.pop("networkConfig")["enableExternalIps"]
    one_node.pop("bootDiskConfig", None), one_node.pop("dataDisks", None)
    assert {k: v for k, v in one_node.items() if v} == two_node


@contextmanager
def over_grpc(api: TpuApi) -> Iterator[str]:
    """Serve the stand-in over gRPC; messages are converted through JSON."""
    import grpc
    from google.cloud import tpu_v2
    from google.longrunning import operations_pb2

    def method(name: str, request: Any, answer: Any) -> Any:
        def serve(grpc_request: Any, context: Any) -> Any:
            from tests.gcloud.tpu_api import STATUS, ApiError

            try:
                return _carry_out(api, name, request, grpc_request, answer)
            except ApiError as error:
                context.abort(grpc.StatusCode[STATUS[error.code]], error.message)

        serializer = answer.serialize if hasattr(answer, "serialize") else answer.SerializeToString
        return grpc.unary_unary_rpc_method_handler(
            serve, request_deserializer=request.deserialize, response_serializer=serializer
        )

    handlers = {
        "CreateQueuedResource": (tpu_v2.CreateQueuedResourceRequest, operations_pb2.Operation),
        "DeleteQueuedResource": (tpu_v2.DeleteQueuedResourceRequest, operations_pb2.Operation),
        "GetQueuedResource": (tpu_v2.GetQueuedResourceRequest, tpu_v2.QueuedResource),
        "GetNode": (tpu_v2.GetNodeRequest, tpu_v2.Node),
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    methods = {name: method(name, *types) for name, types in handlers.items()}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("google.cloud.tpu.v2.Tpu", methods),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def _carry_out(api: TpuApi, name: str, request: Any, grpc_request: Any, answer: Any) -> Any:
    from google.protobuf import json_format

    body: dict[str, Any] = {}
    if name == "CreateQueuedResource":
        body = json_format.MessageToDict(request.pb(grpc_request).queued_resource)
        path = f"{grpc_request.parent}/queuedResources"
        query = {"queuedResourceId": grpc_request.queued_resource_id}
        found = api.answer("POST", f"/v2/{path}", query, body)
    elif name == "DeleteQueuedResource":
        found = api.answer(
            "DELETE", f"/v2/{grpc_request.name}", {"force": str(grpc_request.force)}, {}
        )
    else:
        found = api.answer("GET", f"/v2/{grpc_request.name}", {}, {})
    if hasattr(answer, "from_json"):
        return answer.from_json(json.dumps(found), ignore_unknown_fields=True)
    return answer(name=found["name"], done=False)


def test_the_same_life_over_grpc(tmp_path: Path) -> None:
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made, over_grpc(api) as address:
        from pyreactant import PyReactantError
        from pyreactant.runs.queued.client import Client
        from pyreactant.runs.queued.deletion import Deleter
        from pyreactant.runs.queued.journal import Journal
        from pyreactant.runs.queued.lifecycle import Lease

        made.settings["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] = address
        client = Client(transport="grpc", environ=made.settings)
        request = slice_request()
        deleter = Deleter(client, Journal(made.state), print, pause=0.02)
        lease = Lease(deleter, request, "run")
        lease.create()
        assert len(lease.wait(10)) == 4
        other = Lease(deleter, request, "other")
        with pytest.raises(PyReactantError, match=r"another run of pyreactant \(run\)"):
            other.create()
        other.close()
        assert len(api.left()) == 2
        lease.close()
        assert api.left() == []


class _Metadata(BaseHTTPRequestHandler):
    """The part of a VM's metadata server that the startup script reads."""

    def do_GET(self) -> None:
        right = self.headers.get("Metadata-Flavor") == "Google"
        data = json.dumps({"access_token": "t0ken-for-tests", "expires_in": 3599}).encode()
        self.send_response(200 if right else 403)
        self.end_headers()
        self.wfile.write(data if right else b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def in_session(session: int) -> list[int]:
    """Processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("answer", "warns"), [("403", True), ("404", False), ("", False)])
def test_a_vm_that_may_not_delete_itself_is_reported(
    answer: str, warns: bool, tmp_path: Path
) -> None:
    (tmp_path / "permission").write_text(answer)
    worker = [str(REPOSITORY / "gcloud" / "worker.sh"), str(tmp_path / "w")]
    (tmp_path / "w").mkdir()
    done = subprocess.run(
        ["bash", *worker, "install", "jax", "/bin/true"],
        env={**os.environ, "PYREACTANT_STATE_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ("warning: this VM may not delete its queued resource (403)" in done.stdout) == warns


def test_a_vm_deletes_its_resource_when_its_time_is_over(made: Cloud, tmp_path: Path) -> None:
    """Run the node's startup script as the VM would."""
    require(shutil.which("curl"), "curl")
    from pyreactant.runs.queued.client import Client
    from pyreactant.runs.queued.lifecycle import startup_script

    request = slice_request(lifetime=60.0)
    script = startup_script(request)
    Client(environ=made.settings).create(request, "run", script)
    until(lambda: len(made.api.left()) == 2)
    # The first call is about the permission; then come a failure, no answer, and two refusals.
    made.api.faults += [Fault("DELETE", code=403), Fault("DELETE", code=503)]
    made.api.faults += [Fault("DELETE", delay=300.0)]
    made.api.faults += [Fault("DELETE", code=403)] * 2
    assert body_of(made)["node"]["metadata"]["startup-script"] == script
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Metadata)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    state = tmp_path / "vm"
    state.mkdir()
    (state / "born").write_text(f"{int(time.time()) - 58}\n")  # simulate this boot time
    api = made.settings["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"].rstrip("/")
    pauses, sleep = tmp_path / "pauses", tmp_path / "sleep"
    sleep.write_text(f'#!/bin/sh\necho "$1" >>{pauses}\nexec {shutil.which("sleep")} "$1"\n')
    sleep.chmod(0o755)
    settings = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYREACTANT_ANSWER_LIMIT": "1",
        "PYREACTANT_METADATA": f"http://127.0.0.1:{server.server_port}",
        "PYREACTANT_TPU_API": api,
        "PYREACTANT_STATE_FOLDER": str(state),
        "PYREACTANT_EXPIRE_PAUSE": "0.2",
    }
    process = subprocess.Popen(
        ["bash"],
        stdin=subprocess.PIPE,
        env=settings,
        start_new_session=True,
        text=True,
        cwd=tmp_path,
    )
    try:
        process.communicate(
            script, timeout=20
        )  # it returns immediately and continues in the background
        assert len(made.api.left()) == 2
        permission = state / "permission"
        until(lambda: permission.exists() and permission.read_text() == "403")
        until(lambda: made.api.left() == [])
        # After the answer 404 it ends; a refusal is in its log.
        until(lambda: not in_session(process.pid))
        assert "may not delete" in (state / "expire.log").read_text()
        _, *later = map(float, pauses.read_text().split())
        assert later[:4] == pytest.approx([0.2, 0.3, 0.45, 0.675], rel=1e-3)
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        server.shutdown()
        server.server_close()


def test_the_worker_s_script_checks_what_it_gets(tmp_path: Path) -> None:
    """The script refuses a Julia archive with another checksum, and unknown arguments."""
    script = REPOSITORY / "gcloud" / "worker.sh"
    tools = tmp_path / "tools"
    tools.mkdir()
    curl = tools / "curl"  # only the download is a stand-in
    curl.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho damaged >"$2"\n')
    curl.chmod(0o755)
    text = script.read_text()
    check = re.search(r"install_julia\(\) \{.*?\n\}", text, re.S)
    assert check is not None
    head = re.search(r"julia_version=.*\njulia_sha256=.*\n", text)
    assert head is not None
    command = f"folder={tmp_path}\n{head.group()}{check.group()}\ninstall_julia"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "has the wrong checksum" in done.stderr) == (3, True)
    done = subprocess.run(
        ["bash", script, tmp_path, "dance"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "the action must be install, run, ray or results, got dance" in done.stderr
