"""The JobSet of a job that uses its slices through Pathways: Google's generator writes it.

Its head has the resource manager, the proxy, and our one process; the other pods are the workers,
which have the chips. Source: pathwaysutils 0.1.13, ``pathwaysutils/experimental/gke/jobset.py``.
"""

from collections.abc import Iterable
from typing import Any

from ....base.errors import InvalidArgumentError, RequirementError, argument
from ....base.slices.generations import shape_text
from .settings import PodSettings

_ON_HEAD = ("activeDeadlineSeconds", "podFailurePolicy")
"""What the head's Job has of ours."""
_ON_WORKERS = (
    "automountServiceAccountToken",
    "nodeSelector",
    "priorityClassName",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
)
"""What the workers' pods have of ours."""


def jobset(
    target: PodSettings, folder: str, variables: Iterable[str], ours: dict[str, Any]
) -> dict[str, Any]:
    """The JobSet of the generator, with what is ours.

    Args:
        target: The settings.
        folder: The folder of Cloud Storage that is the job's own.
        variables: The names of the user's variables.
        ours: The JobSet of the same job without Pathways.

    Raises:
        RequirementError: The generator is not installed.
        InvalidArgumentError: It knows no such slices, or sets one of the variables itself.
    """
    try:
        from pathwaysutils.experimental.gke.jobset import PathwaysJobSet
    except ImportError as error:
        raise RequirementError(
            f"{argument('pathways')} needs the package pathwaysutils, which cannot be imported "
            f"({error})",
            "python -m pip install 'pyreactant[pathways]'",
            advice="install it with",
        ) from None
    slices = target.topology
    assert slices is not None
    job = ours["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    own = pod["containers"][0]
    try:
        made = PathwaysJobSet(
            ours["metadata"]["name"],
            target.namespace or "",
            f"{folder}/pathways",
            str(slices.machine_type),
            shape_text(slices.shape),
            slices.num_slices,
        )
    except ValueError as error:
        raise InvalidArgumentError(
            f"{argument('accelerator_type')} must be slices that Pathways knows, got "
            f"{target.accelerator_type} ({error})"
        ) from None
    whole = made.add_user_workload(own["image"], own["command"], own["name"]).to_dict()
    spec = whole["spec"]
    head, workers = (one["template"]["spec"] for one in spec["replicatedJobs"])
    (theirs,) = head["template"]["spec"]["containers"]
    for name in {one["name"] for one in theirs["env"]}.intersection(variables):
        raise InvalidArgumentError(
            f"{argument('env')} must not name {name}, by which the program finds Pathways; leave "
            "it out"
        )
    main = {**theirs, **own, "env": [*theirs["env"], *own["env"]]}
    del main["resources"]  # the chips, which the workers have
    head |= {key: job[key] for key in _ON_HEAD if key in job}
    head["template"] = {
        "metadata": _merged(head["template"]["metadata"], job["template"]["metadata"]),
        "spec": {**pod, **head["template"]["spec"], "containers": [main]},
    }
    labels = {"labels": job["template"]["metadata"]["labels"]}
    workers["template"]["metadata"] = _merged(workers["template"]["metadata"], labels)
    workers["template"]["spec"] |= {key: pod[key] for key in _ON_WORKERS if key in pod}
    policy = {**spec["failurePolicy"], **ours["spec"]["failurePolicy"]}
    ttl = ours["spec"]["ttlSecondsAfterFinished"]
    return {
        **ours,
        "spec": {**spec, "failurePolicy": policy, "ttlSecondsAfterFinished": ttl},
    }


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Labels and annotations of both."""
    return {key: {**first.get(key, {}), **second.get(key, {})} for key in {**first, **second}}
