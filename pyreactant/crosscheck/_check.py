"""Check what a run left on this process's devices, block by block."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from .._array import Shard
from .._draw import block_text
from .._runtime import devices, local_devices
from .._sharding import Index
from .._source import Source
from .._verdict import Check
from ._execute import CaseRun, digest
from ._held import Held
from ._judge import judge, misshapen, missing
from ._model import Model
from ._oracle import InputOracle, OutputOracle
from ._sketch import is_large_product, sample, sketch
from ._summed import ways_to_sum
from ._tiles import cut, within
from ._values import Numbers, compare, join
from ._verdict import ArrayPlan, BlockVerdict, Kind
from ._wrong import Oracle, Subject

Measure = Callable[[Sequence[Shard]], list[Numbers]]
"""How blocks that are said to be the same one differ from what it should be."""

_TILE_BYTES = 8 * 2**20
"""What a tile may need; as many as there are cores are checked at a time."""


def check_inputs(run: CaseRun) -> list[list[BlockVerdict]]:
    """Whether each device holds its block of each input, bit for bit. Never communicates.

    Returns:
        Per input, one verdict for each device of this process that is in the mesh.
    """
    found = []
    for name, source in zip(run.named("input"), run.sources(), strict=True):
        subject = Subject(name, run.plans[name], InputOracle(source))
        measure = partial(_by_digest, run.digests[name], subject.oracle)
        verdicts = _verdicts(run, name, subject, measure, "digest")
        if all(verdict.passed for verdict in verdicts):
            run.verified.add(name)
        found.append(verdicts)
    return found


def check_blocks(run: CaseRun) -> list[list[BlockVerdict]]:
    """Whether each device holds its block of each output, and the right values. Collective.

    Inputs that `check_inputs` found right are read from the devices, others made again.

    Returns:
        Per output, one verdict for each device of this process that is in the mesh. A device
        without a block has one too.
    """
    found: list[list[BlockVerdict]] = []
    for number, name in enumerate(run.named("output")):
        if run.case.oracle is None:
            found.append(_verdicts(run, name, None, _unchecked, "none"))
            continue
        sources = _sources(run)
        subject = _output(run, number, name, sources)
        method = "oracle"
        measure: Measure = partial(_by_oracle, subject.oracle)
        if run.case.is_exact(run.dtype):
            method = "exact oracle"
        if is_large_product(run):
            check = sketch(run, sources)
            if check is not None and check.passed:
                method, measure = "Freivalds", partial(_by_sketch, run, sources, check, subject)
        # What is wrong with one output is likely to be what is wrong with the next.
        hints = next((v.kinds for verdicts in found for v in verdicts if v.kinds), ())
        found.append(_verdicts(run, name, subject, measure, method, hints))
    return found


def _sources(run: CaseRun) -> tuple[Source, ...]:
    return tuple(
        Held(source, run.arrays[name]) if name in run.verified else source
        for name, source in zip(run.named("input"), run.sources(), strict=True)
    )


def _output(run: CaseRun, number: int, name: str, sources: tuple[Source, ...]) -> Subject:
    plan = run.plans[name]
    model = None
    if not run.case.is_exact(run.dtype):
        model = Model.of(
            run.dtype,
            platform=devices()[0].platform,
            precision=run.precision,
            partials=plan.sharding.mesh.size,
            random=run.case.random,
        )
    oracle = OutputOracle(run.case, number, plan.shape, sources, model)
    before = OutputOracle(run.case, number, plan.shape, run.sources(before=True), model)
    inputs = tuple(InputOracle(source) for source in sources)
    return Subject(name, plan, oracle, before, inputs, ways_to_sum(run, number))


def _verdicts(
    run: CaseRun,
    name: str,
    subject: Subject | None,
    measure: Measure,
    method: str,
    hints: tuple[Kind, ...] = (),
) -> list[BlockVerdict]:
    plan = run.plans[name]
    wanted = plan.sharding.devices_indices_map(plan.shape)
    shards = run.arrays[name].addressable_shards
    same: dict[str, list[Shard]] = {}
    for shard in shards:
        if _is_block(shard, plan):
            same.setdefault(block_text(shard.index), []).append(shard)
    numbers: dict[int, Numbers] = {}
    for copies in same.values():
        numbers |= zip(map(id, copies), measure(copies), strict=True)
    verdicts = []
    for shard in shards:
        expected = wanted.get(shard.device.position)
        if id(shard) in numbers:
            found = judge(subject, name, shard, expected, numbers[id(shard)], method, hints)
            verdicts.append(found)
            hints = hints or found.kinds
        else:
            verdicts.append(misshapen(subject, name, shard, expected, plan.dtype))
    held = {shard.device.position for shard in shards}
    absent = [d for d in local_devices() if d.position in wanted and d.position not in held]
    return verdicts + [missing(name, device, wanted[device.position]) for device in absent]


def _is_block(shard: Shard, plan: ArrayPlan) -> bool:
    """Whether a block has the shape and dtype that its index and the array's plan say."""
    within_array = len(shard.index) == len(plan.shape) and all(
        0 <= s.start <= s.stop <= n for s, n in zip(shard.index, plan.shape, strict=True)
    )
    shape = tuple(s.stop - s.start for s in shard.index)
    data = shard.data
    return within_array and data.shape == shape and data.dtype.name == plan.dtype


def _unchecked(copies: Sequence[Shard]) -> list[Numbers]:
    return [Numbers(elements=shard.data.size) for shard in copies]


def _by_digest(
    digests: Mapping[str, str], oracle: Oracle, copies: Sequence[Shard]
) -> list[Numbers]:
    """Compare with what was made for the block; element by element only where that differs."""
    made = digests.get(block_text(copies[0].index))
    return [
        Numbers(elements=shard.data.size)
        if digest(shard.data) == made
        else _by_oracle(oracle, [shard])[0]
        for shard in copies
    ]


def _by_oracle(oracle: Oracle, copies: Sequence[Shard]) -> list[Numbers]:
    """Compare with the oracle, tile by tile; a tile is computed once for all copies."""
    block, data = copies[0].index, [shard.data for shard in copies]

    def measure(tile: Index) -> list[Numbers]:
        expected, inside = oracle.block(tile), within(tile, block)
        start = tuple(s.start for s in tile)
        return [compare(one[inside], expected, start) for one in data]

    tiles = list(cut(block, oracle.cost, _TILE_BYTES))
    if len(tiles) == 1:  # starting threads would cost more
        return measure(tiles[0])
    with ThreadPoolExecutor(_cores()) as pool:
        return [join(parts) for parts in zip(*pool.map(measure, tiles), strict=True)]


def _by_sketch(
    run: CaseRun,
    sources: Sequence[Source],
    check: Check,
    subject: Subject,
    copies: Sequence[Shard],
) -> list[Numbers]:
    """What Freivalds' check of the whole array found right; a sample is computed."""
    assert isinstance(subject.oracle, OutputOracle)
    found = sample(run, sources, subject.oracle.model, copies)
    if any(numbers.wrong for numbers in found):
        return _by_oracle(subject.oracle, copies)
    return [
        replace(
            numbers,
            elements=shard.data.size,
            ratio=max(numbers.ratio, check.ratio),
            non_finite=check.non_finite,
        )
        for shard, numbers in zip(copies, found, strict=True)
    ]


def _cores() -> int:
    """Cores that this process may use; Linux alone can tell which those are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
