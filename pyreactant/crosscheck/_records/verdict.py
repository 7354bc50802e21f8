"""Verdicts: about one block on one device, and what they say together. Plain data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ..._core.dtypes import as_dtype
from ..._core.sharding import NamedSharding


class Kind(StrEnum):
    """What kind of wrong a result looks like."""

    STRUCTURE = "wrong shape or dtype"
    FEWER_DEVICES = "fewer devices"
    AXES_SWAPPED = "mesh axes swapped"
    COLUMN_MAJOR = "column-major device order"
    WRONG_DEVICES = "right values on the wrong devices"
    PERMUTED = "permuted blocks"
    TRANSPOSED = "transposed block"
    MISSING_REDUCTION = "missing reduction"
    UNINITIALISED = "stale or uninitialised block"
    HALO = "shifted halo"
    SHIFTED = "shifted block"
    LOWER_PRECISION = "lower precision"
    ROUNDING = "off by rounding only"
    NON_FINITE = "NaN or infinity in the wrong places"
    ONE_PROCESS = "differs on one process only"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What an array of a run is and must be: decided without the runtime."""

    shape: tuple[int, ...]
    dtype: str
    sharding: NamedSharding

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; `from_dict` reads it back."""
        return {"shape": list(self.shape), "dtype": self.dtype, "sharding": self.sharding.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ArrayPlan":
        """The plan that `to_dict` described."""
        shape = tuple(int(n) for n in data["shape"])
        return cls(shape, as_dtype(data["dtype"]).name, NamedSharding.from_dict(data["sharding"]))


@dataclass(frozen=True, slots=True)
class BlockVerdict:
    """Whether one block on one device is right, and if not, what it looks like.

    Attributes:
        array: Which array of the run: "output 0", or "input 1".
        device: Position in `pyreactant.devices()`.
        process: The process that the device belongs to.
        index: The block that the runtime says it is, [start, stop] per dimension; None where
            the device holds none.
        expected_index: The block that the placement oracle wants there; None where the device is
            not in the mesh.
        passed: Placement and values are right.
        method: How values were checked: "oracle", "exact oracle", "Freivalds", "digest" or
            "none" (no oracle, or no block).
        error: Largest distance from the oracle.
        allowed: What rounding can make where error over allowed is largest.
        ratio: That quotient; at most 1 where values are right, infinite where none is allowed.
        ulps: Largest error in units in the last place of the output's type.
        relative_norm: Euclidean norm of the error over that of the oracle.
        wrong: Elements that are not within what is allowed.
        non_finite: Elements that are NaN or infinite, as the oracle's are.
        worst: The worst element: {"element": [i, ...] (global), "got", "expected", "allowed"}.
        kinds: What kind of wrong: all that fit, the likeliest first; empty where passed. There
            are several only where these values cannot tell them apart.
        matches: Blocks of the oracle whose values these are, as [start, stop] per dimension;
            None where that was not looked for.
        text: One sentence: what is wrong.
    """

    array: str
    device: int
    process: int
    index: list[list[int]] | None
    expected_index: list[list[int]] | None
    passed: bool = True
    method: str = "none"
    error: float = 0.0
    allowed: float = 0.0
    ratio: float = 0.0
    ulps: float = 0.0
    relative_norm: float = 0.0
    wrong: int = 0
    non_finite: int = 0
    worst: dict[str, Any] | None = None
    kinds: tuple[Kind, ...] = ()
    matches: list[list[list[int]]] | None = None
    text: str = ""

    @property
    def kind(self) -> Kind | None:
        """The likeliest kind of wrong."""
        return self.kinds[0] if self.kinds else None

    @property
    def placed(self) -> bool:
        """Whether the runtime says that this is the block that belongs there."""
        return self.index == self.expected_index

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; numbers that are not finite are text."""
        data = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return data | {"kinds": [str(kind) for kind in self.kinds]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BlockVerdict":
        """The verdict that `to_dict` described."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in data.items() if name in known}
        for name in _NUMBERS:
            given[name] = float(given[name])
        return cls(**{**given, "kinds": tuple(Kind(kind) for kind in given["kinds"])})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the verdicts of all processes say together about one program on one runtime.

    Attributes:
        passed: Whether every block of every array passed.
        kind: What kind of wrong; None where passed.
        also: Other kinds that these values cannot tell from `kind`.
        array: The first array that is wrong: an input, if any is.
        processes: Processes with a wrong block.
        devices: Devices with a wrong block, or without one.
        text: Program, runtime, processes, devices, block, worst element and kind.
    """

    passed: bool
    kind: Kind | None = None
    also: tuple[Kind, ...] = ()
    array: str | None = None
    processes: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    text: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {
            "passed": self.passed,
            "kind": self.kind and str(self.kind),
            "also": [str(kind) for kind in self.also],
            "array": self.array,
            "processes": list(self.processes),
            "devices": list(self.devices),
            "text": self.text,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Diagnosis":
        """The diagnosis that `to_dict` described."""
        return cls(
            data["passed"],
            Kind(data["kind"]) if data["kind"] else None,
            tuple(Kind(kind) for kind in data["also"]),
            data["array"],
            tuple(data["processes"]),
            tuple(data["devices"]),
            data["text"],
        )


_NUMBERS = ("error", "allowed", "ratio", "ulps", "relative_norm")


NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Pair:
    """Whether two runs agree about a program.

    Attributes:
        first: Runtime or folder.
        second: The other one.
        passed: Whether they agree.
        kind: "" where they do; otherwise what kind of difference it looks like.
        text: One sentence.
        difference: Largest distance between two elements.
        allowed: Of the block where difference over allowed is largest.
        ulps: Largest distance in units in the last place.
        relative_norm: Euclidean norm of the difference over that of the first, over all blocks.
        blocks: How many were compared.
        device: Where they differ most, if they do.
        worst: Array, process, block, element (global) and the two values.
    """

    first: str
    second: str
    passed: bool
    kind: str
    text: str
    difference: float = 0.0
    allowed: float = 0.0
    ulps: float = 0.0
    relative_norm: float = 0.0
    blocks: int = 0
    device: int | None = None
    worst: Mapping[str, Any] | None = None

    @property
    def compared(self) -> bool:
        """Whether there was something to compare on both sides."""
        return self.kind != NOT_COMPARED


def differ(names: tuple[str, str], kind: str, text: str) -> Pair:
    """Two runs that do not agree, for a reason other than values."""
    return Pair(*names, passed=False, kind=kind, text=text)


def plain(value: Any) -> Any:
    """Dictionaries, lists, numbers and text; numbers that are not finite are text."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
