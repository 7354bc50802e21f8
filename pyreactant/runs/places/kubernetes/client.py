"""The API of a Kubernetes cluster, by the configuration and the connections of its own client.

Objects are plain dicts: JobSets have no types there, and its call for logs has no `sinceTime`.
This is the one module that imports the client.
"""

import contextlib
import functools
import ipaddress
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ....base.errors import InvalidArgumentError, PyReactantError, RequirementError, argument
from .states import Object

_CONNECT, _ANSWER, _BRIEF = 5.0, 30.0, 2.5
"""Seconds for a connection, for an answer, and for each where many jobs are asked for."""
_WATCH = 60
"""Seconds until the API ends a watch, so that one whose connection is dead does not stay."""
_TRANSIENT = (429, 500, 502, 503, 504)
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What a pod with a service account has of its own cluster."""
_GROUPS = {
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "jobs": "/apis/batch/v1",
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "events": "/api/v1",
    "workloads": "/apis/kueue.x-k8s.io/v1beta1",
    "localqueues": "/apis/kueue.x-k8s.io/v1beta1",
}
_INSTALL = (
    "install JobSet 0.10 or later: kubectl apply --server-side -f https://github.com/"
    "kubernetes-sigs/jobset/releases/download/v0.10.1/manifests.yaml"
)


class NoAnswerError(RequirementError):
    """The API does not answer now; it may answer later."""


class Cluster:
    """One namespace of one cluster.

    Args:
        context: Context of the kubeconfig; None for the current one, or for the cluster of the pod
            in which this process runs.
        namespace: Namespace; None for that of the context.

    Attributes:
        many_since: When somebody began to ask for many jobs at once, so that one answer counts for
            all of them; None if nobody does.

    Raises:
        RequirementError: There is no client, no configuration, or one that trusts everybody.
        InvalidArgumentError: The kubeconfig has no such context.
    """

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        try:
            from kubernetes import client
            from kubernetes.client import rest
        except ImportError:
            raise RequirementError(
                "the client of Kubernetes is not installed; install it with: "
                "python -m pip install 'pyreactant[kubernetes]'"
            ) from None
        self._configuration = client.Configuration()
        self.context, own = _configured(self._configuration, context)
        self.namespace = namespace or own
        self.many_since: float | None = None
        self._check_trust()
        self._pool = rest.RESTClientObject(self._configuration).pool_manager

    def __str__(self) -> str:
        host = self._configuration.host
        return f"the cluster at {host}" + (f" (context {self.context})" if self.context else "")

    def _check_trust(self) -> None:
        """Refuse a connection on which others could read the login and the secrets."""
        if not self._configuration.verify_ssl:
            raise RequirementError(
                f"the kubeconfig says not to verify the certificate of {self} "
                "(insecure-skip-tls-verify); give its certificate-authority in place of that"
            )
        address = urlsplit(self._configuration.host)
        if address.scheme != "https" and not _is_loopback(address.hostname or ""):
            raise RequirementError(
                f"{self} has no https, so that others could read the login and the secrets; "
                "correct its address in the kubeconfig"
            )

    def create(
        self, kind: str, body: Object, *, patience: float = 0.0, dry_run: bool = False
    ) -> Object:
        """Create an object, also if the answer to an earlier try was lost.

        Args:
            kind: A plural, such as "jobsets".
            body: The object.
            patience: Seconds for which it is tried again while there is no answer.
            dry_run: Whether the cluster only checks it.

        Raises:
            NoAnswerError: The API does not answer.
            RequirementError: The cluster has no JobSet, or the user may not do this.
            InvalidArgumentError: The cluster refuses the object.
        """
        name = body["metadata"]["name"]
        # Else an old JobSet drops what it does not know, such as rules.
        path = f"{self.path(kind)}?fieldValidation=Strict{'&dryRun=All' if dry_run else ''}"
        status, data = self._answer("POST", path, body, patience=patience)
        there = self.get(kind, name) if status == 409 else None
        if there and there["metadata"].get("labels") == body["metadata"]["labels"]:
            return there
        if status in (200, 201, 202):
            return self._object(data)
        error = self._refusal(status, data, f"to create {kind}/{name}")
        if status == 400 and kind == "jobsets":  # it does not know a field
            raise InvalidArgumentError(f"{error}; {_INSTALL}")
        if status == 403 and kind == "networkpolicies":
            instead = f"or leave it out by {argument('no_network_policy')}"
            raise RequirementError(f"{error}, {instead}")
        raise error

    def get(self, kind: str, name: str, *, patience: float = 0.0) -> Object | None:
        """An object; None if it does not exist."""
        status, data = self._answer("GET", self.path(kind, name), patience=patience)
        if status == 404:
            return None
        if status == 200:
            return self._object(data)
        raise self._refusal(status, data, f"to read {kind}/{name}")

    def read(self, path: str) -> Object | None:
        """What has an address in the API; None if there is none, or the user may not read it."""
        status, data = self._answer("GET", path)
        if status in (403, 404):
            return None
        if status == 200:
            return dict(json.loads(data))
        raise self._refusal(status, data, f"to read {path}")

    def allows(self, verb: str, kind: str) -> bool:
        """Whether the user may do something in this namespace.

        Args:
            verb: Such as "create".
            kind: A plural, such as "jobsets" or "pods/log".
        """
        kind, _, part = kind.partition("/")
        group = _GROUPS[kind].removeprefix("/apis/") if "apis" in _GROUPS[kind] else ""
        what = {"verb": verb, "group": group.split("/")[0], "resource": kind, "subresource": part}
        kinds = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kinds, "spec": {"resourceAttributes": {"namespace": self.namespace, **what}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status, data = self._answer("POST", path, body)
        if status == 201:
            return bool(self._object(data)["status"]["allowed"])
        raise self._refusal(status, data, "to ask what this user may do")

    def listed(self, kind: str, selector: str) -> tuple[list[Object], str]:
        """The objects that have some labels, and the version from which on to watch them.

        Args:
            kind: A plural, such as "pods".
            selector: The labels; of events the fields.
        """
        silence = _BRIEF if kind == "jobsets" or self.many_since is not None else None
        status, data = self._answer(
            "GET", self.path(kind) + _selecting(kind, selector), silence=silence
        )
        if status == 200:
            read = self._object(data)
            return list(read.get("items") or ()), read["metadata"].get("resourceVersion", "")
        raise self._refusal(status, data, f"to list {kind}")

    def watch(self, kind: str, selector: str, version: str) -> Iterator[Object | None]:
        """What becomes of these objects: first None, then events, until the API ends it."""
        more = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        path = self.path(kind) + _selecting(kind, selector, timeoutSeconds=_WATCH, **more)
        for lines in self._lines(path, f"to watch {kind}"):
            if not lines:
                yield None
            for line in lines:
                event = self._object(line, "type")
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise self._refusal(
                        status.get("code", 500), json.dumps(status).encode(), f"to watch {kind}"
                    )
                yield event

    def delete(self, kind: str, name: str, *, patience: float = 0.0) -> None:
        """Ask for the end of an object and of what it owns; nothing if it does not exist."""
        body = {"propagationPolicy": "Foreground"}
        status, data = self._answer("DELETE", self.path(kind, name), body, patience=patience)
        if status not in (200, 202, 404):
            raise self._refusal(status, data, f"to delete {kind}/{name}")

    def log(self, pod: str, since: str = "", *, follow: bool = False) -> Iterator[list[bytes]]:
        """The output of a pod's container: lines, each with its time; none if there is none.

        Args:
            pod: The pod's name.
            since: The time from which on, in whole seconds; "" for all.
            follow: Whether to go on until the container has ended.
        """
        query = {"container": "main", "timestamps": "true"}
        if since:
            query["sinceTime"] = since
        if follow:
            query["follow"] = "true"
        path = f"{self.path('pods', pod)}/log?{urlencode(query)}"
        yield from self._lines(path, f"to read the log of {pod}", absent=(400, 404))

    def path(self, kind: str, name: str = "") -> str:
        """The address of a kind of objects, or of one."""
        path = f"{_GROUPS[kind]}/namespaces/{quote(self.namespace, safe='')}/{kind}"
        return f"{path}/{quote(name, safe='')}" if name else path

    def _lines(self, path: str, what: str, absent: tuple[int, ...] = ()) -> Iterator[list[bytes]]:
        """The whole lines of an answer, as they come: first none, when it begins."""
        with self._send("GET", path, silence=_WATCH + _CONNECT, stream=True) as response:
            try:
                if response.status in absent:  # it has not started yet, or is gone
                    return
                if response.status != 200:
                    raise self._refusal(response.status, response.read(), what)
                yield []
                rest = b""
                while data := response.read1(1 << 16):
                    *lines, rest = (rest + data).splitlines(keepends=True)
                    if rest.endswith(b"\n"):
                        lines, rest = [*lines, rest], b""
                    if lines:
                        yield lines
            except _broken() as error:
                raise NoAnswerError(f"{self} has broken off an answer ({_reason(error)})") from None
            finally:
                response.close()  # an answer that is not whole cannot be followed by another

    def _answer(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        patience: float = 0.0,
        silence: float | None = None,
    ) -> tuple[int, bytes]:
        """Status and content of an answer that is not a passing trouble."""
        deadline, pause = time.monotonic() + patience, 0.5
        while True:
            try:
                response = self._send(method, path, body, silence=silence)
            except NoAnswerError:
                if time.monotonic() + pause > deadline:
                    raise
            else:
                status, data = response.status, response.data
                if status not in _TRANSIENT:
                    return status, data
                if time.monotonic() + pause > deadline:
                    raise NoAnswerError(
                        f"{self} has a passing trouble ({status}: {_said(data)}); try again"
                    )
                wait = response.headers.get("Retry-After", "")
                pause = max(pause, float(wait) if wait.isdecimal() else 0.0)
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        silence: float | None = None,
        stream: bool = False,
    ) -> Any:
        """An answer, whose content is still to be read if it is a stream."""
        import urllib3

        # A login that is over is renewed by this.
        settings: Iterable[Any] = self._configuration.auth_settings().values()
        login = {s["key"]: s["value"] for s in settings if s["in"] == "header" and s["value"]}
        json_body = {"Content-Type": "application/json"} if body is not None else {}
        try:
            return self._pool.request(
                method,
                self._configuration.host.rstrip("/") + path,
                body=None if body is None else json.dumps(body).encode(),
                headers={"Accept": "application/json, */*", **json_body, **login},
                timeout=urllib3.Timeout(
                    connect=min(_CONNECT, silence or _CONNECT), read=silence or _ANSWER
                ),
                retries=False,
                preload_content=not stream,
            )
        except urllib3.exceptions.SSLError as error:
            raise RequirementError(
                f"{self} is not trusted ({_reason(error)}): its certificate, or the login's, does "
                "not fit the kubeconfig; get the kubeconfig anew"
            ) from None
        except _broken() as error:
            raise NoAnswerError(
                f"{self} cannot be reached ({_reason(error)}); see whether it runs, and whether "
                "this machine may reach it: kubectl version"
            ) from None

    def _object(self, data: bytes, key: str = "kind") -> Object:
        with contextlib.suppress(ValueError):
            if isinstance(read := json.loads(data), dict) and key in read:
                return read
        raise NoAnswerError(
            f"{self} gave no answer of the API of Kubernetes, but {_said(data)!r}; see whether the "
            "address in the kubeconfig, or a proxy, leads elsewhere"
        )

    def _refusal(self, status: int, data: bytes, what: str) -> PyReactantError:
        """The error of an answer that is no success."""
        said = _said(data)
        if status == 401 and not (
            self._configuration.auth_settings() or self._configuration.cert_file
        ):
            return RequirementError(
                f"{self} needs a login, and the kubeconfig gives none, or its command has failed; "
                "log in, and see: kubectl auth whoami"
            )
        if status == 401:
            return RequirementError(
                f"{self} does not accept the login of the kubeconfig ({said}); log in again, and "
                "see: kubectl auth whoami"
            )
        if status == 403 and "NamespaceTerminating" in _causes(data):
            return InvalidArgumentError(
                f"the namespace {self.namespace} of {self} is being deleted; name another by "
                f"{argument('namespace')}"
            )
        if status == 403:
            return RequirementError(
                f"{self} does not allow {what}: {said}; ask whoever has the cluster"
            )
        if status == 404:
            with contextlib.suppress(ValueError, AttributeError):
                if json.loads(data).get("details", {}).get("kind") == "namespaces":
                    return InvalidArgumentError(
                        f"{self} has no namespace {self.namespace}; name another by "
                        f"{argument('namespace')}"
                    )
            return RequirementError(f"{self} has no JobSet; {_INSTALL}")
        if status in (400, 409, 413, 422):
            return InvalidArgumentError(f"{self} refused {what}: {said}")
        return NoAnswerError(f"{self} answered {status} {what}: {said}")


def _configured(configuration: Any, context: str | None) -> tuple[str, str]:
    """Fill in the configuration; the context and its namespace."""
    from kubernetes import config
    from kubernetes.config import ConfigException

    files = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(file).exists() for file in files.split(os.pathsep)):
        if context is None and (_POD / "token").exists():
            config.load_incluster_config(client_configuration=configuration)
            return "", (_POD / "namespace").read_text().strip()
        raise RequirementError(
            f"there is no cluster: {files} does not exist; get it from whoever has the cluster, "
            "such as by: gcloud container clusters get-credentials CLUSTER"
        )
    try:
        contexts, current = config.list_kube_config_contexts(files)
        names = {entry["name"]: entry["context"] for entry in contexts}
        if context is not None and context not in names:
            raise InvalidArgumentError(
                f"{argument('context')} must be one of the kubeconfig's, {', '.join(names)}, got "
                f"{context!r}"
            )
        chosen = context or current["name"]
        config.load_kube_config(files, chosen, configuration)
    except InvalidArgumentError:
        raise
    except Exception as error:  # of YAML, of Base64, and of its own
        kind = "" if isinstance(error, ConfigException) else f"{type(error).__name__}: "
        why = " ".join(str(error).split())[:200]
        raise RequirementError(
            f"the kubeconfig {files} cannot be used ({kind}{why}); see: kubectl config view"
        ) from None
    return chosen, names[chosen].get("namespace") or "default"


@functools.lru_cache(maxsize=16)
def cluster_at(context: str | None, namespace: str | None) -> Cluster:
    """A cluster, whose connections are kept."""
    return Cluster(context, namespace)


def _broken() -> tuple[type[Exception], ...]:
    """What a connection raises."""
    import urllib3

    return urllib3.exceptions.HTTPError, OSError


def _selecting(kind: str, selector: str, **more: Any) -> str:
    by = "fieldSelector" if kind == "events" else "labelSelector"
    return f"?{urlencode({by: selector, **more})}"


def changes(sent: Any, there: Any, path: str = "") -> Iterator[str]:
    """What of an object the cluster has changed; what it adds, such as defaults, is no change."""
    if isinstance(sent, Mapping) and isinstance(there, Mapping):
        for key, value in sent.items():
            yield from changes(value, there.get(key), f"{path}.{key}" if path else key)
    elif isinstance(sent, list) and isinstance(there, list) and len(sent) == len(there):
        for number, value in enumerate(sent):
            yield from changes(value, there[number], f"{path}[{number}]")
    elif sent != there and (sent or there):
        shown = (json.dumps(one)[:200] for one in (sent, there))
        yield f"{path} from {' to '.join(shown)}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _said(data: bytes) -> str:
    """What the API says in an answer that is no success."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        if isinstance(read := json.loads(text), Mapping) and isinstance(read.get("message"), str):
            text = read["message"]
    return " ".join(text.split())[:500]


def _causes(data: bytes) -> list[str]:
    """The API's own names of what is wrong."""
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        causes = json.loads(data).get("details", {}).get("causes", ())
        return [str(cause.get("reason", "")) for cause in causes]
    return []


def _reason(error: BaseException) -> str:
    """What the system says of a connection, without the names of a library's objects."""
    cause = error.__cause__
    return cause.strerror if isinstance(cause, OSError) and cause.strerror else str(error)
