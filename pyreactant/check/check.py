"""Check the inputs and outputs of a run on this process's devices, block by block.

Blocks are compared with the oracle, tile by tile. For a large product that costs too much, O(n^3):
Freivalds' check of the whole costs O(n^2), and detects any error larger than the rounding of a
whole row. Lower precision may stay below that, but affects every element, so the oracle also
computes one tile of each block, chosen by the seed.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from ..arrays.array import ShardedArray
from ..arrays.dtypes import as_dtype, is_float, wide
from ..arrays.runtimes.collective import exchange
from ..arrays.runtimes.runtime import current, local_devices
from ..arrays.sharding import Index, NamedSharding, Shard
from ..arrays.source import Source
from ..arrays.text import block_text
from ..base.facts import usable_cores
from .bounds.compare import compare, compare_copies, wrong_elements
from .bounds.expected import Expected
from .bounds.runs import Runs
from .bounds.sight import COARSE, FINE, combined, count_wrong, total
from .bounds.tracked import UnknownOperationError
from .bounds.typical import Typical, TypicalVerdict
from .bounds.verdict import BY_FLOAT32, Verdict, join
from .execute import PRECISION, CaseRun, digest
from .faults.alteration import Cuts
from .faults.explain import block_verdict, misshapen, missing
from .faults.operations import Operations
from .faults.subject import Oracle, Subject
from .inputs import SPECIAL
from .oracle.oracle import STREAM_BYTES, InputOracle, OutputOracle, cut, merge, stream_bytes
from .oracle.sources import PlacedSource, Transposed
from .product.check import FULL_CHECK_WORK, model_of, tolerance_of
from .product.freivalds import freivalds
from .product.on_devices import check_on_devices, is_on_devices
from .records.verdict import UNCOMPARED, ArrayPlan, BlockVerdict, Kind
from .regions import around, common, elements_of, read_whole, within

Copies = Sequence[Shard]
"""Shards with the same index."""

Measure = Callable[[Sequence[Copies]], list[list[Verdict]]]
"""Compares blocks, each with its copies, with the right values."""

_MAPPED = 8
"""Wrong blocks of an array, of one process, whose record says where the wrong elements are."""

_COUNTED = 2**18
"""Elements of a wrong tile that are compared at once; temporary arrays take several times more."""

_ALL_BYTES = 2 * STREAM_BYTES
"""Bytes that concurrently checked tiles may need together."""

_WORK = FULL_CHECK_WORK // 8
"""Up to this many multiplications, the oracle computes the whole product."""

_LARGEST = 2**20
"""Elements of an argument up to which an oracle runs with altered operations."""

_SIDE = 16
"""Side length of the tile of each block of a larger product that the oracle computes."""


def check_all(run: CaseRun) -> list[BlockVerdict]:
    """The verdicts on all blocks of inputs and outputs of this process's devices. Collective."""
    inputs = check_inputs(run)
    wrong = {verdict.array for verdict in inputs if not verdict.passed}
    return inputs + check_blocks(run, {*run.named("input")} - wrong)


def check_inputs(run: CaseRun) -> list[BlockVerdict]:
    """Check that each device holds its block of each input, bit for bit. Not collective.

    Returns:
        For each input, one verdict for each device of this process that is in the mesh.
    """
    verdicts: list[BlockVerdict] = []
    for name, source in zip(run.named("input"), run.sources(), strict=True):
        subject = Subject(name, run.plans[name], InputOracle(source))
        measure = partial(_by_digest, run.digests[name], subject.oracle)
        verdicts += _verdicts(run, name, subject, measure, "digest")
    return verdicts


