"""Bad command lines end with a message and a documented exit code, and leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.bad_lines import CODES, lines
from tests.cli.tree import TREE
from tests.harness import REPOSITORY, environment


def test_bad_lines(tmp_path: Path) -> None:
    """Made anew, and those that once broke a law."""
    count = os.environ.get("PYREACTANT_TEST_BAD_LINES") or "60"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cli.bad_lines", count],
        env=environment(TMPDIR=str(tmp_path)),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_codes_are_those_that_help_lists() -> None:
    for code in CODES:
        assert f" {code} " in TREE.epilog


def test_a_seed_gives_the_same_lines() -> None:
    assert [*lines(50, 3)] == [*lines(50, 3)]
    assert [*lines(50, 3)] != [*lines(50, 4)]
