"""The settings of a job on Kubernetes, and their checks."""

import posixpath
import re
from dataclasses import dataclass, fields
from typing import Any

from ....base.errors import InvalidArgumentError, argument
from ....base.slices.generations import gke_label
from ....base.slices.topology import Topology, topology
from ....base.storage import FORM, FORM_IN_WORDS
from ...spec import STORE, Processes, option

_MOST_PODS, _MOST_RESTARTS = 65536, 2**31 - 1
_OWN = ("/var/run/pyreactant", "/run/pyreactant", "/dev/shm", "/proc", "/sys")  # noqa: S108
"""Folders that are the pods' own."""

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"
_KEY = rf"({_NAME.replace('$', '/')}/)?[A-Za-z0-9]([-\w.]{{0,61}}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?"
_NAMED = "of lower-case letters, digits, - and ."
FORMS = {
    "image": (r"[\w.\-:/@]+", "the name of an image, such as python:3.12"),
    "namespace": (_LABEL, "a name of lower-case letters, digits and -"),
    "queue": (rf"(?=.{{1,63}}$){_NAME}", f"the name of a LocalQueue, {_NAMED}"),
    "priority": (_NAME, f"the name of a PriorityClass, {_NAMED}"),
    "service_account": (_NAME, f"the name of a service account, {_NAMED}"),
    "node_selector": (rf"[^=]+=({_VALUE})", "a label of nodes as KEY=VALUE"),
    "tolerations": (
        rf"[^=:]+(={_VALUE})?(:(NoSchedule|PreferNoSchedule|NoExecute))?",
        "a taint as KEY=VALUE:NoSchedule",
    ),
    "volumes": (
        rf"(gs://[a-z0-9][-_.a-z0-9]{{1,220}}[a-z0-9]|{_NAME.replace('$', ':')}):/[^:]*",
        "CLAIM:/FOLDER or gs://BUCKET:/FOLDER",
    ),
    "store": (FORM, FORM_IN_WORDS),
    "index_url": (r"https?://[^\s@]+", "the address of an index, without a password"),
}
"""`Target.forms` of Kubernetes."""