def check_blocks(run: CaseRun, right_inputs: Collection[str] = ()) -> list[BlockVerdict]:
    """Check that each device holds the right block of each output. Collective.

    Args:
        run: The run.
        right_inputs: Inputs that passed `check_inputs` on this process, which are read from the
            devices; others are regenerated.

    Returns:
        For each output, one verdict for each device of this process that is in the mesh, including
        devices without a block.
    """
    outputs: list[BlockVerdict] = []
    sources = _sources(run, right_inputs)  # the same for all outputs, which may share work
    limits = _typical(run, sources)
    for number, (name, limit) in enumerate(zip(run.named("output"), limits, strict=True)):
        if run.case.oracle is None:
            outputs += _verdicts(run, name, None, _unchecked, UNCOMPARED)
            continue
        typical = None if isinstance(limit, str) else limit
        subject = _output(run, number, name, sources, typical)
        method = "oracle"
        measure: Measure = partial(_by_oracle, subject.oracle)
        if run.data.whole:
            method = "whole numbers"
        elif run.model(number) is None:
            method = "exact oracle"
        elif run.dtype == "float32" and typical is None:
            measure = partial(_by_float32_first, subject.oracle)
        if _is_large_product(run) and not run.data.whole:
            product = _check_by_freivalds(run, sources, right_inputs)
            if product is not None and product.passed:
                method = product.method
                measure = partial(_by_freivalds, subject.oracle, product, run.seed)
        verdicts = _verdicts(run, name, subject, measure, method)
        if any(verdict.kind in _OF_SHORT_SUMS for verdict in verdicts):
            verdicts = _advised(run, number, sources, verdicts)
        if isinstance(limit, str) and limit:
            missing = TypicalVerdict(missing=limit)
            verdicts = [replace(v, values=replace(v.values, typical=missing)) for v in verdicts]
        outputs += verdicts
    return outputs


_OF_SHORT_SUMS = (Kind.LOWER_PRECISION, Kind.TYPICAL, Kind.UNKNOWN)
"""Kinds of fault that sums in a short type may look like."""


def _advised(
    run: CaseRun, number: int, sources: tuple[Source, ...], verdicts: list[BlockVerdict]
) -> list[BlockVerdict]:
    """The verdicts, with advice on blocks that sums in the program's short type would explain.

    Only those would be right if the program stated that it adds so, with a small error.
    """
    case, model, name = run.case, run.model(number), f"output {number}"
    if case.runs is None or model is None or model.sum_roundoff == model.roundoff:
        return verdicts
    stated = replace(run, case=replace(case, domain=replace(case.domain, sums_in="result")))
    limit = _typical(stated, sources)[number]
    typical = None if isinstance(limit, str) else limit
    oracle = _output(stated, number, name, sources, typical).oracle
    shards = {shard.device.position: shard for shard in run.arrays[name].addressable_shards}
    odd = [verdict for verdict in verdicts if verdict.kind in _OF_SHORT_SUMS]
    values = _by_oracle(oracle, [[shards[verdict.device]] for verdict in odd])
    explained = {
        verdict.device
        for verdict, (value,) in zip(odd, values, strict=True)
        if value.passed and value.relative_norm <= COARSE
    }
    advice = f'if it adds in {run.dtype} itself, state that: Domain(sums_in="result")'
    return [
        replace(verdict, text=f"{verdict.text}; {advice}")
        if verdict.device in explained
        else verdict
        for verdict in verdicts
    ]


def _typical(run: CaseRun, sources: Sequence[Source]) -> Sequence[Typical | str]:
    """How far each right result usually is from the exact one, or why that is not known.

    The reason is "" where the limit makes no sense: for exact results, types as long as the
    oracle's own, and special values.
    """
    count = len(run.named("output"))
    model = run.model(0) if count else None
    if not run.typical or run.case.runs is None or model is None or run.data.name == SPECIAL:
        return [""] * count
    if model.dtype.itemsize > 4 or not is_float(model.dtype):
        return [""] * count
    arrays = list(map(read_whole, sources))
    if all(array.dtype.kind in "biu" for array in arrays):
        return [""] * count
    try:
        with np.errstate(all="ignore"):
            results = run.case.runs(arrays, model)
    except MemoryError:
        return ["the runs of the oracle do not fit into memory"] * count
    except UnknownOperationError as error:
        return [str(error)] * count
    return [_spread(result, run.typical) for result in results]


def _spread(result: Runs, sigmas: float) -> Typical | str:
    try:
        return "" if result.model is None else Typical.of(result, sigmas)
    except UnknownOperationError as error:
        return str(error)


