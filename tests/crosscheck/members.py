"""Each process of a run in the tests of mutants: try the mutants and write the verdicts."""

import json
import sys
from pathlib import Path

import pyreactant as pr
from pyreactant.check.check import check_all
from pyreactant.check.execute import CaseRun, run_case
from pyreactant.check.programs import find_case
from pyreactant.check.records.verdict import Kind

from .broken import Mutant, NotApplicableError, broken
from .changes import all_blocks, odd_values, short_values
from .mutants import Altered, OnlyOn, mutants
from .trials import changed

ON_PROCESS_1 = [
    OnlyOn(1, Altered("odd values", Kind.UNKNOWN, all_blocks(odd_values)), Kind.UNKNOWN),
    OnlyOn(
        1,
        Altered("bfloat16 results", Kind.LOWER_PRECISION, all_blocks(short_values("bfloat16"))),
        Kind.LOWER_PRECISION,
    ),
]


def chosen(names: list[str]) -> list[Mutant]:
    """Mutants by name."""
    every = {mutant.name: mutant for mutant in [*mutants(), *ON_PROCESS_1]}
    return [every[name] for name in names] if names else list(every.values())


def main() -> None:
    """Try every mutant on every program named, on a mesh of (processes, devices of each)."""
    folder, request = Path(sys.argv[1]), json.loads(sys.argv[2])
    pr.initialize()
    each = len(pr.devices()) // pr.num_processes()
    mesh = pr.Mesh((pr.num_processes(), each), ("x", "y"))
    found = []
    for program in request["programs"]:
        case = find_case(program)
        healthy = run_case(case, size=request["size"], mesh=mesh, calls=1)
        found.append(_record(program, None, healthy, False))
        for mutant in chosen(request["mutants"]):
            try:
                with broken(case, mutant):
                    run = run_case(case, size=request["size"], mesh=mesh, calls=1)
                    found.append(_record(program, mutant, run, changed(healthy, run)))
            except NotApplicableError:
                continue
    (folder / f"verdicts-{pr.process_index()}.json").write_text(json.dumps(found))
    print("program done")


def _record(program: str, mutant: Mutant | None, run: CaseRun, altered: bool) -> dict[str, object]:
    verdicts = check_all(run)
    return {
        "program": program,
        "mutant": mutant and mutant.name,
        "kind": mutant and mutant.kind and str(mutant.kind),
        "changed": altered,
        "plans": {name: plan.to_dict() for name, plan in run.plans.items()},
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }


if __name__ == "__main__":
    main()
