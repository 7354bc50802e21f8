"""A job that another shell has submitted, also on another machine, gets a record here."""

import base64
import io
import json
import tarfile
import time

from ....base.errors import InvalidArgumentError
from ....base.files import unpack
from ... import record as _record
from ...record import Record
from . import manifest
from .client import Cluster, cluster_at
from .states import Object


def adopt(name: str, context: str | None = None, namespace: str | None = None) -> Record:
    """The record of a job that the cluster has; it is made if there is none.

    Args:
        name: Its id, or the end of it, or the name of its JobSet.
        context: Context of the kubeconfig; None for the current one.
        namespace: Namespace; None for that of the context.

    Raises:
        InvalidArgumentError: There is no such job, or there are several.
        RequirementError: The cluster does not answer, or the user may not read the job's Secret.
    """
    cluster = cluster_at(context, namespace)
    jobset = _find(cluster, name)
    metadata = jobset["metadata"]
    own = metadata["labels"][manifest.LABEL]
    if (_record.jobs_folder() / own).exists():
        return _record.load(_record.jobs_folder().resolve() / own)
    where = {"context": cluster.context, "namespace": cluster.namespace}
    given = {"context": context, "namespace": namespace}
    try:
        told = json.loads(metadata["annotations"][manifest.NOTED])
        settings = {k: v for k, v in told["settings"].items() if k not in where}
        settings |= {key: value for key, value in given.items() if value is not None}
        spec = {key: told["spec"][key] for key in manifest.TOLD if key in told["spec"]}
        what, created = str(told["what"]), float(told["created"]) or time.time()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgumentError(
            f"the annotation {manifest.NOTED} of the JobSet {metadata['name']} is not one of this "
            f"version of pyreactant ({type(error).__name__}: {error})"
        ) from None
    secret = cluster.get("secrets", metadata["name"])
    record = _record.create(what, "kubernetes", settings, adopted=(own, created), **spec)
    try:
        if secret is not None:
            data = io.BytesIO(base64.b64decode(secret["data"]["work.tar.bz2"]))
            with _record.written(record.folder), tarfile.open(fileobj=data) as archive:
                unpack(archive, record.folder)
                (record.work / "env.json").unlink(missing_ok=True)  # the user's variables
        record.write_handle({**where, "started": True})
    finally:
        _record.release(record)
    return record


def _find(cluster: Cluster, name: str) -> Object:
    known = {}
    for jobset in cluster.listed("jobsets", manifest.LABEL)[0]:
        if manifest.NOTED in jobset["metadata"].get("annotations", {}):
            known[jobset["metadata"]["labels"][manifest.LABEL]] = jobset
    names = {own: jobset["metadata"]["name"] for own, jobset in known.items()}
    found = [own for own in known if own.endswith(name) or names[own] == name]
    if len(found) == 1:
        return known[found[0]]
    there = ", ".join(sorted(found or known)) or "none"
    raise InvalidArgumentError(
        f"NAME must be the id of one job in namespace {cluster.namespace} of {cluster}, or the "
        f"end of it, got {name!r}; there are: {there}"
    )
