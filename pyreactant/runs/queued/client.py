"""The TPU API through Google's client, with this package's errors, deadlines and retries.

Google's client has no default timeout and no default retry. Transient errors (429, 500, 502 to 504,
a broken connection, an answer that is not JSON) are retried with growing pauses; every other error
is raised at once.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, TypeVar

import requests
from google.api_core import exceptions, retry
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud import tpu_v2
from google.protobuf.json_format import ParseError

from ...base.errors import InvalidArgumentError, RequirementError, argument
from ...base.process import in_thread
from ...base.say import Repeated
from .request import (
    HEARTBEAT_LABEL,
    KEPT_LABEL,
    LIFETIME_LABEL,
    RUN_LABEL,
    CloudError,
    Node,
    NotOursError,
    QueuedResource,
    SliceRequest,
    Worker,
)

_TRANSIENT = (
    exceptions.TooManyRequests,
    exceptions.BadGateway,
    exceptions.ServiceUnavailable,
    exceptions.GatewayTimeout,
    exceptions.InternalServerError,
    TransportError,
    requests.ConnectionError,
    requests.Timeout,
    ParseError,
    UnicodeDecodeError,
)
_UNREADABLE = (ParseError, ValueError, AttributeError, TypeError)
"""What Google's client raises for answers that the API does not give, such as a login page."""
_CALL_TIMEOUT = 30.0  # seconds
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_BY_USER = tpu_v2.QueuedResourceState.StateInitiator.USER
Answer = TypeVar("Answer")