@dataclass(frozen=True, kw_only=True)
class PodSettings(Processes):
    """Which pods to ask for and how to use them; `places.kubernetes.Kubernetes` has the fields."""

    image: str = option("python:3.12", "Image of the pods.", "Kubernetes")
    accelerator_type: str | None = option(
        None, "Slice of Cloud TPU, such as v6e-16.", "Devices", name="--topology"
    )
    slices: int = option(1, "Number of slices.", "Devices")
    nodes: int = option(1, "Number of nodes.", "Devices")
    gpus_per_node: int | None = option(None, "GPUs of each node.", "Devices")
    pathways: bool = option(
        False, "Use the slices through Pathways, whose own files need --store.", "Devices"
    )
    context: str | None = option(
        None, "Context of the kubeconfig.", "Kubernetes", shown="the current one"
    )
    namespace: str | None = option(None, "Namespace.", "Kubernetes", shown="of the context")
    queue: str | None = option(None, "Kueue's LocalQueue.", "Kubernetes")
    priority: str | None = option(None, "PriorityClass of the pods.", "Kubernetes")
    service_account: str | None = option(None, "Service account of the pods.", "Kubernetes")
    node_selector: tuple[str, ...] = option(
        (), "A label that nodes must have, as KEY=VALUE; repeatable.", "Kubernetes"
    )
    tolerations: tuple[str, ...] = option(
        (),
        "A taint that pods tolerate, as KEY=VALUE:NoSchedule; repeatable.",
        "Kubernetes",
        name="--toleration",
    )
    volumes: tuple[str, ...] = option(
        (),
        "Data for the pods, as CLAIM:/FOLDER or gs://BUCKET:/FOLDER; repeatable.",
        "Kubernetes",
        name="--volume",
    )
    index_url: str | None = option(
        None, "Index from which pip installs in the pods.", "Kubernetes", shown="of the image"
    )
    store: str | None = option(*STORE)
    lifetime: float | None = option(
        None,
        "Time after which the cluster ends an attempt.",
        "Time limits",
        name="--deadline",
        unit="h",
    )
    start_timeout: float = option(
        600.0, "How long to wait until every process has joined.", "Time limits", unit="s"
    )
    no_network_policy: bool = option(False, "Let pods of other jobs reach the pods.", "Kubernetes")

    def __post_init__(self) -> None:
        for name in ("node_selector", "tolerations", "volumes"):
            if isinstance(value := getattr(self, name), list):  # of JSON
                object.__setattr__(self, name, tuple(value))

    @property
    def topology(self) -> Topology | None:
        """The slices; None without."""
        if self.accelerator_type is None:
            return None
        return topology(self.accelerator_type, self.slices)

    @property
    def pods(self) -> int:
        """The pods of a slice; without slices, all."""
        slices = self.topology
        return self.nodes if slices is None else slices.hosts // slices.num_slices

    def check_pods(self) -> None:
        """Check what the pods are to be.

        Raises:
            InvalidArgumentError: A setting is wrong.
        """
        for name in ("node_selector", "tolerations"):
            for value in getattr(self, name):
                key = re.split("[=:]", value)[0]
                if not re.fullmatch(_KEY, key):
                    raise InvalidArgumentError(
                        f"{argument(name)} must begin with a label's key, such as "
                        f"cloud.google.com/gke-spot, got {key!r}"
                    )
            keys = [re.split("[=:]", value)[0] for value in getattr(self, name)]
            if name == "node_selector" and len({*keys}) < len(keys):
                raise InvalidArgumentError(
                    f"{argument(name)} must have each key once, got {', '.join(keys)}"
                )
        if self.max_restarts > _MOST_RESTARTS:
            raise InvalidArgumentError(
                f"{argument('max_restarts')} must be at most {_MOST_RESTARTS}, which is JobSet's "
                f"limit, got {self.max_restarts}"
            )
        self._check_volumes()
        self._check_devices()

    def _check_volumes(self) -> None:
        """The cluster would refuse the pods later, and no JobSet says so."""
        folders = [posixpath.normpath(entry.rpartition(":")[2]) for entry in self.volumes]
        for number, folder in enumerate(folders):
            inside = any(f"{one}/".startswith(f"{folder.rstrip('/')}/") for one in _OWN)
            if inside or any(f"{folder}/".startswith(f"{one}/") for one in _OWN):
                raise InvalidArgumentError(
                    f"{argument('volumes')} must have another folder than {folder}, such as /data: "
                    "the pods' own files are there"
                )
            if folder in folders[:number]:
                raise InvalidArgumentError(
                    f"{argument('volumes')} must have a folder of its own each, got {folder} twice"
                )

    def _check_devices(self) -> None:
        slices = self.topology
        if slices is None and self.slices != 1:
            raise InvalidArgumentError(
                f"{argument('slices')} needs {argument('accelerator_type')}, such as v6e-16"
            )
        if slices is not None and (self.nodes != 1 or self.gpus_per_node):
            raise InvalidArgumentError(
                f"a slice has its own nodes and no GPUs: pass {argument('accelerator_type')} and "
                f"{argument('slices')}, or {argument('nodes')} and {argument('gpus_per_node')}"
            )
        if slices is not None and gke_label(slices.generation) is None:
            raise InvalidArgumentError(
                f"GKE has no nodes with {slices.generation}; choose v4, v5e, v5p, v6e or tpu7x"
            )
        if self.pathways and slices is None:
            raise InvalidArgumentError(
                f"{argument('pathways')} needs {argument('accelerator_type')}, such as v6e-16"
            )
        if self.pathways and self.store is None:
            raise InvalidArgumentError(
                f"{argument('pathways')} needs {argument('store')}, such as gs://mine/jobs, for "
                "Pathways' own files"
            )
        for name in ("platform", "devices_per_process"):
            if self.pathways and getattr(self, name) is not None:
                raise InvalidArgumentError(
                    f"through Pathways one process has all devices of all slices; leave out "
                    f"{argument(name, getattr(self, name))}"
                )
        each, gpus = self.devices_per_process, self.gpus_per_node
        if slices is not None and each is not None:
            raise InvalidArgumentError(
                "on TPU a process has all devices of its machine; leave out "
                f"{argument('devices_per_process', each)}"
            )
        if gpus and each is not None and each > gpus:
            raise InvalidArgumentError(
                f"{argument('devices_per_process')} must be at most the {gpus} of "
                f"{argument('gpus_per_node')}, got {each}"
            )
        fitting = {"tpu"} if slices else {"gpu"} if self.gpus_per_node else {"cpu"}
        if self.platform is not None and self.platform not in fitting:
            raise InvalidArgumentError(
                f"{argument('platform')} is {self.platform}, but the pods have {fitting.pop()} "
                f"only; give {argument('accelerator_type')} for tpu, or "
                f"{argument('gpus_per_node')} for gpu"
            )
        if (count := self.slices * self.pods) > _MOST_PODS:
            raise InvalidArgumentError(f"a job has at most {_MOST_PODS} pods, got {count}")

    def supervision(self) -> dict[str, Any]:
        """What the supervisors are told: what differs from the defaults of `Supervision`."""
        changed = {f.name: getattr(self, f.name) for f in fields(Processes)}
        changed = {
            f.name: changed[f.name]
            for f in fields(Processes)
            if changed[f.name] != f.default and f.name != "max_restarts"  # JobSet's
        }
        if self.platform is None and not self.pathways:  # which says it by JAX_PLATFORMS
            platform = "tpu" if self.accelerator_type else "gpu" if self.gpus_per_node else "cpu"
            changed["platform"] = platform
        return {**changed, "start_timeout": self.start_timeout}
