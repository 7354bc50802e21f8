"""The cross-check catches mutants and names their kinds.

Each program is tested with a third of the mutants, and the programs of `ALL` with all of them.
`python -m benchmarks.crosscheck --only mutants` makes the whole table, on several meshes.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.check.execute import run_case
from pyreactant.check.faults.diagnose import diagnose
from pyreactant.check.oracle import oracle
from pyreactant.check.programs import CASES, find_case
from pyreactant.check.records.verdict import ArrayPlan, BlockVerdict, Kind
from tests import harness

from .mutants import mutants
from .trials import attempts, diagnosis_of

FLAT = pr.Mesh((2, 4), ("x", "y"))
CUBE = pr.Mesh((2, 2, 2), ("x", "y", "z"))  # square blocks of square arrays
ALL = ("matmul", "row_sum", "transpose", "softmax", "gather")
TILED = ("softmax", "heat", "fft2", "full_sum", "cumsum", "perceptron")
"""Checked as if they were large: in many tiles, and with inputs that are read in pieces."""

SIZES = {"batched_matmul": 16, "attention": 16, "perceptron_gradient": 16, "sgd_step": 16}


@pytest.mark.slow
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", CASES)
def test_mutants_are_caught_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = find_case(name)
    if name in TILED:
        monkeypatch.setattr(oracle, "TILE_BYTES", 2**14)
        monkeypatch.setattr(oracle, "STREAM_BYTES", 2**15)
    mesh = CUBE if name in ("matmul", "gram", "row_sum") else FLAT
    healthy = run_case(case, size=SIZES.get(name, 32), mesh=mesh, calls=1)
    found = diagnosis_of(healthy)
    assert found.passed, found.text
    number = list(CASES).index(name)
    chosen = mutants() if name in ALL else mutants()[number % 3 :: 3]
    tried = list(attempts(case, healthy, chosen))
    wrong = [f"{t.mutant} -> {t.diagnosis.kind}: {t.diagnosis.text}" for t in tried if not t.right]
    assert not wrong, "\n".join(wrong)
    assert len(tried) >= (15 if name in ALL else 3)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mutants_of_short_types(dtype: str) -> None:
    """Short types round most; these mutants change the sum of a softmax by a few per cent."""
    case = find_case("softmax")
    chosen = [mutant for mutant in mutants() if mutant.kind == Kind.HALO]
    for size, layout in ((16, 0), (32, 1)):
        healthy = run_case(
            case,
            size=size,
            dtype=dtype,
            mesh=FLAT,
            layout=case.layouts(FLAT, size)[layout],
            calls=1,
        )
        found = diagnosis_of(healthy)
        assert found.passed, found.text
        tried = list(attempts(case, healthy, chosen))
        assert [t.mutant for t in tried if t.right] == [mutant.name for mutant in chosen], size


ACROSS = [
    "mesh axes swapped, and says so",
    "column-major devices",
    "right values on the wrong devices",
    "fewer devices",
    "reduction dropped",
    "bfloat16 results",
    "block of NaN",
    "stale result",
    "one unit in the last place",
    "odd values, on process 1 only",
    "bfloat16 results, on process 1 only",
]


@pytest.mark.slow
def test_mutants_of_two_processes(tmp_path: Path) -> None:
    """Two real processes; their verdicts are combined as in a cross-check."""
    asked = {"programs": ["matmul", "softmax"], "size": 32, "mutants": ACROSS}
    argv = [sys.executable, "-m", "tests.crosscheck.members", str(tmp_path), json.dumps(asked)]
    environments = harness.run_environments(2, 4)
    finished = harness.spawn([argv] * 2, environments, tmp_path, timeout=200)
    harness.check_all_passed(finished)
    members = [json.loads((tmp_path / f"verdicts-{p}.json").read_text()) for p in range(2)]
    tried = set()
    for records in zip(*members, strict=True):
        first = records[0]
        found = diagnose(
            [BlockVerdict.from_dict(v) for record in records for v in record["verdicts"]],
            {name: ArrayPlan.from_dict(plan) for name, plan in first["plans"].items()},
            program=first["program"],
            runtime="jax",
            num_processes=2,
        )
        if first["kind"] is None:
            assert found.passed, found.text
        elif any(record["changed"] for record in records):
            tried.add(first["mutant"])
            assert Kind(first["kind"]) in (found.kind, *found.also), _told(first, found.text)
            on_one = "process 1 only" in first["mutant"]
            assert found.processes == ((1,) if on_one else (0, 1)), found.text
            alone = re.search("no other process has|only process 1|of no other", found.text)
            assert (alone is not None) == on_one, found.text
    assert tried == {*ACROSS} - {"one unit in the last place"}


def _told(record: dict[str, Any], text: str) -> str:
    return f"{record['mutant']} on {record['program']} -> {text}"
