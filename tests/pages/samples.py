"""One page of each report, made without a run. Names and logs are hostile or long."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyreactant import Mesh
from pyreactant.base.slices.topology import topology
from pyreactant.fit.hlo.collective import Collective
from pyreactant.fit.layouts.layouts import Layout
from pyreactant.fit.plan.candidate import Candidate
from pyreactant.fit.plan.report import Plan
from pyreactant.fit.preflight.diff import Difference
from pyreactant.fit.preflight.report import DeviceBytes, Operand, Preflight, Roofline
from pyreactant.process.events import Exited, Raised
from pyreactant.runs.supervisor import RunReport
from pyreactant.runs.supervisor.cause import find_failure
from pyreactant.runs.supervisor.report import first_error, process_row
from pyreactant.runs.supervisor.state import ProcessState
from tests.crosscheck import samples as crosschecks

HOSTILE = "<script>alert(1)</script>"
NAMES = ["matmul", "softmax", "pkg.my_module:a_program_with_a_long_name", "heat", HOSTILE]
MESH = Mesh((4, 4), ("x", "y"))
GIB = 2**30


def preflight(program: str = HOSTILE) -> Preflight:
    """A program that fits, with a collective in a loop and one between slices."""
    collectives = (
        Collective("all-gather", "bf16[4096,16384]", 2**27, axes=("y",), groups=((0, 1), (2, 3))),
        Collective("all-reduce", "f32[4096,4096]", 2**26, times=None, axes=("x",), whole=False),
        Collective("send", "f32[64]", 256, across_slices=True, note="ALL_GATHER"),
    )
    operand = Operand((16384, 16384), "bfloat16", "x,y", (4096, 4096))
    return Preflight(
        program=program,
        source="jax",
        topology=topology("v6e-16"),
        mesh=MESH,
        arguments=(operand, operand),
        outputs=(replace(operand, in_module="tensor<16384x16384xbf16>"),),
        fits=True,
        refusal="",
        bytes_per_device=DeviceBytes(6 * GIB, 4 * GIB, 9 * GIB, GIB // 8, 2 * GIB),
        collectives=collectives,
        seconds=1.2e-3,
        flops=5.5e11,
        bytes_accessed=3e9,
        roofline=Roofline(6e-4, 4e-4, 2e-4, None, "bfloat16"),
        notes=("collectives in loops of unknown length count once",),
        versions={"jax": "0.10.2", "libtpu": "0.0.42.1"},
        compile_seconds=4.25,
        compiler_bytes=GIB,
        cached=False,
        hlo="",
    )


def refused() -> Preflight:
    """A program that the compiler refuses."""
    return replace(
        preflight(),
        fits=False,
        outputs=(),
        collectives=(),
        bytes_per_device=None,
        roofline=None,
        refusal="RESOURCE_EXHAUSTED: Used 96.00G of 31.24G hbm.\nTotal hbm usage >= 96G",
        alternatives=("--spec x,None fits: 12 GiB", "v6e-64 would hold it"),
    )


def plan(program: str = "matmul") -> Plan:
    """Two layouts and the default one."""
    specs = (("x", None), (None, "y"))
    layout = Layout(MESH, specs, ("x", "y"), 1e9)
    candidates = [
        Candidate(
            layout=layout,
            seconds=seconds,
            xla_seconds=None if seconds > 2e-3 else seconds / 2,
            link_seconds=seconds,
            sent_bytes=3e8,
            bytes_per_device=int(seconds * 1e13),
        )
        for seconds in (1.1e-3, 2.4e-3, 3.2e-3)
    ]
    return Plan(
        program=program,
        shapes=((16384, 16384), (16384, 16384)),
        dtype="bfloat16",
        precision=None,
        topology=topology("v6e-16"),
        platform="tpu",
        devices=16,
        hbm_bytes=31 * GIB,
        candidates=tuple(candidates[:2]),
        reference=replace(candidates[2], reference=True),
        considered=120,
        too_large=3,
        interrupted=False,
        peak_bytes=None,
        at_once=1,
    )


def failed_plan() -> Plan:
    """A program of which no layout fits."""
    layout = Layout(MESH, (("x", None),), None, 1e12)
    failed = Candidate(layout=layout, fits=False, trouble="it needs 96 GiB of 31 GiB")
    return replace(
        plan(HOSTILE), shapes=((8, 8),), candidates=(failed,), reference=None, interrupted=True
    )


PHASES = ("joined", "spawned", "started", "initializing", "initialized")


def run(count: int = 6, culprit: int = 4) -> RunReport:
    """A run in which one process raises, and the supervisor ends the others."""
    states = [ProcessState(i, f"host{i // 2}", log=f"/logs/{i}.log") for i in range(count)]
    for state in states:
        for step, phase in enumerate(PHASES):
            state.enter(phase, 100.0 + step * (1 + state.index % 4 / 4))
        state.collectives = 120
        if state.index == culprit:
            state.apply(Raised("ValueError", HOSTILE, f"Traceback:\n  {HOSTILE}\n"), 110.0)
        ended = state.index != culprit
        ends = Exited(-15 if ended else 1, "printed\n", by_supervisor=ended)
        state.apply(ends, 110.0 + (0.5 if state.index == culprit else 2.0))
    failure = find_failure(states, 112.5)
    assert failure is not None
    error = {**first_error(failure, states, 112.5), "time": "2026-01-02T03:04:15+00:00"}
    rows = [process_row(state, 100.0) for state in states]
    for row in rows:
        row["error"] = row["error"] and {**row["error"], "time": ""}
    return RunReport(
        failure.cause,
        failure.exit_code,
        failure.summary,
        error,
        rows,
        12.5,
        "2026-01-02T03:04:05+00:00",
        "/out/run",
        ["train.py", "--name", HOSTILE],
        restarts=[{"cause": "user", "summary": "it broke before", "at": "2026-01-02"}],
        facts={"python": "3.12.1", "jax": "0.12.0"},
        git={"commit": "0123456789abcdef", "changed_files": ["a.py"]},
        mutual_tls="on",
        waits=waits(),
    )


def waits() -> dict[str, Any]:
    """Who waited for whom, in a run with a profile."""
    found = {"collective": HOSTILE, "program": f"jit_{HOSTILE}", "times": 5, "last_times": 4}
    found |= {"mean_seconds": 0.02, "worst_seconds": 0.05, "waiting": 0, "last": 3}
    processes = [[0, 0.0, 0.06], [1, 0.01, 0.055], [2, 0.02, 0.06], [3, 0.05, 0.06]]
    drawn = {"collective": HOSTILE, "program": "jit_f", "processes": processes, "left_out": 0}
    return {"rows": [{**found, "last_host": HOSTILE}], "drawn": drawn}


def good_run() -> RunReport:
    """A run that ended well, of a program without a runtime."""
    state = ProcessState(0, HOSTILE)
    for at, phase in enumerate(("joined", "spawned", "started", "ending")):
        state.enter(phase, 100.0 + at)
    state.apply(Exited(0, ""), 104.0)
    rows = [process_row(state, 100.0)]
    return RunReport(
        "done", 0, "all processes ended well", None, rows, 4.5, "2026-01-02", "/out", ["./tool"]
    )


REPORTS: dict[str, Callable[[], Any]] = {
    "crosscheck": lambda: crosschecks.report(NAMES, wrong=[5, 6]),
    "crosscheck-right": lambda: crosschecks.report(NAMES),
    "preflight": preflight,
    "refused": refused,
    "difference": lambda: Difference(preflight(), preflight("other")),
    "plan": lambda: replace(plan(), program=HOSTILE),
    "failed-plan": failed_plan,
    "run": run,
    "large-run": lambda: run(1000, 500),
    "good-run": good_run,
}


def new_html(name: str) -> str:
    """The page of a report; the same text at each call."""
    text: str = REPORTS[name]().to_html()
    return text


html_of = functools.cache(new_html)
"""As `new_html`, made at the first call: each worker of the tests imports this module."""
