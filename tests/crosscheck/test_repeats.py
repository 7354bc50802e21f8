"""Calls with the same inputs are compared with each other."""

import itertools
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.runtimes.compiled import Compiled
from pyreactant.check.check import check_blocks
from pyreactant.check.execute import run_case
from pyreactant.check.faults.diagnose import diagnose
from pyreactant.check.programs import find_case
from pyreactant.check.records.verdict import Kind

pytestmark = pytest.mark.usefixtures("backend")

MESH = pr.Mesh((2, 4), ("x", "y"))


@pytest.mark.parametrize("call", [2, 3, 5])
def test_a_call_that_differs_is_named(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls 1 to 3 have the same inputs, and 4 and 5 have; one gives another last bit."""
    real, count = Compiled.__call__, itertools.count(1)

    def changed(self: Compiled, *args: Any) -> Any:
        result = real(self, *args)
        if next(count) != call:
            return result
        value = np.nextafter(result.gather(), np.float32(9))
        return pr.device_put(value, result.sharding)

    monkeypatch.setattr(Compiled, "__call__", changed)
    run = run_case(find_case("row_sum"), size=16, mesh=MESH, calls=3)
    first = 1 if call < 4 else 4
    assert {(one["call"], one["first"]) for one in run.repeats} == {(call, first)}
    assert {one["device"] for one in run.repeats} == set(range(8))
    found = diagnose(
        check_blocks(run),
        run.plans,
        program="p",
        runtime="jax",
        num_processes=1,
        repeats=run.repeats,
    )
    assert found.kind == Kind.CALLS
    assert f"call {call} gave other bits than call {first} with the same inputs" in found.text
    assert "output 0 on device 0 (process 0), and 7 more blocks differ" in found.text
