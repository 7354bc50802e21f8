"""What the controllers of Job and JobSet make of pods that failed, as functions of plain data.

Sources: Kubernetes' ``pkg/controller/job/pod_failure_policy.go`` (matchPodFailurePolicy), JobSet's
``pkg/controllers/failure_policy.go`` (findFirstFailedPolicyRuleAndJob, ruleIsApplicable) at
kubernetes-sigs/jobset 08dfbdfd. test_rules.py has the cases of their tests.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pod:
    """A pod that has ended."""

    name: str
    code: int
    disrupted: bool = False


@dataclass(frozen=True)
class Failure:
    """The condition "Failed" of a Job, and when it came."""

    reason: str
    message: str
    at: float = 0.0


def job_failure(job: Mapping[str, Any], pods: Sequence[Pod], at: float = 0.0) -> Failure | None:
    """How a Job with backoffLimit 0 failed, by its pods in the order of their ends; None if not."""
    failed = [pod for pod in pods if pod.code or pod.disrupted]
    for pod in failed:
        for index, rule in enumerate(job.get("podFailurePolicy", {}).get("rules", ())):
            said = _matches(rule, pod)
            if said and rule["action"] == "FailJob":
                message = f"{said} matching FailJob rule at index {index}"
                return Failure("PodFailurePolicy", message, at)
            if said:
                break
    if failed:
        assert job["backoffLimit"] == 0
        return Failure("BackoffLimitExceeded", "Job has reached the specified backoff limit", at)
    return None


def _matches(rule: Mapping[str, Any], pod: Pod) -> str:
    if codes := rule.get("onExitCodes"):
        inside = pod.code in codes["values"]
        if pod.code and inside == (codes["operator"] == "In"):
            container = codes.get("containerName", "main")
            return f"Container {container} for pod {pod.name} failed with exit code {pod.code}"
        return ""
    for condition in rule["onPodConditions"]:
        if pod.disrupted and condition == {"type": "DisruptionTarget", "status": "True"}:
            return f"Pod {pod.name} has condition DisruptionTarget"
    return ""


def action(policy: Mapping[str, Any] | None, failed: Mapping[str, Failure]) -> str:
    """What JobSet does when Jobs have failed: the first rule that any of them matches."""
    if policy is None:
        return "FailJobSet"
    for rule in policy.get("rules", ()):
        if any(_applies(rule, failure) for failure in failed.values()):
            return str(rule["action"])
    return "RestartJobSet"


def _applies(rule: Mapping[str, Any], failure: Failure) -> bool:
    reasons = rule.get("onJobFailureReasons", ())
    patterns = rule.get("onJobFailureMessagePatterns", ())
    return (not reasons or failure.reason in reasons) and (
        not patterns or any(re.search(pattern, failure.message) for pattern in patterns)
    )


def restarts(policy: Mapping[str, Any] | None, failed: Mapping[str, Failure], counted: int) -> str:
    """`action`, but "FailJobSet" where the restarts that count are used up."""
    chosen = action(policy, failed)
    if chosen == "RestartJobSet" and counted >= (policy or {}).get("maxRestarts", 0):
        return "FailJobSet"
    return chosen
