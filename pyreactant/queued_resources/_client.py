"""The TPU API through Google's client, with our errors, deadlines and retries.

Google's client has neither a timeout nor a retry of its own. Answers that say "later" (429, 503,
504, a broken connection) are asked again with growing pauses, and all others at once raised.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import requests
from google.api_core import exceptions, retry
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.cloud import tpu_v2

from .._errors import InvalidArgumentError, RequirementError
from ._request import Request
from ._resource import (
    LIFETIME_LABEL,
    RUN_LABEL,
    CloudError,
    NotOursError,
    Resource,
    Worker,
    from_api,
)

_LATER = (
    exceptions.TooManyRequests,
    exceptions.ServiceUnavailable,
    exceptions.GatewayTimeout,
    exceptions.InternalServerError,
    TransportError,
    requests.ConnectionError,
    requests.Timeout,
)
_MISSING = exceptions.NotFound
_CALL = 30.0  # seconds for one call
_CLOUD = "cloud-platform"
Found = TypeVar("Found")


class Client:
    """Calls about queued resources; each may take `patience` seconds in all.

    The variables that gcloud has for tests are obeyed, so that both see one service:
    ``CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU`` and ``CLOUDSDK_AUTH_DISABLE_CREDENTIALS``.

    Raises:
        RequirementError: There are no credentials.
    """

    def __init__(
        self,
        *,
        transport: str = "rest",
        patience: float = 120.0,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        if transport not in ("rest", "grpc"):
            raise InvalidArgumentError(f"the transport is 'rest' or 'grpc', got {transport!r}")
        self.patience = patience
        endpoint = environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", "").rstrip("/")
        anonymous = environ.get("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "").lower() in ("true", "1")
        try:
            if transport == "grpc" and endpoint.startswith("http://"):  # without encryption
                self._client = tpu_v2.TpuClient(transport=_insecure(endpoint))
            else:
                self._client = tpu_v2.TpuClient(
                    transport=transport,
                    credentials=AnonymousCredentials() if anonymous else None,
                    client_options=ClientOptions(api_endpoint=endpoint or None),
                )
        except DefaultCredentialsError as error:
            raise _no_credentials(error) from error

    def get(self, path: str) -> Resource | None:
        """A queued resource; None where there is none of this name."""
        try:
            asked = {"name": path}
            return from_api(self._ask(self._client.get_queued_resource, asked, _MISSING))
        except _MISSING:
            return None

    def resources(self, parent: str) -> list[Resource]:
        """All queued resources of a project and zone."""
        found = self._ask(self._client.list_queued_resources, {"parent": parent})
        return [from_api(resource) for resource in found]

    def create(self, request: Request, run: str, startup_script: str) -> Any:
        """Ask for a queued resource that carries this run's label.

        Safe to be asked again: where an answer was lost and the name is taken, the label says
        whether the resource is this run's own.

        Returns:
            The long-running operation, or None where the resource was there already.

        Raises:
            NotOursError: The name is somebody else's, who keeps it.
        """
        asked = tpu_v2.CreateQueuedResourceRequest(
            parent=request.parent,
            queued_resource_id=request.name,
            queued_resource=_body(request, run, startup_script),
        )
        try:
            return self._ask(self._client.create_queued_resource, asked, exceptions.Conflict)
        except exceptions.Conflict as error:
            there = self._taken(request.path)
            if there is not None and there.run == run:
                return None
            owner = (
                "a resource of somebody else"
                if there is None or there.run is None
                else (f"another run of pyreactant ({there.run})")
            )
            raise NotOursError(
                f"the name {request.name!r} is taken in {request.zone} by {owner}, which is left "
                f"alone; choose another QR_ID ({_text(error)})"
            ) from error

    def _taken(self, path: str) -> Resource | None:
        """What has a name that is taken; it may not be seen at once."""
        for pause in (0.0, 0.2, 0.5, 1.0, 2.0):
            time.sleep(pause)
            found = self.get(path)
            if found is not None:
                return found
        return None

    def delete(self, path: str) -> bool:
        """Ask for deletion with all nodes; whether there was anything to delete."""
        asked = tpu_v2.DeleteQueuedResourceRequest(name=path, force=True)
        try:
            self._ask(self._client.delete_queued_resource, asked, _MISSING)
        except _MISSING:
            return False
        return True

    def operation_error(self, operation: Any) -> str | None:
        """What an operation failed with, as far as it is known now."""
        if operation is None or not operation.done():
            return None
        error = operation.operation.error
        return f"{error.message} (code {error.code})" if error.code else None

    def workers(self, request: Request) -> list[Worker]:
        """The VMs of all nodes, by slice and index; fewer where a node is gone."""
        found = []
        for short in request.nodes:
            try:
                name = {"name": f"{request.parent}/nodes/{short}"}
                node = self._ask(self._client.get_node, name, _MISSING)
            except _MISSING:
                continue
            if node.state.name != "READY":
                continue
            for index, endpoint in enumerate(node.network_endpoints):
                found.append(
                    Worker(
                        short,
                        index,
                        endpoint.ip_address,
                        endpoint.access_config.external_ip,
                        str(node.id),
                    )
                )
        return found

    def _ask(
        self, call: Callable[..., Found], request: Any, known: type[Exception] | None = None
    ) -> Found:
        """A call's answer; an error of the `known` kind is raised as it is."""
        again = retry.Retry(
            predicate=retry.if_exception_type(*_LATER),
            initial=0.5,
            maximum=20.0,
            multiplier=2.0,
            timeout=self.patience,
        )
        try:
            return call(request=request, retry=again, timeout=_CALL)
        except exceptions.RetryError as error:
            cause = error.cause or error
            busy = isinstance(cause, exceptions.TooManyRequests)
            raise (_refused(cause) if busy else _unreachable(cause)) from error
        except (DefaultCredentialsError, RefreshError, exceptions.Unauthorized) as error:
            raise _no_credentials(error) from error
        except exceptions.GoogleAPICallError as error:
            if known is not None and isinstance(error, known):
                raise
            raise _refused(error) from error
        except OSError as error:  # the requests library's errors are such
            raise _unreachable(error) from error


