"""One diagnosis from the block verdicts of all processes.

Copies of a block, and repeated calls, are compared by digests of their bits; the blocks that the
devices hold are compared with those of the wrong device orders that a runtime may use.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.mesh import Mesh
from ...arrays.sharding import Index, NamedSharding, plain_index
from ...arrays.text import block_text
from ...base.counted import counted
from ...base.errors import ShardingError
from ..records.records import ProcessRecord
from ..records.verdict import ArrayPlan, BlockVerdict, Diagnosis, Kind

Differing = list[BlockVerdict]
"""The copies of one block that have other bits than most copies of it, or than the first ones."""


def must_be_equal(records: Sequence[ProcessRecord]) -> dict[int, str]:
    """For each process a name; copies must have equal bits on processes of the same name.

    On GPUs, atomic additions and the choice of kernels for each device may differ by rounding;
    on CPUs of several hosts, the instructions. So these are only noted.
    """
    if records[0].platform == "gpu":
        return {}
    everywhere = records[0].platform == "tpu"
    return {record.process: "" if everywhere else record.host for record in records}


def differing(
    blocks: Iterable[BlockVerdict], names: Mapping[int, str] | None = None
) -> list[Differing]:
    """The copies that differ, for each block of which copies differ.

    Args:
        blocks: Verdicts on the blocks of all processes.
        names: Which copies to compare: those on processes of the same name; None compares all.
    """
    groups: dict[tuple[str, ...], dict[str, list[BlockVerdict]]] = {}
    for block in sorted(blocks, key=lambda b: (b.array, b.device)):
        if block.digest and (names is None or block.process in names):
            name = "" if names is None else names[block.process]
            alike = groups.setdefault((block.array, str(block.index), name), {})
            alike.setdefault(block.digest, []).append(block)
    others = []
    for alike in groups.values():
        most = max(alike.values(), key=len)
        if len(alike) > 1:
            others.append([b for same in alike.values() if same is not most for b in same])
    return others


def copies_text(copies: Sequence[Differing]) -> str:
    """Which copies differ, in a few words."""
    first = copies[0]
    others = (
        f"; so do copies of {counted(len(copies) - 1, 'other block')}" if len(copies) > 1 else ""
    )
    return (
        f"block {block_text(first[0].index)} of {first[0].array} has other bits on "
        f"{named('device', [b.device for b in first])} than on other devices with a copy of it"
        f"{others}"
    )


def repeats_text(repeats: Sequence[Mapping[str, Any]]) -> str:
    """Which call on which device differed, in a few words."""
    first = repeats[0]
    more = (
        f", and {counted(len(repeats) - 1, 'more block differs', 'more blocks differ')}"
        if len(repeats) > 1
        else ""
    )
    return (
        f"call {first['call']} gave other bits than call {first['first']} with the same inputs: "
        f"{first['array']} on device {first['device']} (process {first['process']}){more}"
    )


Order = tuple[Kind, str, dict[int, Index]]
"""A kind, its description, and which block each device holds."""

_ALL_PERMUTATIONS = 4  # axes; with more, only swaps of two axes and the reversal are tried


def orders(sharding: NamedSharding, shape: Sequence[int]) -> list[Order]:
    """Wrong orders that give at least one device a wrong block."""
    right = sharding.devices_indices_map(shape)
    wrong = []
    for kind, description, other in _meshes(sharding.mesh):
        try:
            blocks = NamedSharding(other, sharding.spec).devices_indices_map(shape)
        except ShardingError:  # blocks would not be equal
            continue
        if blocks != right:
            wrong.append((kind, description, blocks))
    return wrong


def blocks_of(sharding: NamedSharding, shape: Sequence[int]) -> list[Index]:
    """All distinct blocks that devices hold, in the right device order or a wrong one."""
    maps = [sharding.devices_indices_map(shape), *(order[2] for order in orders(sharding, shape))]
    seen: dict[tuple[tuple[int, int], ...], Index] = {}
    for blocks in maps:
        for index in blocks.values():
            seen.setdefault(tuple((s.start, s.stop) for s in index), index)
    return list(seen.values())


def _meshes(mesh: Mesh) -> Iterator[tuple[Kind, str, Mesh]]:
    ids = np.array(mesh.device_ids)
    reverse = tuple(reversed(range(len(mesh.shape))))
    for permutation in _permutations(len(mesh.shape)):
        names = [mesh.axis_names[axis] for axis in permutation]
        axes_text = f"({', '.join(mesh.axis_names)}) taken as ({', '.join(names)})"
        yield Kind.AXES_SWAPPED, f"mesh axes {axes_text}", Mesh(mesh.shape, names, ids)
        # The same devices, counted with the axes in another order.
        shape = [mesh.shape[axis] for axis in permutation]
        grid = ids.reshape(shape).transpose(np.argsort(permutation))
        if permutation == reverse:
            description = "devices in column-major order"
            yield Kind.COLUMN_MAJOR, description, Mesh(mesh.shape, mesh.axis_names, grid)
        else:
            description = f"devices counted with axes {axes_text}"
            yield Kind.AXES_SWAPPED, description, Mesh(mesh.shape, mesh.axis_names, grid)


def _permutations(axes: int) -> Iterator[tuple[int, ...]]:
    right = tuple(range(axes))
    if axes <= _ALL_PERMUTATIONS:
        yield from (p for p in itertools.permutations(right) if p != right)
        return
    yield tuple(reversed(right))
    for a, b in itertools.combinations(right, 2):
        yield tuple(b if i == a else a if i == b else i for i in right)


_OF_ORDERS = (Kind.PERMUTED, Kind.WRONG_DEVICES, Kind.STRUCTURE)
"""Kinds that single blocks show when the device order is wrong."""

_NAMES_IT = (Kind.ONE_PROCESS, Kind.LOWER_PRECISION)
"""Kinds whose reason names the process if only one has wrong blocks."""

_ALIKE = (
    {*_OF_ORDERS, Kind.AXES_SWAPPED, Kind.COLUMN_MAJOR},
    {Kind.MISSING_REDUCTION, Kind.PARTS},
    {Kind.MISSING_REDUCTION, Kind.FACTOR},
    {Kind.VARIANCE, Kind.FACTOR},
    {Kind.UNINITIALISED, Kind.NON_FINITE},
    {Kind.TRANSPOSED, Kind.DIMENSION},
)
"""Kinds that are one fault in other words. Else a kind is named only if no other one fits."""

_MOST = 8  # devices or processes listed before "and N more"


def diagnose(
    verdicts: Iterable[BlockVerdict],
    plans: Mapping[str, ArrayPlan],
    *,
    program: str,
    runtime: str,
    num_processes: int,
    copies: Sequence[Differing] = (),
    repeats: Sequence[Mapping[str, Any]] = (),
    hosts: Mapping[int, str] | None = None,
) -> Diagnosis:
    """One diagnosis from the verdicts of all processes about one program on one runtime.

    If several arrays are wrong, the diagnosis is about the first input, or else about the first
    output with a kind of fault.

    Args:
        verdicts: Results of `check_inputs` and `check_blocks` on every process, in any order.
        plans: `CaseRun.plans`, which are the same on every process.
        program: Name of the program, for the text.
        runtime: Name of the runtime, for the text.
        num_processes: Number of processes of the run.
        copies: Copies of blocks that differ and must not.
        repeats: Blocks whose bits differ between calls with the same inputs, and must not.
        hosts: Name of the machine of each process, for the text.
    """
    by_array: dict[str, list[BlockVerdict]] = {name: [] for name in plans}
    for verdict in verdicts:
        by_array[verdict.array].append(verdict)
    name = _shown(by_array)
    what = f"{program} on {runtime}"
    if name is None and copies:
        places = [(one.array, one.process, one.device) for some in copies for one in some]
        text = f"{copies_text(copies)}; each is within its tolerance"
        return _of_right_blocks(Kind.COPIES, places, f"{what}: {Kind.COPIES}: {text}")
    if name is None and repeats:
        places = [(one["array"], one["process"], one["device"]) for one in repeats]
        text = f"{repeats_text(repeats)}; the checked call is right"
        return _of_right_blocks(Kind.CALLS, places, f"{what}: {Kind.CALLS}: {text}")
    if name is None:
        return Diagnosis(True, text=f"{what}: right")
    blocks = sorted(by_array[name], key=lambda verdict: verdict.device)
    wrong = [verdict for verdict in blocks if not verdict.passed]
    processes = tuple(sorted({verdict.process for verdict in wrong}))
    reasons = _reasons(plans[name], blocks, wrong)
    alone = ""
    if num_processes > 1 and len(processes) == 1:
        host = (hosts or {}).get(processes[0])
        alone = f"process {processes[0]}{f' on {host}' if host else ''}"
        reasons = _of_one_process(reasons, blocks, processes[0], alone)
    apart = [found for found in copies if found[0].array == name]
    if apart and reasons[0][0] == Kind.UNKNOWN:
        reasons = [(Kind.COPIES, copies_text(apart))]
    kinds = list(dict.fromkeys(kind for kind, _ in reasons))
    devices = tuple(sorted({verdict.device for verdict in wrong}))
    shown = _worst([verdict for verdict in wrong if kinds[0] in verdict.kinds] or wrong)
    which = "the worst" if len(wrong) > 1 else "the block"
    parts = [
        f"{what}: {name} {_finding(kinds[0], reasons[0][1])}",
        _extent(len(wrong), len(blocks), processes, devices),
        # Those of one process that differs name it themselves.
        *([f"only {alone} has wrong blocks"] if alone and kinds[0] not in _NAMES_IT else []),
        f"{which} is on {shown.text.removeprefix(f'{name} on ')}",
        *filter(None, [_reason(kinds[0], shown, wrong)]),
        *([repeats_text(repeats)] if repeats else []),
    ]
    if kinds[1:]:
        as_well = " as well" * (kinds[0] != Kind.UNKNOWN)
        parts.append(f"the values fit {' or '.join(kinds[1:])}{as_well}")
    return Diagnosis(
        passed=False,
        kind=kinds[0],
        also=tuple(kinds[1:]),
        array=name,
        processes=processes,
        devices=devices,
        text="; ".join(parts),
    )


_NAMELESS = (Kind.UNKNOWN, Kind.TYPICAL)
"""Kinds that tell no cause."""


def _shown(by_array: Mapping[str, Sequence[BlockVerdict]]) -> str | None:
    """The array that the diagnosis is about; None if all are right.

    A single number may show no kind of fault where another output does.
    """
    wrong = {
        name: [verdict for verdict in found if not verdict.passed]
        for name, found in by_array.items()
    }
    names = [name for name, found in wrong.items() if found]
    known = [
        name
        for name in names
        if name.startswith("input")
        or all(kind not in _NAMELESS for verdict in wrong[name] for kind in verdict.kinds)
    ]
    return next(iter([*known, *names]), None)


def _of_right_blocks(kind: Kind, places: list[tuple[str, int, int]], text: str) -> Diagnosis:
    """The diagnosis if each block is right by itself.

    Args:
        kind: What differs.
        places: Array, process and device of each block that differs.
        text: The diagnosis.
    """
    arrays, processes, devices = zip(*places, strict=True)
    return Diagnosis(
        passed=False,
        kind=kind,
        array=arrays[0],
        processes=tuple(sorted(set(processes))),
        devices=tuple(sorted(set(devices))),
        text=text,
    )


def _extent(wrong: int, blocks: int, processes: Sequence[int], devices: Sequence[int]) -> str:
    """How many blocks are wrong, and where; the place of a single one comes with its elements."""
    if wrong == blocks:
        return f"all {blocks} blocks are wrong" if blocks > 1 else "its only block is wrong"
    if wrong == 1:
        return f"1 of {blocks} blocks is wrong"
    where = f"{named('process', processes)} and {named('device', devices)}"
    return f"{wrong} of {blocks} blocks are wrong, on {where}"


def _finding(kind: Kind, reason: str) -> str:
    if kind == Kind.UNKNOWN:
        return "is wrong; the kind of fault is unknown"
    if kind == Kind.TYPICAL:
        return f"is {kind}, though within the bound of all right programs"
    if not reason:
        return f"looks like {kind}"
    if kind in (Kind.ONE_PROCESS, Kind.COPIES):
        return f"{kind}: {reason}"
    return f"looks like {kind}: {reason}"


def _reasons(
    plan: ArrayPlan, blocks: Sequence[BlockVerdict], wrong: Sequence[BlockVerdict]
) -> list[tuple[Kind, str]]:
    """Kinds of fault with reasons, the likeliest first; those that explain all blocks lead."""
    absent = [verdict.device for verdict in wrong if verdict.index is None]
    if absent:
        return [(Kind.FEWER_DEVICES, f"no block on {named('device', absent)}")]
    of_orders = [
        (kind, description)
        for kind, description, held in orders(plan.sharding, plan.shape)
        if all(_may_hold(verdict, held.get(verdict.device)) for verdict in blocks)
    ]
    # An error within the derived bound tells no cause, and rules none out.
    wrong = [verdict for verdict in wrong if verdict.kinds != (Kind.TYPICAL,)] or wrong
    common = [kind for kind in wrong[0].kinds if all(kind in verdict.kinds for verdict in wrong)]
    if of_orders:
        common = [kind for kind in common if kind not in _OF_ORDERS]
    elif not common:
        # A kind that fits most blocks is named if no other one fits any. Lower precision would all.
        without = (Kind.UNKNOWN, Kind.LOWER_PRECISION)
        kinds: list[Kind] = [k for v in wrong for k in v.kinds if k not in without]
        common = sorted(dict.fromkeys(kinds), key=lambda kind: -kinds.count(kind))
        if not common or 2 * kinds.count(common[0]) <= len(wrong):
            common.insert(0, Kind.UNKNOWN)
    found = of_orders + [(kind, _description(kind, wrong)) for kind in common]
    several = {kind for kind, _ in found}
    if len(several) > 1 and not any(several <= alike for alike in _ALIKE):
        found.insert(0, (Kind.UNKNOWN, ""))
    return found


def _of_one_process(
    reasons: list[tuple[Kind, str]], blocks: Sequence[BlockVerdict], process: int, named: str
) -> list[tuple[Kind, str]]:
    """The reasons if only one of several processes has wrong blocks.

    A machine that multiplies in lower precision shows it in all of its blocks, not in some. That
    the process differs is shown by right copies on others: a fault of the program may lie where
    only this process has elements.
    """
    every = all(Kind.LOWER_PRECISION in block.kinds for block in blocks if block.process == process)
    own: list[tuple[Kind, str]] = [
        (kind, f"all blocks of {named}, and of no other" if kind == Kind.LOWER_PRECISION else text)
        for kind, text in reasons
        if kind != Kind.UNKNOWN and (every or kind != Kind.LOWER_PRECISION)
    ]
    right = [block.index for block in blocks if block.passed]
    if not own and any(block.index in right for block in blocks if not block.passed):
        return [(Kind.ONE_PROCESS, f"only {named} has wrong blocks, and others have right copies")]
    unknown = [reason for reason in reasons[:1] if reason[0] == Kind.UNKNOWN]
    return unknown + own or [(Kind.UNKNOWN, "")]


def _may_hold(verdict: BlockVerdict, block: Index | None) -> bool:
    """Whether the values on a device may be those of that block."""
    if block is None or verdict.index is None:
        return False
    wrong = verdict.values.wrong or Kind.STRUCTURE in verdict.kinds
    held = verdict.matches if wrong else [verdict.index]
    return plain_index(block) in (held or [])


def _description(kind: Kind, wrong: Sequence[BlockVerdict]) -> str:
    if kind == Kind.PERMUTED:
        return ", ".join(
            f"device {verdict.device} holds block {block_text(verdict.matches[0])}"
            for verdict in wrong[:_MOST]
            if verdict.matches
        )
    if kind == Kind.WRONG_DEVICES:
        return ", ".join(
            f"block {block_text(verdict.index)} lies on device {verdict.device}"
            for verdict in wrong[:_MOST]
            if verdict.index is not None
        )
    count = sum(kind in verdict.kinds for verdict in wrong)
    return (
        f"{count} of {len(wrong)} wrong blocks {'matches' if count == 1 else 'match'}"
        if count < len(wrong)
        else ""
    )


def _reason(kind: Kind, shown: BlockVerdict, wrong: Sequence[BlockVerdict]) -> str:
    """How a kind explains the block that is shown; without a kind, what is so in all blocks."""
    if kind == Kind.UNKNOWN and len({verdict.reasons for verdict in wrong}) > 1:
        return ""
    reasons = dict(zip(shown.kinds, shown.reasons, strict=False))
    return reasons.get(kind, " or ".join(filter(None, reasons.values())))


def _worst(wrong: Sequence[BlockVerdict]) -> BlockVerdict:
    def severity(verdict: BlockVerdict) -> tuple[bool, float, float]:
        return verdict.values.wrong > 0, verdict.values.ratio, verdict.values.error

    return max(wrong, key=severity)


def named(what: str, numbers: Sequence[int]) -> str:
    """Devices, processes or dimensions by their numbers, the first 8."""
    shown = ", ".join(map(str, numbers[:_MOST]))
    more = f" and {len(numbers) - _MOST} more" if len(numbers) > _MOST else ""
    plural = "" if len(numbers) == 1 else "es" if what.endswith("s") else "s"
    return f"{what}{plural} {shown}{more}"
