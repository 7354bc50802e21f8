"""When a job on Kubernetes starts again: the stand-in's rules by their sources, and our manifest's.

The cases named "upstream" are those of JobSet's failure_policy_test.go at 08dfbdfd
(TestRuleIsApplicable, TestFindFirstFailedPolicyRuleAndJob), and of Kubernetes'
pod_failure_policy_test.go (TestMatchPodFailurePolicy), in the words of this stand-in.
"""

from typing import Any

import pytest

from pyreactant.base.errors import ExitCode
from tests.kubernetes.controller import Failure, Pod, action, job_failure, restarts
from tests.kubernetes.pods import jobset_of
from tests.kubernetes.test_manifest import documents

IN = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 3]}}
NOT_IN = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [5, 6, 7]}}
IGNORE = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}
DISRUPTED = {
    "action": "FailJob",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}


@pytest.mark.parametrize(
    ("rules", "pod", "said"),
    [  # upstream
        ([IN], Pod("p", 2), "Container main for pod p failed with exit code 2 matching FailJob"),
        ([IN], Pod("p", 5), "specified backoff limit"),
        ([NOT_IN], Pod("p", 5), "specified backoff limit"),
        ([NOT_IN], Pod("p", 11), "failed with exit code 11 matching FailJob rule at index 0"),
        ([IGNORE, IN], Pod("p", 1), "specified backoff limit"),
        ([IN, DISRUPTED], Pod("p", 5, True), "has condition DisruptionTarget matching FailJob"),
        ([DISRUPTED, IN], Pod("p", 2, True), "Pod p has condition DisruptionTarget matching"),
        ([IN, DISRUPTED], Pod("p", 2, True), "failed with exit code 2 matching FailJob rule at"),
    ],
)
def test_a_pod_fails_its_job(rules: list[Any], pod: Pod, said: str) -> None:
    failure = job_failure({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}}, [pod])
    assert failure is not None
    assert said in failure.message


def test_a_job_whose_pods_end_well_has_not_failed() -> None:
    assert job_failure({"backoffLimit": 0}, [Pod("p", 0), Pod("q", 0)]) is None


FAILED = Failure("PodFailurePolicy", "... matching FailJob rule at index 1")
LIMIT = Failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")


@pytest.mark.parametrize(
    ("rules", "failed", "expected"),
    [  # upstream
        (None, [FAILED], "FailJobSet"),
        ([], [FAILED], "RestartJobSet"),
        ([{"action": "FailJobSet"}], [LIMIT], "FailJobSet"),
        ([{"action": "FailJobSet", "onJobFailureReasons": ["x"]}], [LIMIT], "RestartJobSet"),
        (
            [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["index 1$"]}],
            [LIMIT, FAILED],
            "FailJobSet",
        ),
        (
            [
                {"action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
                {"action": "RestartJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
            ],
            [FAILED, LIMIT],
            "FailJobSet",
        ),
    ],
)
def test_the_first_rule_that_any_job_matches(
    rules: list[Any] | None, failed: list[Failure], expected: str
) -> None:
    policy = None if rules is None else {"maxRestarts": 3, "rules": rules}
    assert action(policy, dict(zip("ab", failed, strict=False))) == expected


JOBSET = jobset_of(documents("two-slices"))
POLICY = JOBSET["spec"]["failurePolicy"]
JOB = JOBSET["spec"]["replicatedJobs"][0]["template"]["spec"]
IGNORED = "RestartJobSetAndIgnoreMaxRestarts"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        *(([Pod("p", code)], "FailJobSet") for code in (1, 2, 3, 5)),
        *(([Pod("p", code)], "RestartJobSet") for code in (4, 6, 7)),
        *(([Pod("p", code)], "RestartJobSet") for code in (130, 137, 139, 143)),
        ([Pod("p", 6, disrupted=True)], IGNORED),
        ([Pod("p", 137, disrupted=True)], IGNORED),
        ([Pod("p", 0), Pod("q", 1)], "FailJobSet"),
        # Inside a Job the first pod that ended decides.
        ([Pod("p", 6, disrupted=True), Pod("q", 6)], IGNORED),
        ([Pod("q", 6), Pod("p", 6, disrupted=True)], "RestartJobSet"),
    ],
)
def test_what_becomes_of_our_jobset(pods: list[Pod], expected: str) -> None:
    failure = job_failure(JOB, pods)
    assert failure is not None
    assert action(POLICY, {"job": failure}) == expected


def test_a_disruption_counts_for_all_slices_and_a_failure_of_the_program_before_it() -> None:
    ends = {"lost": Pod("p", 6), "disrupted": Pod("q", 6, disrupted=True), "failed": Pod("r", 1)}
    failed: dict[str, Failure] = {}
    chosen = []
    for job, pod in ends.items():
        failure = job_failure(JOB, [pod])
        assert failure is not None
        failed[job] = failure
        chosen.append(action(POLICY, failed))
    assert chosen == ["RestartJobSet", IGNORED, "FailJobSet"]


def test_the_end_of_its_lifetime_ends_it() -> None:
    over = Failure("DeadlineExceeded", "Job was active longer than specified deadline")
    assert action(POLICY, {"job": over}) == "FailJobSet"


def test_only_restarts_after_a_loss_count() -> None:
    lost, disrupted = (job_failure(JOB, [Pod("p", 6, by)]) for by in (False, True))
    assert lost is not None
    assert disrupted is not None
    assert [restarts(POLICY, {"job": lost}, n) for n in (4, 5)] == ["RestartJobSet", "FailJobSet"]
    assert restarts(POLICY, {"job": disrupted}, 5) == IGNORED


def test_every_exit_code_of_a_run_has_a_rule() -> None:
    """A new code must be put into one of them; the others are of the command line alone."""
    rules = JOB["podFailurePolicy"]["rules"][1:]
    listed = {code for rule in rules for code in rule["onExitCodes"]["values"]}
    of_commands = {ExitCode.DONE, ExitCode.CLOUD, ExitCode.INTERRUPTED, ExitCode.UNREAD}
    assert listed == {*ExitCode} - of_commands
