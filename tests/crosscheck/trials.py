"""Try mutants on programs, and record which are caught and named."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

import pyreactant as pr
from pyreactant.check.check import check_all
from pyreactant.check.execute import CaseRun, run_case
from pyreactant.check.faults.diagnose import diagnose
from pyreactant.check.programs.case import Case, Layout
from pyreactant.check.records.verdict import Diagnosis, Kind

from .broken import Mutant, NotApplicableError, broken


@dataclass(frozen=True)
class Trial:
    """One mutant on one program.

    Attributes:
        mutant: Name of the mutant.
        program: Name of the program.
        dtype: Element type.
        layout: Partition specs of the arguments and outputs.
        changed: Whether the mutant had a visible effect.
        right: Whether it was caught and named correctly, or passed if it must pass.
        diagnosis: Diagnosis of the cross-check.
    """

    mutant: str
    program: str
    dtype: str
    layout: Layout
    changed: bool
    right: bool
    diagnosis: Diagnosis


def diagnosis_of(run: CaseRun) -> Diagnosis:
    """Run all checks on a run of one process."""
    verdicts = check_all(run)
    return diagnose(
        verdicts, run.plans, program=run.case.name, runtime="jax", num_processes=pr.num_processes()
    )


def attempt(case: Case, healthy: CaseRun, mutant: Mutant) -> Trial | None:
    """Try a mutant on the program of a run without a fault; None if it does not apply."""
    try:
        with broken(case, mutant):
            run = run_case(
                case,
                size=healthy.size,
                dtype=healthy.dtype,
                seed=healthy.seed,
                mesh=mesh_of(healthy),
                layout=healthy.layout,
                calls=1,
            )
            altered = changed(healthy, run)
            found = diagnosis_of(run)
    except NotApplicableError:
        return None
    if mutant.kind is None:
        # A neighbouring number is wrong only if every bit must be right.
        right = found.kind == Kind.ROUNDING if case.is_exact(healthy.dtype) else found.passed
    else:
        wanted = mutant.kind
        if wanted == Kind.LOWER_PRECISION and all(
            shard.data.size == 1
            for name in run.named("output")
            for shard in run.arrays[name].addressable_shards
        ):
            wanted = Kind.UNKNOWN  # one element shows no precision
        right = wanted == found.kind or wanted in found.also
    return Trial(mutant.name, case.name, healthy.dtype, healthy.layout, altered, right, found)


def attempts(case: Case, healthy: CaseRun, mutants: Iterable[Mutant]) -> Iterator[Trial]:
    """Try several mutants; yields trials of those that apply."""
    for mutant in mutants:
        trial = attempt(case, healthy, mutant)
        if trial is not None and (trial.changed or mutant.kind is None):
            yield trial


def mesh_of(run: CaseRun) -> pr.Mesh:
    """The mesh of a run's arrays."""
    return next(iter(run.plans.values())).sharding.mesh


def changed(healthy: CaseRun, mutated: CaseRun) -> bool:
    """Whether blocks are on other devices, or differ by more than rounding."""
    for name in healthy.named("output"):
        right = {s.device.position: s for s in healthy.arrays[name].addressable_shards}
        got = {s.device.position: s for s in mutated.arrays[name].addressable_shards}
        if right.keys() != got.keys():
            return True
        for position, shard in right.items():
            other = got[position]
            if shard.index != other.index or _differ(shard.data, other.data):
                return True
    return False


def _differ(right: np.ndarray, got: np.ndarray) -> bool:
    if right.shape != got.shape or right.dtype.kind in "biu":
        return not np.array_equal(right, got)
    wide = np.complex128 if right.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        a, b = right.astype(wide), got.astype(wide)
    if not np.isfinite(b).all():
        return True
    eps = {8: 2.0**-52, 4: 2.0**-23, 2: 2.0**-8}[right.real.dtype.itemsize]
    return bool(np.abs(a - b).max(initial=0) > 8 * eps * np.abs(a).max(initial=0))
