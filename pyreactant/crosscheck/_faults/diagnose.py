"""One diagnosis from the block verdicts of all processes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..._core.sharding import Index, plain_index
from ..._core.text import block_text
from .._records.verdict import ArrayPlan, BlockVerdict, Diagnosis, Kind
from .copies import Differing, copies_text, repeats_text
from .orders import orders

_OF_ORDERS = (Kind.PERMUTED, Kind.WRONG_DEVICES, Kind.STRUCTURE)
"""Kinds that single blocks show when the device order is wrong."""

_NAMES_IT = (Kind.ONE_PROCESS, Kind.LOWER_PRECISION)
"""Kinds whose reason names the process if only one has wrong blocks."""

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

    If several arrays are wrong, the diagnosis is about the first: inputs come before outputs.

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
    name = next((n for n, found in by_array.items() if any(not v.passed for v in found)), None)
    if name is None and copies:
        return _only_copies(copies, f"{program} on {runtime}")
    if name is None and repeats:
        return _only_repeats(repeats, f"{program} on {runtime}")
    if name is None:
        return Diagnosis(True, text=f"{program} on {runtime}: right")
    blocks = sorted(by_array[name], key=lambda verdict: verdict.device)
    wrong = [verdict for verdict in blocks if not verdict.passed]
    processes = tuple(sorted({verdict.process for verdict in wrong}))
    reasons = _reasons(plans[name], blocks, wrong)
    alone = num_processes > 1 and len(processes) == 1
    if alone:
        host = (hosts or {}).get(processes[0], "")
        reasons = _of_one_process(reasons, blocks, processes[0], host)
    apart = [found for found in copies if found[0].array == name]
    if apart and reasons[0][0] == Kind.UNKNOWN:
        reasons = [(Kind.COPIES, copies_text(apart))]
    kinds = list(dict.fromkeys(kind for kind, _ in reasons))
    devices = tuple(sorted({verdict.device for verdict in wrong}))
    which = "the worst" if len(wrong) > 1 else "the block"
    parts = [
        f"{program} on {runtime}: {name} {_finding(kinds[0], reasons[0][1])}",
        _extent(len(wrong), len(blocks), processes, devices),
        # Those of one process that differs name it themselves.
        *(["no other process has wrong blocks"] if alone and kinds[0] not in _NAMES_IT else []),
        f"{which} is on {_worst(wrong).text.removeprefix(f'{name} on ')}",
        *([repeats_text(repeats)] if repeats else []),
    ]
    if kinds[1:]:
        parts.append(f"the values fit {' or '.join(kinds[1:])} as well")
    return Diagnosis(
        passed=False,
        kind=kinds[0],
        also=tuple(kinds[1:]),
        array=name,
        processes=processes,
        devices=devices,
        text="; ".join(parts),
    )


def _only_copies(copies: Sequence[Differing], what: str) -> Diagnosis:
    """The diagnosis if each block is right by itself."""
    blocks = [block for found in copies for block in found]
    return Diagnosis(
        passed=False,
        kind=Kind.COPIES,
        array=blocks[0].array,
        processes=tuple(sorted({block.process for block in blocks})),
        devices=tuple(sorted({block.device for block in blocks})),
        text=f"{what}: {Kind.COPIES}: {copies_text(copies)}; each is within its tolerance",
    )


def _only_repeats(repeats: Sequence[Mapping[str, Any]], what: str) -> Diagnosis:
    """The diagnosis if each block of the checked call is right."""
    return Diagnosis(
        passed=False,
        kind=Kind.CALLS,
        array=repeats[0]["array"],
        processes=tuple(sorted({one["process"] for one in repeats})),
        devices=tuple(sorted({one["device"] for one in repeats})),
        text=f"{what}: {Kind.CALLS}: {repeats_text(repeats)}; the checked call is right",
    )


def _extent(wrong: int, blocks: int, processes: Sequence[int], devices: Sequence[int]) -> str:
    """How many blocks are wrong, and where; that of a single one is said with its elements."""
    if wrong == blocks:
        return f"all {blocks} blocks are wrong" if blocks > 1 else "its only block is wrong"
    if wrong == 1:
        return f"1 of {blocks} blocks is wrong"
    where = f"{_named('process', processes)} and {_named('device', devices)}"
    return f"{wrong} of {blocks} blocks are wrong, on {where}"


def _finding(kind: Kind, reason: str) -> str:
    if kind == Kind.UNKNOWN:
        return "is wrong; the kind of fault is unknown"
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
        return [(Kind.FEWER_DEVICES, f"no block on {_named('device', absent)}")]
    found = [
        (kind, description)
        for kind, description, held in orders(plan.sharding, plan.shape)
        if all(_may_hold(verdict, held.get(verdict.device)) for verdict in blocks)
    ]
    common = [kind for kind in wrong[0].kinds if all(kind in verdict.kinds for verdict in wrong)]
    if not found and not common:
        # No kind fits all wrong blocks: take those that fit most of them.
        kinds = [kind for verdict in wrong for kind in verdict.kinds]
        common = sorted(dict.fromkeys(kinds), key=lambda kind: -kinds.count(kind))
        common = [kind for kind in common if kind != Kind.UNKNOWN or kind == common[0]]
    if found:
        common = [kind for kind in common if kind not in _OF_ORDERS]
    return found + [(kind, _description(kind, wrong)) for kind in common]


def _of_one_process(
    reasons: list[tuple[Kind, str]], blocks: Sequence[BlockVerdict], process: int, host: str
) -> list[tuple[Kind, str]]:
    """The reasons if only one of several processes has wrong blocks.

    A machine that multiplies in lower precision shows it in all of its blocks, not in some.
    """
    named = f"process {process}{f' on {host}' if host else ''}"
    every = all(Kind.LOWER_PRECISION in block.kinds for block in blocks if block.process == process)
    found: list[tuple[Kind, str]] = [
        (kind, f"all blocks of {named}, and of no other" if kind == Kind.LOWER_PRECISION else text)
        for kind, text in reasons
        if kind != Kind.UNKNOWN and (every or kind != Kind.LOWER_PRECISION)
    ]
    return found or [(Kind.ONE_PROCESS, f"only {named} has wrong blocks")]


def _may_hold(verdict: BlockVerdict, block: Index | None) -> bool:
    """Whether the values on a device may be those of that block."""
    if block is None or verdict.index is None:
        return False
    held = verdict.matches if verdict.wrong or Kind.STRUCTURE in verdict.kinds else [verdict.index]
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
    return f"{count} of {len(wrong)} wrong blocks match" if count < len(wrong) else ""


def _worst(wrong: Sequence[BlockVerdict]) -> BlockVerdict:
    return max(wrong, key=lambda verdict: (verdict.wrong > 0, verdict.ratio, verdict.error))


def _named(what: str, numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST]))
    more = f" and {len(numbers) - _MOST} more" if len(numbers) > _MOST else ""
    plural = "" if len(numbers) == 1 else "es" if what.endswith("s") else "s"
    return f"{what}{plural} {shown}{more}"
