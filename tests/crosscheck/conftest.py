"""Two finished runs of a cross-check, made once."""

from pathlib import Path

import pytest

from tests.crosscheck.runs import PROGRAMS, STAND_IN, second_runtime, small


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cross-check of `PROGRAMS` on jax and on the stand-in."""
    folder = tmp_path_factory.mktemp("runs")
    with second_runtime(tmp_path_factory.mktemp("site")):
        report = small(PROGRAMS, backends=["jax", STAND_IN], size=16, out=folder)
    assert report.passed, report.to_text()
    return folder
