"""What one process records of a further set of inputs, or of another layout and element type."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from .verdict import ArrayPlan, BlockVerdict, plain


@dataclass(frozen=True, slots=True)
class SetRecord:
    """One set of inputs of a program, beyond the ordinary one of its first layout and type.

    Attributes:
        inputs: Name of the set: "ordinary", "wide", "special" or "exact".
        text: What its elements are.
        dtype: Element type.
        specs: Partition specs of the inputs and results: {"in_specs", "out_specs"}.
        plans: Shape, dtype and sharding by array name.
        blocks: Verdicts on this process's blocks of the results, and on wrong blocks of inputs.
        repeats: Blocks whose bits differ between calls with the same inputs (`CaseRun.repeats`).
    """

    inputs: str
    text: str
    dtype: str
    specs: Mapping[str, Any]
    plans: Mapping[str, ArrayPlan] = field(default_factory=dict)
    blocks: tuple[BlockVerdict, ...] = ()
    repeats: Sequence[Mapping[str, Any]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; numbers that are not finite become strings."""
        own = {name: plain(getattr(self, name)) for name in self.__slots__}
        # Most of the fields of a block that passed have their defaults.
        return own | {"blocks": [_short(block.to_dict()) for block in self.blocks]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SetRecord":
        """The record that `to_dict` described."""
        given = {name: data[name] for name in cls.__slots__}
        given["plans"] = {name: ArrayPlan.from_dict(plan) for name, plan in data["plans"].items()}
        blocks = (BlockVerdict.from_dict(_USUAL | block) for block in data["blocks"])
        given["blocks"] = tuple(blocks)
        return cls(**given)


_USUAL: dict[str, Any] = {
    one.name: plain(one.default) for one in fields(BlockVerdict) if one.default is not MISSING
}


def _short(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if _USUAL.get(key, MISSING) != value}