def _sources(run: CaseRun, right_inputs: Collection[str]) -> tuple[Source, ...]:
    return tuple(
        PlacedSource(source, run.arrays[name]) if name in right_inputs else source
        for name, source in zip(run.named("input"), run.sources(), strict=True)
    )


def _output(
    run: CaseRun, number: int, name: str, sources: tuple[Source, ...], typical: Typical | None
) -> Subject:
    plan = run.plans[name]
    oracle = OutputOracle(
        case=run.case,
        number=number,
        shape=plan.shape,
        sources=sources,
        model=run.model(number),
        whole=run.data.whole,
        stream_bytes=stream_bytes(_local_bytes(run)),
        typical=typical,
    )
    before = oracle.reading(run.sources(before=True))
    inputs = tuple(InputOracle(source) for source in sources)
    return Subject(
        name,
        plan,
        oracle,
        before,
        inputs=inputs,
        input_plans=tuple(run.plans[argument] for argument in run.named("input")),
        operations=_operations(run, number, sources),
    )


def _operations(run: CaseRun, number: int, sources: Sequence[Source]) -> Operations | None:
    """What tells by a user's oracle which operation differs; None for a built-in program."""
    of_class, largest = run.case.of_class, max((math.prod(x.shape) for x in sources), default=0)
    if of_class is None:
        return None
    plan = run.plans[f"output {number}"]

    def arrays() -> list[np.ndarray]:
        read = map(read_whole, sources)
        return [array if array.dtype.kind in "biu" else wide(array) for array in read]

    cuts = Cuts(plan.sharding.mesh.shape, plan.sharding.cuts(len(plan.shape)))
    return Operations(of_class, number, arrays, cuts, small=largest <= _LARGEST)


def _local_bytes(run: CaseRun) -> int:
    """Total bytes of this process's blocks."""
    return sum(
        elements_of(shard.index) * as_dtype(run.plans[name].dtype).itemsize
        for name, array in run.arrays.items()
        for shard in array.addressable_shards
    )


def _verdicts(
    run: CaseRun,
    name: str,
    subject: Subject | None,
    measure: Measure,
    method: str,
) -> list[BlockVerdict]:
    plan = run.plans[name]
    wanted = plan.sharding.devices_indices_map(plan.shape)
    shards = run.arrays[name].addressable_shards
    same: dict[str, list[Shard]] = {}
    for shard in shards:
        if _is_block(shard, plan):
            same.setdefault(block_text(shard.index), []).append(shard)
    groups = list(same.values())
    measured = {
        id(shard): replace(verdict, method=verdict.method or method)
        for copies, verdicts_of_copies in zip(groups, measure(groups), strict=True)
        for shard, verdict in zip(copies, verdicts_of_copies, strict=True)
    }
    verdicts, mapped = [], 0
    for shard in shards:
        expected = wanted.get(shard.device.position)
        if id(shard) in measured:
            verdict = block_verdict(subject, name, shard, expected, measured[id(shard)])
            if name.startswith("output") and list(wanted.values()).count(shard.index) > 1:
                verdict = replace(verdict, digest=digest(shard.data))
            mapped += verdict.values.places is not None
            if mapped > _MAPPED:
                verdict = replace(verdict, values=replace(verdict.values, places=None))
            verdicts.append(verdict)
        else:
            verdicts.append(misshapen(subject, name, shard, expected, plan.dtype))
    held = {shard.device.position for shard in shards}
    absent = [d for d in local_devices() if d.position in wanted and d.position not in held]
    return verdicts + [missing(name, device, wanted[device.position]) for device in absent]


def _is_block(shard: Shard, plan: ArrayPlan) -> bool:
    """Whether a block's shape and dtype match its index and the array's plan."""
    within_array = len(shard.index) == len(plan.shape) and all(
        0 <= s.start <= s.stop <= n for s, n in zip(shard.index, plan.shape, strict=True)
    )
    shape = tuple(s.stop - s.start for s in shard.index)
    data = shard.data
    return within_array and data.shape == shape and data.dtype.name == plan.dtype


