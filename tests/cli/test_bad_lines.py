"""300 bad command lines end with a message and a documented exit code, and leave nothing behind."""

import os
from pathlib import Path

from tests.cli.bad_lines import CODES, Line, broken, lines, sweep
from tests.cli.tree import TREE

COUNT = int(os.environ.get("PYREACTANT_TEST_BAD_LINES") or 300)

# Lines that once broke a law.
MENDED = [
    "run -m -- missing.py",
    "run -n 1000 --platform quantum -- ls",
    "run -n 99999999999 -- ls",
    "run --grace inf -- ls",
    f"jobs attach {'a' * 300}",
    f"jobs submit -- {'a' * 5000}",
    f"compare {'a' * 5000}",
    "preflight --topology v6e-1 --stablehlo /dev/full",
    "jobs submit --requirements /dev/zero -- -m this",
    "preflight softmax --topology v6e-1 --shape ²x2",
    "plan jax.nn:softmax --topology v6e-1 --shape ²x2",
]


def test_bad_lines(tmp_path: Path) -> None:
    assert sweep(COUNT, 1, tmp_path) == []


def test_what_was_mended(tmp_path: Path) -> None:
    found = [
        broken(Line(tuple(text.split())), tmp_path / str(number))
        for number, text in enumerate(MENDED)
    ]
    assert not any(found), found


def test_the_codes_are_those_that_help_lists() -> None:
    for code in CODES:
        assert f" {code} " in TREE.epilog


def test_a_seed_gives_the_same_lines() -> None:
    assert [*lines(50, 3)] == [*lines(50, 3)]
    assert [*lines(50, 3)] != [*lines(50, 4)]
