"""In which order the pods of a run end, and with which exit codes."""

import pytest

from pyreactant.runs.places.kubernetes.pod import end_of

FIRST = {"first": True, "alone": False, "asked": False}
OTHER = {"first": False, "alone": False, "asked": False}


@pytest.mark.parametrize("code", [1, 2, 3, 5])
def test_after_a_failure_process_0_alone_fails(code: int) -> None:
    """The cluster removes the logs of pods that still run when one has failed."""
    other, ends_first = end_of(code, **OTHER)
    first, ends_last = end_of(code, **FIRST)
    assert (other, first) == (0, code)
    assert ends_first < ends_last
    assert end_of(code, **{**OTHER, "alone": True})[0] == code, "nobody else may say it"


@pytest.mark.parametrize("code", [4, 6, 7])
def test_after_a_loss_a_drained_pod_comes_first(code: int) -> None:
    """Its condition tells a disruption, which is not counted, from a loss; then the report."""
    drained, soon = end_of(code, **{**OTHER, "asked": True})
    first, later = end_of(code, **FIRST)
    other, last = end_of(code, **OTHER)
    assert {drained, first, other} == {code}
    assert soon < later < last


def test_a_run_that_is_done_ends_at_once() -> None:
    assert end_of(0, **FIRST) == end_of(0, **OTHER) == (0, 0.0)
