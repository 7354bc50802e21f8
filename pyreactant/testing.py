"""For test suites of your own: does a program do the same on every runtime?"""

from collections.abc import Sequence
from typing import Any

from ._core.program import Program
from .crosscheck._report.report import Report
from .crosscheck._run import crosscheck


def assert_crosscheck(program: str | Program | Sequence[str | Program], **options: Any) -> Report:
    """Cross-check programs, and fail the test where something is wrong.

    Args:
        program: As for `pyreactant.crosscheck`.
        **options: As for `pyreactant.crosscheck`; with ``out=tmp_path`` what the runs leave
            stays for looking at.

    Returns:
        The report, for further assertions.

    Raises:
        AssertionError: A program is wrong, the runtimes differ, or a run broke; its text is the
            report.
        RequirementError: A runtime that was asked for is not here.
    """
    report = crosscheck(program, **options)
    if not report.passed:
        raise AssertionError(f"\n{report.to_text(width=100)}")
    return report