def _unchecked(blocks: Sequence[Copies]) -> list[list[Verdict]]:
    return [[Verdict(elements=shard.data.size) for shard in copies] for copies in blocks]


def _by_digest(
    digests: Mapping[str, str], oracle: Oracle, blocks: Sequence[Copies]
) -> list[list[Verdict]]:
    """Compare digests of the blocks; compare elements only where the digests differ."""
    return [
        [
            Verdict(elements=shard.data.size)
            if digest(shard.data) == digests.get(block_text(shard.index))
            else _by_oracle(oracle, [[shard]])[0][0]
            for shard in copies
        ]
        for copies in blocks
    ]


def _by_float32_first(oracle: Oracle, blocks: Sequence[Copies]) -> list[list[Verdict]]:
    """Compare with products in float32; float64 decides unless all are right and seen finely."""
    assert isinstance(oracle, OutputOracle)
    by_block = _by_oracle(replace(oracle, float32_products=True), blocks)
    verdicts = [verdict for copies in by_block for verdict in copies]
    if not any(verdict.method == BY_FLOAT32 for verdict in verdicts):
        return by_block
    right = all(verdict.passed and not verdict.estimated for verdict in verdicts)
    if right and combined(verdict.sight for verdict in verdicts).sensitivity < FINE:
        return [[replace(verdict, method=BY_FLOAT32) for verdict in copies] for copies in by_block]
    return _by_oracle(oracle, blocks)


