"""A stand-in for the TPU API (v2), written from Google's published REST reference.

https://cloud.google.com/tpu/docs/reference/rest/v2 documents the paths, fields, states and errors.
The stand-in keeps its resources in memory and can inject failures; `tpu_server` serves it on
loopback to the real gcloud and google-cloud-tpu clients. It also has the part of the Compute API
that gcloud calls before it starts ssh.
"""

import copy
import itertools
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    502: "UNKNOWN",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
DELETABLE = {"ACCEPTED", "FAILED", "SUSPENDED"}
"""Without force only these can be deleted."""

QUICK = (
    ("CREATING", 0.02),
    ("ACCEPTED", 0.02),
    ("WAITING_FOR_RESOURCES", 0.05),
    ("PROVISIONING", 0.05),
    ("ACTIVE", None),
)
"""States a resource goes through, each with its seconds; None stays."""


class ApiError(Exception):
    """An answer with an error status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class Fault:
    """A failure of the next `count` calls that match.

    Attributes:
        call: Regular expression for "METHOD path".
        code: HTTP status of the answer; None to answer normally.
        message: Text of the error.
        text: Body of the answer, with the status `code` or 200; None for the API's own.
        lost: Whether the call succeeds but the connection closes without an answer.
        delay: Seconds before the call is executed.
        pause: Seconds between two bytes of the answer.
        count: Number of calls that fail.
    """

    call: str
    code: int | None = None
    message: str = "injected"
    text: str | None = None
    lost: bool = False
    delay: float = 0.0
    pause: float = 0.0
    count: int = 1


@dataclass
class Resource:
    """A queued resource, its states and their times."""

    body: Json
    script: list[tuple[str, float | None]]
    born: float = field(default_factory=time.monotonic)
    ends: float | None = None  # time of the deletion
    nodes: list[str] = field(default_factory=list)
    reason: Json = field(default_factory=dict)

    def state(self) -> str:
        """The present state in its script."""
        if self.ends is not None:
            return "DELETING"
        since = time.monotonic() - self.born
        for state, seconds in self.script:
            if seconds is None or since < seconds:
                return state
            since -= seconds
        return self.script[-1][0]


class TpuApi:
    """The service: resources, nodes, operations, faults, and a list of all calls.

    Args:
        script: States of resources that are created from now on.
        hosts: Addresses that workers get, in turn.
        workers: Maps an accelerator type to the number of VMs of a node.
        deleting: Seconds that a deletion takes.

    `on_call` is called with "before" and "after" the execution of each call.
    """

    def __init__(
        self,
        script: Any = QUICK,
        hosts: tuple[str, ...] = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"),
        workers: Callable[[str], int] = lambda _: 1,
        deleting: float = 0.05,
    ) -> None:
        self.script, self.hosts, self.workers, self.deleting = (
            list(script),
            hosts,
            workers,
            deleting,
        )
        self.resources: dict[str, Resource] = {}
        self.nodes: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.requests: dict[str, str] = {}  # requestId of a create -> its operation
        self.faults: list[Fault] = []
        self.calls: list[str] = []
        self.operation_error: Json | None = None
        self.absent: dict[str, str] = {}  # state -> what answers about resources in it lack
        self.page = 1000  # resources on a page of a list
        self.ahead = 0.0  # offset of its clock in seconds
        self.on_call: Callable[[str, str], None] = lambda moment, call: None
        self.on_patch: Callable[[Json], None] = lambda node: None
        self.lock = threading.RLock()
        self._ids = itertools.count(1)
        self._given = 0  # addresses
        self._stop = threading.Event()

    def answer(self, method: str, path: str, query: dict[str, str], body: Json) -> Json:
        """Execute a call."""
        with self.lock:
            self._advance()
            for wanted, pattern, action in _ROUTES:
                found = re.fullmatch(pattern, path)
                if wanted == method and found:
                    return action(self, *found.groups(), query=query, body=body)
        raise ApiError(404, f"no such method: {method} {path}")

    def left(self) -> list[str]:
        """Resources and nodes that cost money, or would."""
        with self.lock:
            self._advance()
            return sorted([*self.resources, *self.nodes])

    def suspend(self, name: str, reason: str = "SERVICE") -> None:
        """Preempt: the nodes disappear, and the resource stays as SUSPENDED."""
        with self.lock:
            self._advance()
            resource = self.resources[name]
            resource.script, resource.born = [("SUSPENDED", None)], time.monotonic()
            resource.reason = {"stateInitiator": reason}
            for node in resource.nodes:
                if node in self.nodes:
                    self.nodes[node]["state"] = "PREEMPTED"

    def _advance(self) -> None:
        now = time.monotonic()
        for name, resource in list(self.resources.items()):
            if resource.ends is not None and now >= resource.ends:
                del self.resources[name]
                for node in resource.nodes:
                    self.nodes.pop(node, None)
            elif resource.state() in ("PROVISIONING", "ACTIVE"):
                self._make_nodes(name, resource)

    def _make_nodes(self, name: str, resource: Resource) -> None:
        parent = name.rpartition("/queuedResources/")[0]
        ready = resource.state() == "ACTIVE"
        if not resource.nodes:
            for spec in resource.body["tpu"]["nodeSpec"]:
                for short in _node_ids(spec, name):
                    node = f"{parent}/nodes/{short}"
                    resource.nodes.append(node)
                    number = self.workers(spec["node"]["acceleratorType"])
                    self.nodes[node] = {
                        **spec["node"],
                        "name": node,
                        "id": str(next(self._ids) + 10**9),
                        "queuedResource": name,
                        "networkEndpoints": [self._endpoint() for _ in range(number)],
                        "createTime": _now(self),
                    }
        for node in resource.nodes:
            if node in self.nodes and self.nodes[node].get("state") != "PREEMPTED":
                self.nodes[node]["state"] = "READY" if ready else "CREATING"

    def _endpoint(self) -> Json:
        address = self.next_host(0)
        self._given += 1
        return {"ipAddress": address, "port": 8470, "accessConfig": {"externalIp": address}}

    def next_host(self, ahead: int) -> str:
        """The address of the next worker after `ahead` others."""
        return self.hosts[(self._given + ahead) % len(self.hosts)]

    def operation(self, parent: str, target: str, verb: str, response: Json | None) -> Json:
        """Start a long-running operation."""
        name = f"{parent}/operations/operation-{next(self._ids)}"
        done: Json = {"done": True}
        if verb == "create" and self.operation_error is not None:
            done["error"] = self.operation_error
        else:
            done["response"] = response or {"@type": "type.googleapis.com/google.protobuf.Empty"}
        metadata = {
            "@type": "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata",
            "createTime": _now(self),
            "target": target,
            "verb": verb,
            "apiVersion": "v2",
        }
        self.operations[name] = {"name": name, "metadata": metadata, **done}
        return {"name": name, "metadata": metadata, "done": False}


def _node_ids(spec: Json, name: str) -> list[str]:
    several = spec.get("multisliceParams")
    if several is None:
        return [spec["nodeId"]]
    prefix = several.get("nodeIdPrefix") or name.rpartition("/")[2]
    return [f"{prefix}-{i}" for i in range(int(several["nodeCount"]))]


def _now(api: TpuApi) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + api.ahead))


def _create(api: TpuApi, parent: str, *, query: dict[str, str], body: Json) -> Json:
    short = query.get("queuedResourceId", "")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", short):
        raise ApiError(400, f"Invalid value at 'queued_resource_id': {short!r}")
    name = f"{parent}/queuedResources/{short}"
    request = query.get("requestId")
    if request in api.requests:
        return api.operations[api.requests[request]]
    if name in api.resources:
        raise ApiError(409, f"Resource '{name}' already exists")
    for spec in body.get("tpu", {}).get("nodeSpec", []):
        if not spec.get("node", {}).get("runtimeVersion"):
            raise ApiError(400, "node.runtime_version is required")
        if "nodeId" in spec and f"{parent}/nodes/{spec['nodeId']}" in api.nodes:
            raise ApiError(409, f"Node '{spec['nodeId']}' already exists")
    if not body.get("tpu", {}).get("nodeSpec"):
        raise ApiError(400, "tpu.node_spec is required")
    resource = Resource({**body, "name": name, "createTime": _now(api)}, list(api.script))
    if api.operation_error is None:
        api.resources[name] = resource
    kind = {"@type": "type.googleapis.com/google.cloud.tpu.v2.QueuedResource"}
    operation = api.operation(parent, name, "create", {**kind, **_shown(api, resource)})
    if request:
        api.requests[request] = operation["name"]
    return operation


ABSENT: dict[str, Callable[[Json], object]] = {
    "labels": lambda body: [spec["node"].pop("labels") for spec in body["tpu"]["nodeSpec"]],
    "spec": lambda body: body.pop("tpu"),
    "created": lambda body: body.pop("createTime"),
    "state": lambda body: body.pop("state"),
}
"""What answers about a resource can lack, and how it is taken away."""


def _shown(api: TpuApi, resource: Resource) -> Json:
    state: Json = {"state": resource.state(), **resource.reason}
    if state["state"] == "FAILED" and "failedData" not in state:
        state["failedData"] = {"error": {"code": 8, "message": "There is no more capacity"}}
    shown = copy.deepcopy({**resource.body, "state": state})
    if resource.state() in api.absent:
        ABSENT[api.absent[resource.state()]](shown)
    return shown


def _get(api: TpuApi, name: str, *, query: dict[str, str], body: Json) -> Json:
    if name not in api.resources:
        raise ApiError(404, f"Resource '{name}' was not found")
    return _shown(api, api.resources[name])


def _list(api: TpuApi, parent: str, *, query: dict[str, str], body: Json) -> Json:
    found = [_shown(api, r) for n, r in api.resources.items() if n.startswith(f"{parent}/")]
    start = int(query.get("pageToken") or 0)
    end = start + api.page
    return {
        "queuedResources": found[start:end],
        **({"nextPageToken": str(end)} if end < len(found) else {}),
    }


def _delete(api: TpuApi, name: str, *, query: dict[str, str], body: Json) -> Json:
    resource = api.resources.get(name)
    if resource is None:
        raise ApiError(404, f"Resource '{name}' was not found")
    if query.get("force", "false").lower() != "true" and resource.state() not in DELETABLE:
        raise ApiError(400, f"cannot delete a queued resource in state {resource.state()}")
    if resource.ends is None:
        resource.ends = time.monotonic() + api.deleting
    return api.operation(name.rpartition("/queuedResources/")[0], name, "delete", None)


def _node(api: TpuApi, name: str, *, query: dict[str, str], body: Json) -> Json:
    if name not in api.nodes:
        raise ApiError(404, f"Resource '{name}' was not found")
    return api.nodes[name]


def _nodes(api: TpuApi, parent: str, *, query: dict[str, str], body: Json) -> Json:
    return {"nodes": [n for name, n in api.nodes.items() if name.startswith(f"{parent}/")]}


def _patch(api: TpuApi, name: str, *, query: dict[str, str], body: Json) -> Json:
    node = _node(api, name, query=query, body=body)
    mask = query.get("updateMask", "").split(",")
    if "labels" in mask:
        node["labels"] = dict(body.get("labels", {}))
    if "metadata" in body:
        node.setdefault("metadata", {}).update(body["metadata"])
        api.on_patch(node)
    kind = {"@type": "type.googleapis.com/google.cloud.tpu.v2.Node"}
    return api.operation(name.rpartition("/nodes/")[0], name, "update", {**kind, **node})


def _guest(api: TpuApi, name: str, *, query: dict[str, str], body: Json) -> Json:
    raise ApiError(404, "guest attributes were not found")


def _operation(api: TpuApi, name: str, *, query: dict[str, str], body: Json) -> Json:
    if name not in api.operations:
        raise ApiError(404, f"Operation '{name}' was not found")
    return api.operations[name]


def _project(api: TpuApi, project: str, *, query: dict[str, str], body: Json) -> Json:
    return {"kind": "compute#project", "name": project, "commonInstanceMetadata": {"items": []}}


_PLACE = r"(projects/[^/]+/locations/[^/]+)"
_ROUTES: list[tuple[str, str, Callable[..., Json]]] = [
    ("POST", rf"/v2/{_PLACE}/queuedResources", _create),
    ("GET", rf"/v2/{_PLACE}/queuedResources", _list),
    ("GET", rf"/v2/({_PLACE[1:-1]}/queuedResources/[^/:]+)", _get),
    ("DELETE", rf"/v2/({_PLACE[1:-1]}/queuedResources/[^/:]+)", _delete),
    ("GET", rf"/v2/{_PLACE}/nodes", _nodes),
    ("GET", rf"/v2/({_PLACE[1:-1]}/nodes/[^/:]+)", _node),
    ("PATCH", rf"/v2/({_PLACE[1:-1]}/nodes/[^/:]+)", _patch),
    ("POST", rf"/v2/({_PLACE[1:-1]}/nodes/[^/:]+):getGuestAttributes", _guest),
    ("GET", rf"/v2/({_PLACE[1:-1]}/operations/[^/]+)", _operation),
    ("GET", r"/compute/v1/projects/([^/]+)", _project),
]
