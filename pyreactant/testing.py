"""For the tests of your own package: a program computes the same on every runtime."""

from collections.abc import Sequence
from typing import Any

from .arrays.program import Program
from .check.report.report import Report
from .check.run import crosscheck


def assert_crosscheck(program: str | Program | Sequence[str | Program], **options: Any) -> Report:
    """Cross-check programs, and fail if something is wrong.

    Args:
        program: As for `pyreactant.crosscheck`.
        **options: As for `pyreactant.crosscheck`; ``out=tmp_path`` keeps the runs' files.

    Returns:
        The report, for further assertions.

    Raises:
        AssertionError: A program is wrong, the runtimes differ, or a run failed; the message is
            the report.
        RequirementError: A requested runtime is not available.
    """
    report = crosscheck(program, **options)
    if not report.passed:
        raise AssertionError(f"\n{report.to_text(width=100)}")
    return report
