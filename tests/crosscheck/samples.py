"""Sample reports, made without a run, for tests of the report's appearance."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyreactant import Mesh, NamedSharding
from pyreactant.arrays.sharding import plain_index
from pyreactant.check.bounds.verdict import Verdict
from pyreactant.check.programs import CASES
from pyreactant.check.records.verdict import ArrayPlan, BlockVerdict, Difference, Kind, Pair
from pyreactant.check.report.data import Outcome, ProgramRow, Result, RunFacts
from pyreactant.check.report.report import Report
from pyreactant.check.report.results import on_all

MESH = Mesh((2, 4), ("x", "y"))


def blocks(plan: ArrayPlan, ratio: float, wrong: Sequence[int] = ()) -> tuple[BlockVerdict, ...]:
    """Verdicts on the blocks of an output; the blocks of the given devices are wrong."""
    found = []
    for device, index in plan.sharding.devices_indices_map(plan.shape).items():
        good: dict[str, Any] = {
            "array": "output 0",
            "device": device,
            "process": device // 4,
            "index": plain_index(index),
            "expected_index": plain_index(index),
        }
        part = ratio * (1 + device) / 9
        if device not in wrong:
            values = Verdict("oracle", error=1e-6 * part, allowed=1e-6, ratio=part, ulps=3.0)
            found.append(BlockVerdict(**good, values=values))
            continue
        worst = {"element": [3, 130], "got": 1.25, "expected": 7.5, "allowed": 1e-6}
        found.append(
            BlockVerdict(
                **good,
                values=Verdict(
                    "oracle",
                    error=6.25,
                    allowed=1e-6,
                    ratio=6.25e6,
                    ulps=9e6,
                    error_squares=0.49,
                    value_squares=1.0,
                    wrong=4000,
                    worst=worst,
                    places=np.array([[128] * 16, *([0] * 15 + [64] for _ in range(15))]),
                ),
                kinds=(Kind.TRANSPOSED,),
                text="a transposed block",
            )
        )
    return tuple(found)


def row(
    name: str, runtimes: Sequence[str], number: int = 1, wrong: Sequence[int] = ()
) -> ProgramRow:
    """One program; `wrong` lists devices whose blocks are wrong on the last runtime."""
    plan = ArrayPlan((512, 512), "float32", NamedSharding(MESH, ("x", "y")))
    results = []
    for place, runtime in enumerate(runtimes):
        bad = wrong if place == len(runtimes) - 1 else ()
        ratio = 0.0 if number % 5 == 0 else 0.9 / 3**number * (place + 1)
        found = blocks(plan, ratio, bad)
        text = f"{name} on {runtime}: transposed block: process 0, device {bad[0]}" if bad else ""
        results.append(
            Result(
                runtime,
                Outcome.WRONG if bad else Outcome.RIGHT,
                "transposed block" if bad else "",
                text,
                0,
                values=on_all(found),
                seconds={
                    "place": 0.0112,
                    "compile": 0.2 + place,
                    "call": 1e-3 * 1.7**number,
                    "check": 0.1,
                    "further sets": 0.266,
                },
                blocks=found,
            )
        )
    pairs = tuple(
        Pair(
            runtimes[0],
            other,
            Difference.TRANSPOSED if wrong else Difference.NONE,
            "DIFFER" if wrong else "agree",
            Verdict(
                error=1e-6,
                allowed=2e-6,
                ulps=2.0,
                error_squares=1e-14,
                value_squares=1.0,
                wrong=int(bool(wrong)),
            ),
            8,
        )
        for other in runtimes[1:]
    )
    problem = {
        "size": 512,
        "dtype": "float32",
        "seed": 0,
        "mesh": MESH.to_dict(),
        "in_specs": [["x", "y"], ["x", "y"]],
        "out_specs": [["x", "y"]],
    }
    plans = {"input 0": plan, "input 1": plan, "output 0": plan}
    return ProgramRow(
        program=name,
        summary="what it computes",
        exact=number % 5 == 0,
        problem=problem,
        precision="highest",
        plans=plans,
        results=tuple(results),
        pairs=pairs,
    )


def report(
    names: Sequence[str] = (*CASES,),
    runtimes: Sequence[str] = ("jax", "stand-in"),
    wrong: Sequence[int] = (),
) -> Report:
    """A report on these programs; with `wrong`, those devices are wrong in the first program."""
    rows = [
        row(name, runtimes, number, wrong if number == 1 else ())
        for number, name in enumerate(names, 1)
    ]
    devices = [
        {"position": i, "process_index": i // 4, "id": i, "platform": "cpu", "kind": "cpu"}
        for i in range(8)
    ]
    ended = {
        "cause": "done",
        "exit_code": 0,
        "summary": "all processes ended well",
        "seconds": 12.5,
        "started": "2026-01-02T03:04:05+00:00",
        "command": ["-m", "x"],
        "git": {"commit": "0123456789abcdef", "changed_files": ["a.py", "b.py"]},
    }
    runs = [
        RunFacts(
            name,
            name,
            "cpu",
            f"/out/{name}",
            2,
            ("one", "two"),
            tuple(devices),
            {"python": "3.12.1", "jax": "0.12.0", "XLA_FLAGS": "--xla_a=<1>"},
            ended,
            {"0": "a log with <tags> & signs\nsecond line", "1": ""},
        )
        for name in runtimes
    ]
    return Report(
        tuple(rows), tuple(runs), {"reactant": "run: pyreactant setup"}, "2026-01-02T03:04:06+00:00"
    )