def _by_oracle(oracle: Oracle, blocks: Sequence[Copies]) -> list[list[Verdict]]:
    """Compare with the oracle tile by tile; each tile is computed once for all its blocks.

    Blocks that need the same rows of the inputs, as in a softmax, are computed together.
    """
    indices = [copies[0].index for copies in blocks]
    data = [[shard.data for shard in copies] for copies in blocks]

    def measure(tile: Index) -> dict[int, list[Verdict]]:
        expected = oracle.block(tile)
        by_block = {}
        for number, block in enumerate(indices):
            both = common(tile, block)
            if both is not None:
                inside, start = within(both, block), tuple(s.start for s in both)
                parts = [block_of_copy[inside] for block_of_copy in data[number]]
                right = expected.part(within(both, tile))
                verdicts = compare_copies(parts, right, start)
                placed: dict[int, Verdict] = {}  # equal copies share a verdict
                for part, verdict in zip(parts, verdicts, strict=True):
                    if id(verdict) not in placed:
                        placed[id(verdict)] = _with_places(verdict, part, right, inside, block)
                by_block[number] = [placed[id(verdict)] for verdict in verdicts]
        return by_block

    regions = merge(indices, oracle.cost)
    tiles = [tile for region in regions for tile in cut(region, oracle.cost, oracle.limit)]
    dearest = max([1, *map(oracle.cost, tiles)])
    threads = max(1, min(usable_cores(), len(tiles), _ALL_BYTES // dearest))
    joined = [[Verdict() for _ in copies] for copies in blocks]
    with ThreadPoolExecutor(threads) as pool:
        for by_block in pool.map(measure, tiles):
            # At once: what all tiles see together needs more memory than a tile.
            for number, verdicts in by_block.items():
                joined[number] = [*map(_joined, joined[number], verdicts)]
    return joined


def _joined(one: Verdict, other: Verdict) -> Verdict:
    return join([one, other]) if one.elements else other


def _with_places(
    verdict: Verdict, got: np.ndarray, right: Expected, inside: Index, block: Index
) -> Verdict:
    """The verdict on a tile, with the places of its wrong elements in the block."""
    if verdict.passed:
        return verdict
    if verdict.typical is not None and not verdict.typical.only:
        right = replace(right, typical=None)  # as the verdict counts them
    start, shape = [s.start for s in inside], [s.stop - s.start for s in block]
    step = max(1, len(got) * _COUNTED // got.size) if got.ndim else 1
    grids = []
    for first in range(0, len(got) if got.ndim else 1, step):
        rows = (slice(first, first + step),) if got.ndim else ()
        wrong = wrong_elements(got[rows], right.part(rows))
        grids.append(count_wrong(wrong, [s + first for s in start[:1]] + start[1:], shape))
    return replace(verdict, places=total(grids))


def _is_large_product(run: CaseRun) -> bool:
    """Whether the run's program is a product that is too large for its oracle."""
    if not run.case.factors:
        return False
    number, transposed = run.case.factors[0]
    summed = run.plans[f"input {number}"].shape[0 if transposed else 1]
    return math.prod(run.plans["output 0"].shape) * summed > _WORK


def _check_by_freivalds(
    run: CaseRun, sources: Sequence[Source], right_inputs: Collection[str]
) -> Verdict | None:
    """Freivalds' check of a run's product; None if a block is on a wrong device. Collective."""
    product = run.arrays["output 0"]
    if not _is_placed_everywhere(product, run.plans["output 0"]):
        return None
    factors, shardings = [], []
    for number, transposed in run.case.factors:
        source, sharding = sources[number], run.plans[f"input {number}"].sharding
        factors.append(Transposed(source) if transposed else source)
        axes = sharding.axes(2)
        shardings.append(NamedSharding(sharding.mesh, axes[::-1] if transposed else axes))
    (x, y), both = factors, (shardings[0], shardings[1])
    if is_on_devices(run.check, product.dtype, large=True):
        # The devices multiply what they hold, so that must be right on every process.
        names = [f"input {number}" for number, _ in run.case.factors]
        if not processes_where(any(name not in right_inputs for name in names)):
            left, right = (run.arrays[name] for name in names)
            turned = run.case.factors[0][1], run.case.factors[1][1]
            model = model_of(product, both, PRECISION, run.random)
            verdict = check_on_devices((left, right), product, model, turned)
            if verdict is not None:
                return verdict
    tolerance = tolerance_of(product, x.shape[1], both, PRECISION, random=run.random)
    return freivalds(x, y, product, both, tolerance)


def processes_where(here: bool) -> list[int]:
    """The processes on which something holds. Collective."""
    running = current()
    everywhere = exchange(running.backend, running.group, np.array([here]))
    return [int(process) for process in np.flatnonzero(everywhere)]


def _is_placed_everywhere(array: ShardedArray, plan: ArrayPlan) -> bool:
    """Whether each device of the mesh holds a block of the right index, shape and dtype."""
    wanted = plan.sharding.devices_indices_map(plan.shape)
    shards = array.addressable_shards
    here = [device.position for device in local_devices() if device.position in wanted]
    right = sorted(shard.device.position for shard in shards) == here and all(
        shard.index == wanted[shard.device.position] and _is_block(shard, plan) for shard in shards
    )
    return not processes_where(not right)


def _by_freivalds(
    oracle: Oracle, whole: Verdict, seed: int, blocks: Sequence[Copies]
) -> list[list[Verdict]]:
    """After a passed Freivalds' check: compare a sample of each block, and all if one is wrong."""
    samples = [_compare_sample(oracle, seed, copies) for copies in blocks]
    if not all(verdict.passed for copies in samples for verdict in copies):
        return _by_oracle(oracle, blocks)
    return [
        [
            replace(
                verdict,
                elements=shard.data.size,
                ratio=max(verdict.ratio, whole.ratio),
                non_finite=whole.non_finite,
            )
            for shard, verdict in zip(copies, verdicts, strict=True)
        ]
        for copies, verdicts in zip(blocks, samples, strict=True)
    ]


def _compare_sample(oracle: Oracle, seed: int, shards: Sequence[Shard]) -> list[Verdict]:
    """Compare one tile of the copies of a block, chosen by the seed."""
    block = shards[0].index
    random = np.random.Philox(key=[seed % 2**64, sum(s.start for s in block)])
    bits = np.atleast_1d(random.random_raw(len(block)))
    at = [s.start + int(b) % max(1, s.stop - s.start) for s, b in zip(block, bits, strict=True)]
    tile = around(block, at, _SIDE)
    expected, inside = oracle.block(tile), within(tile, block)
    start = tuple(s.start for s in tile)
    return [compare(shard.data[inside], expected, start) for shard in shards]