def _insecure(endpoint: str) -> Any:
    import grpc
    from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

    return TpuGrpcTransport(channel=grpc.insecure_channel(endpoint.partition("//")[2]))


def _body(request: Request, run: str, startup_script: str) -> Any:
    network = tpu_v2.NetworkConfig(
        network=request.network or "",
        subnetwork=request.subnetwork or "",
        enable_external_ips=not request.internal_ips,
    )
    node = tpu_v2.Node(
        accelerator_type=request.accelerator_type,
        runtime_version=request.runtime_version,
        network_config=network,
        labels={RUN_LABEL: run, LIFETIME_LABEL: str(int(request.lifetime))},
        metadata={"startup-script": startup_script},
        # The VM deletes its own queued resource when its time is over.
        service_account=tpu_v2.ServiceAccount(scope=[f"https://www.googleapis.com/auth/{_CLOUD}"]),
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


def _text(error: BaseException) -> str:
    message = getattr(error, "message", None) or str(error)
    return str(message).partition("enum-encoding%3Dint: ")[2] or str(message)


def _refused(error: Any) -> Exception:
    code = getattr(error.code, "value", error.code)
    advice = {
        403: "; ask the project's owner for the role roles/tpu.admin, and enable the API: "
        "gcloud services enable tpu.googleapis.com",
        404: "; check PROJECT and ZONE: gcloud compute tpus locations list",
        429: "; ask for quota, or for fewer or other chips, or try again later",
    }.get(int(code), "")
    return CloudError(f"Cloud TPU says no: {_text(error)}{advice}")


def _unreachable(error: BaseException) -> Exception:
    return CloudError(f"Cloud TPU could not be reached, or is busy: {_text(error)}", later=True)


def _no_credentials(error: BaseException) -> Exception:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RequirementError(
        f"there are no usable Google credentials here ({first}); run: "
        "gcloud auth application-default login"
    )