class Client:
    """Calls of the API for queued resources.

    Args:
        transport: "rest" or "grpc".
        patience: Seconds for which a call is retried.
        tell: Prints, at once, why a call is retried; None prints nothing.
        environ: Two variables of gcloud apply here too, so that both use the same service:
            ``CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU`` and ``CLOUDSDK_AUTH_DISABLE_CREDENTIALS``.

    Raises:
        InvalidArgumentError: The transport is unknown.
        RequirementError: There are no credentials.
    """

    def __init__(
        self,
        *,
        transport: str = "rest",
        patience: float = 120.0,
        tell: Callable[[str], None] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        if transport not in ("rest", "grpc"):
            raise InvalidArgumentError(
                f"{argument('transport')} must be 'rest' or 'grpc', got {transport!r}"
            )
        self.patience = patience
        self._repeated = Repeated(tell) if tell is not None else None
        endpoint = environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "").rstrip("/")
        anonymous = environ.get("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "").lower() in ("true", "1")
        try:
            if transport == "grpc" and endpoint.startswith("http://"):
                self._client = tpu_v2.TpuClient(transport=_unencrypted(endpoint))
            else:
                self._client = tpu_v2.TpuClient(
                    transport=transport,
                    credentials=AnonymousCredentials() if anonymous else None,
                    client_options=ClientOptions(api_endpoint=endpoint or None),
                )
        except DefaultCredentialsError as error:
            raise _no_credentials(error) from error

    def get(self, path: str, *, once: float | None = None) -> QueuedResource | None:
        """The queued resource with this full name; None if it does not exist.

        Args:
            once: Seconds that the answer may take, without a retry; None for the client's patience.
        """
        try:
            answer = self._call(
                self._client.get_queued_resource,
                {"name": path},
                exceptions.NotFound,
                once=once,
            )
        except exceptions.NotFound as error:
            _check_origin(error)
            return None
        if answer.name.rpartition("/locations/")[2] != path.rpartition("/locations/")[2]:
            raise _unreadable(f"it is about {answer.name!r} in place of {path!r}")
        return _plain(answer)

    def resources(self, parent: str) -> list[QueuedResource]:
        """All queued resources of a project and zone."""

        def pages() -> list[Any]:
            request = {"parent": parent}
            return list(
                self._client.list_queued_resources(
                    request=request, retry=None, timeout=_CALL_TIMEOUT
                )
            )

        return [_plain(resource) for resource in self._retried(pages, self.patience)]

    def create(
        self, request: SliceRequest, run: str, startup_script: str, *, kept: bool = False
    ) -> Any:
        """Request a queued resource that carries this run's label.

        A retry is safe: if the answer to the first call was lost, the name is taken, and the
        label shows whether this run took it. Another label shows whether its user keeps it.

        Returns:
            The long-running operation; None if this run's resource already exists.

        Raises:
            NotOursError: Another resource has the name; it is left unchanged.
        """
        body = tpu_v2.CreateQueuedResourceRequest(
            parent=request.parent,
            queued_resource_id=request.name,
            queued_resource=_body(request, run, startup_script, kept=kept),
        )
        try:
            return self._call(self._client.create_queued_resource, body, exceptions.Conflict)
        except exceptions.Conflict as error:
            existing = self._existing(request.path)
            if existing is not None and existing.run == run:
                return None
            owner = (
                "a resource that pyreactant did not create"
                if existing is None or existing.run is None
                else f"another run of pyreactant ({existing.run})"
            )
            raise NotOursError(
                f"the name {request.name!r} is taken in {request.zone} by {owner}, which is left "
                f"unchanged; choose another QR_ID ({_text(error)})"
            ) from error

    def _existing(self, path: str) -> QueuedResource | None:
        """The resource that has a name; the API may show it only after some seconds."""
        for pause in (0.0, 0.2, 0.5, 1.0, 2.0):
            time.sleep(pause)
            resource = self.get(path)
            if resource is not None:
                return resource
        return None

    def delete(self, path: str, *, once: float | None = None) -> bool:
        """Request the deletion of a resource and its nodes; False if it does not exist."""
        body = tpu_v2.DeleteQueuedResourceRequest(name=path, force=True)
        method = self._client.delete_queued_resource
        try:
            self._call(method, body, exceptions.NotFound, once=once)
        except exceptions.NotFound as error:
            _check_origin(error)
            return False
        return True

    def operation_error(self, operation: Any) -> str | None:
        """The error of a failed operation; None if it has not failed so far."""
        if operation is None:
            return None
        if not self._retried(operation.done, _CALL_TIMEOUT):
            return None
        error = operation.operation.error
        return f"{error.message} (code {error.code})" if error.code else None

    def workers(self, request: SliceRequest) -> list[Worker]:
        """The VMs of all READY nodes, ordered by slice and index."""
        return [
            Worker(
                node=short,
                index=index,
                internal=endpoint.ip_address,
                external=endpoint.access_config.external_ip,
                node_id=str(node.id),
            )
            for short, node in self._nodes(request.parent, request.nodes)
            if _state_name(node) == "READY"
            for index, endpoint in enumerate(node.network_endpoints)
        ]

    def nodes(self, resource: QueuedResource) -> list[Node]:
        """The nodes of a resource that exist."""
        parent = resource.path.partition("/queuedResources/")[0]
        return [
            Node(node.create_time and node.create_time.timestamp(), dict(node.labels))
            for _, node in self._nodes(parent, resource.node_ids)
        ]

    def _nodes(self, parent: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """The short names and the API's answers of the nodes that exist."""
        for short in names:
            try:
                name = {"name": f"{parent}/nodes/{short}"}
                yield short, self._call(self._client.get_node, name, exceptions.NotFound)
            except exceptions.NotFound as error:
                _check_origin(error)

    def renew(self, request: SliceRequest) -> None:
        """Write to every node that its launcher is alive now."""
        for short in request.nodes:
            name = f"{request.parent}/nodes/{short}"
            labels = dict(self._call(self._client.get_node, {"name": name}).labels)
            labels[HEARTBEAT_LABEL] = str(int(time.time()))
            body = tpu_v2.UpdateNodeRequest(
                node=tpu_v2.Node(name=name, labels=labels), update_mask={"paths": ["labels"]}
            )
            self._call(self._client.update_node, body)

    def _call(
        self,
        method: Callable[..., Answer],
        request: Any,
        expected: type[Exception] | None = None,
        *,
        once: float | None = None,
    ) -> Answer:
        """The answer to a request; an error of the `expected` type is raised unchanged."""
        limit = min(_CALL_TIMEOUT, max(self.patience if once is None else once, 1.0))

        def call() -> Answer:
            return method(request=request, retry=None, timeout=limit)

        return self._retried(call, limit, expected, once=once is not None)

    def _retried(
        self,
        call: Callable[[], Answer],
        limit: float,
        expected: type[Exception] | None = None,
        *,
        once: bool = False,
    ) -> Answer:
        """The answer of a call, each try of which may take `limit` seconds."""
        retries = retry.Retry(
            predicate=retry.if_exception_type(*_TRANSIENT),
            initial=0.5,
            maximum=20.0,
            multiplier=2.0,
            timeout=0.0 if once else self.patience,
            on_error=None if once else self._say_why,
        )
        end = time.monotonic() + self.patience

        def attempt() -> Answer:
            return _within(limit if once else min(limit, max(end - time.monotonic(), 1.0)), call)

        with _errors(expected):
            return retries(attempt)()

    def _say_why(self, error: Exception) -> None:
        """Tell the user at once, and then each minute, why there is no answer yet."""
        if self._repeated is not None:
            text = f"{_passing(error)}; trying again for up to {self.patience:.0f} s"
            self._repeated.say(text, about="no answer")


def _within(seconds: float, call: Callable[[], Answer]) -> Answer:
    """The answer of a call within some seconds.

    A timeout of the requests library is one for each part of an answer. So the call runs in a
    thread of its own, which is left to itself when the time is over.
    """
    future = in_thread(call)
    done, _ = wait([future], seconds)
    if not done:
        raise requests.Timeout(f"no whole answer within {seconds:.0f} s")
    return future.result()


@contextmanager
def _errors(expected: type[Exception] | None = None) -> Iterator[None]:
    """Raise this package's error for every error of Google's client but the `expected` one."""
    try:
        yield
    except exceptions.RetryError as error:
        raise _passing(error.cause or error) from error
    except TransportError as error:
        raise _unreachable(error) from error
    except (GoogleAuthError, exceptions.Unauthorized) as error:
        raise _no_credentials(error) from error
    except exceptions.GoogleAPICallError as error:
        if expected is not None and isinstance(error, expected):
            raise
        raise _refusal(error) from error
    except OSError as error:  # such as every error of the requests library
        raise _unreachable(error) from error
    except _UNREADABLE as error:
        raise _unreadable(_text(error)) from error


def _unencrypted(endpoint: str) -> Any:
    import grpc
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    return TpuGrpcTransport(channel=grpc.insecure_channel(endpoint.partition("//")[2]))


def _body(request: SliceRequest, run: str, startup_script: str, *, kept: bool) -> Any:
    network = tpu_v2.NetworkConfig(
        network=request.network or "",
        subnetwork=request.subnetwork or "",
        enable_external_ips=not request.internal_ips,
    )
    node = tpu_v2.Node(
        accelerator_type=request.accelerator_type,
        runtime_version=request.runtime_version,
        network_config=network,
        labels={
            RUN_LABEL: run,
            LIFETIME_LABEL: str(int(request.lifetime)),
            **({KEPT_LABEL: "true"} if kept else {}),
        },
        metadata={"startup-script": startup_script},
        # The VM needs it to delete its own queued resource when the lifetime is over.
        service_account=tpu_v2.ServiceAccount(scope=[_SCOPE]),
    )
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=request.parent, node=node)
    if request.slice_count == 1:
        spec.node_id = request.nodes[0]
    else:
        spec.multislice_params = tpu_v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(
            node_count=request.slice_count, node_id_prefix=request.name
        )
    body = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if request.provisioning == "spot":
        body.spot = tpu_v2.QueuedResource.Spot()
    elif request.provisioning == "reserved":
        body.guaranteed = tpu_v2.QueuedResource.Guaranteed(reserved=True)
    if request.valid_for is not None:
        body.queueing_policy = tpu_v2.QueuedResource.QueueingPolicy(
            valid_until_duration={"seconds": int(request.valid_for)}
        )
    return body


def _plain(answer: Any) -> QueuedResource:
    """A `google.cloud.tpu_v2.QueuedResource` as plain data."""
    specs = list(answer.tpu.node_spec)
    state = answer.state
    failed = state.failed_data.error
    reason = f"{failed.message} (code {failed.code})" if failed.message or failed.code else ""
    name = answer.name.rpartition("/")[2]
    return QueuedResource(
        path=answer.name,
        state=_state_name(state),
        reason=reason,
        created=answer.create_time,
        labels=dict(specs[0].node.labels) if specs else {},
        node_ids=tuple(node for spec in specs for node in _node_ids(spec, name)),
        by_service=type(state).pb(state).state_initiator != _BY_USER,
    )


def _state_name(message: Any) -> str:
    """The name of a message's state; its number if Google's client does not know it."""
    number = type(message).pb(message).state
    known = type(message).State
    return known(number).name if number in known.__members__.values() else f"STATE_{number}"


def _node_ids(spec: Any, name: str) -> list[str]:
    count = spec.multislice_params.node_count
    if not count:
        return [spec.node_id]
    prefix = spec.multislice_params.node_id_prefix or name
    return [f"{prefix}-{i}" for i in range(count)]


def _text(error: BaseException) -> str:
    message = getattr(error, "message", None) or str(error)
    text = str(message).partition("enum-encoding%3Dint: ")[2] or str(message)
    return re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? *", "", text)  # of urllib3


def _check_origin(error: Any) -> None:
    """Raise unless the API itself answered that a resource does not exist; a proxy cannot know.

    Raises:
        CloudError: The answer is not the API's.
    """
    if not isinstance(error.response, requests.Response):
        return
    try:
        code = error.response.json()["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    if code != exceptions.NotFound.code:
        raise _unreadable("HTTP status 404 without the text of the API")


def _passing(error: Any) -> Exception:
    """The error for a transient one that lasted."""
    if isinstance(error, exceptions.TooManyRequests):
        return _refusal(error)
    return _unreadable(_text(error)) if isinstance(error, _UNREADABLE) else _unreachable(error)


def _refusal(error: Any) -> Exception:
    code = getattr(error.code, "value", error.code)
    advice = {
        403: "; ask the project's owner for the role roles/tpu.admin and enable the API: "
        "gcloud services enable tpu.googleapis.com",
        404: "; check PROJECT and ZONE: gcloud compute tpus locations list",
        429: "; request more quota or fewer chips, or if there is enough, try again later",
    }.get(int(code), "")
    return CloudError(f"Cloud TPU refused the request: {_text(error)}{advice}")


def _unreachable(error: BaseException) -> Exception:
    return CloudError(f"Cloud TPU is unreachable or busy: {_text(error)}", later=True)


def _unreadable(text: str) -> Exception:
    return CloudError(
        f"the answer is not Cloud TPU's ({text}); check whether a proxy or a login page answers",
        later=True,
    )


def _no_credentials(error: BaseException) -> Exception:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RequirementError(
        f"no usable Google credentials were found ({first}); run: "
        "gcloud auth application-default login"
    )
