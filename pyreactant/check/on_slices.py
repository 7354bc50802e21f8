"""The check of the sharded matmul that `pyreactant tpu run` runs without a program."""

from collections.abc import Sequence
from pathlib import Path

from ..base.document.page import can_render
from ..runs.queued.job import Job
from .request import CheckRequest, write_request
from .run import compare


class SlicesCheck:
    """A `runs.queued.job.Check`."""

    def write_request(self, job: Job, file: Path) -> None:
        """Write the cross-check's request for the sharded matmul."""
        write_request(CheckRequest(("matmul",), size=job.size), file)

    def judge(self, runs: Sequence[Path], folder: Path) -> tuple[int, str]:
        """Compare the runtimes, and write crosscheck.json and the page."""
        report = compare(*runs)
        report.to_json(folder / "crosscheck.json")
        if can_render():  # crosscheck.json has the same content as the page
            report.to_html(folder / "crosscheck.html")
        return report.exit_code, report.verdict
