"""Run a program on its further sets of inputs, and in further layouts and element types."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from .._core.mesh import Mesh
from .._core.text import spec_text
from .._runtimes.collective import total
from .._runtimes.runtime import current
from ..programs._case import Case
from ._check import check_blocks, check_inputs
from ._execute import CaseRun, run_again, run_case
from ._inputs import ORDINARY, InputSet, input_sets
from ._records.records import WHERE
from ._records.sets import SetRecord
from ._records.verdict import BlockVerdict
from ._request import Request
from ._variants import Variant


def check_all(run: CaseRun) -> list[BlockVerdict]:
    """The verdicts on all blocks of this process's devices. Collective."""
    return [block for array in (*check_inputs(run), *check_blocks(run)) for block in array]


def further_sets(
    request: Request,
    run: CaseRun,
    blocks: Sequence[BlockVerdict],
    mesh: Mesh,
    chosen: Sequence[Variant],
) -> Iterator[SetRecord]:
    """Run and check everything beyond the ordinary inputs of the first variant. Collective.

    Args:
        request: What to run.
        run: The run on ordinary inputs; its arrays are not needed.
        blocks: The verdicts on its blocks.
        mesh: Mesh of the devices.
        chosen: The variants of the program; `run` is the first one.
    """
    first, *others = chosen
    with_sets = _has_sets(run.case, blocks)
    yield from _of_variant(request, run, first, with_sets)
    for variant in others:
        try:
            run = run_case(
                run.case,
                size=run.size,
                dtype=variant.dtype,
                seed=request.seed,
                mesh=mesh,
                layout=variant.layout,
                calls=1,
            )
            yield _record(run, variant)
            run = replace(run, arrays={})
            yield from _of_variant(request, run, variant, with_sets)
        except Exception as error:
            error.add_note(f"{WHERE}in the layout and type {variant_text(variant)}")
            raise


def variant_text(variant: Variant) -> str:
    """Element type and partition specs of the inputs."""
    specs = " ".join(spec_text(spec) or "-" for spec in variant.layout.in_specs)
    return f"{variant.dtype} {specs}"


def _has_sets(case: Case, blocks: Sequence[BlockVerdict]) -> bool:
    """Whether a program gets harder inputs; the same on every process. Collective.

    An estimated tolerance is no bound, and harder inputs are where estimates fail.
    """
    if case.oracle is None or not case.domain.assumed:
        return case.oracle is not None
    running = current()
    estimated = np.array([int(any(block.estimated for block in blocks))])
    return int(total(running.backend, running.group, estimated)[0]) == 0


def _of_variant(
    request: Request, run: CaseRun, variant: Variant, with_sets: bool
) -> Iterator[SetRecord]:
    sets = input_sets(run.case, run.size, run.dtype) if with_sets else ()
    for data in sets:
        if data.name in request.sets:
            run = _again(run, data)
            yield _record(run, variant)
            run = replace(run, arrays={})


def _again(run: CaseRun, data: InputSet) -> CaseRun:
    try:
        return run_again(run, data)
    except Exception as error:
        error.add_note(f"{WHERE}on {data.name} inputs")
        raise


def _record(run: CaseRun, variant: Variant) -> SetRecord:
    blocks = check_all(run)
    return SetRecord(
        inputs=run.data.name,
        text=run.data.text if run.data.name != ORDINARY else "",
        dtype=variant.dtype,
        specs=variant.layout.to_dict(),
        plans=run.plans,
        blocks=tuple(b for b in blocks if b.array.startswith("output") or not b.passed),
        repeats=run.repeats,
    )
