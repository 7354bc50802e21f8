"""Verdicts on blocks, diagnoses, comparisons of runs, and records of programs, as plain data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ...arrays.dtypes import as_dtype
from ...arrays.sharding import NamedSharding
from ..bounds.sight import Sight, grid_of


class Kind(StrEnum):
    """Kinds of fault."""

    STRUCTURE = "wrong shape or dtype"
    FEWER_DEVICES = "fewer devices"
    AXES_SWAPPED = "mesh axes swapped"
    COLUMN_MAJOR = "column-major device order"
    WRONG_DEVICES = "right values on the wrong devices"
    PERMUTED = "permuted blocks"
    TRANSPOSED = "transposed block"
    MISSING_REDUCTION = "missing reduction"
    PARTS = "lost or repeated part of a reduction"
    UNINITIALISED = "stale or uninitialised block"
    HALO = "wrong halo"
    SHIFTED = "shifted block"
    VARIANCE = "unbiased variance"
    EPSILON = "wrong epsilon"
    FACTOR = "wrong factor"
    LOWER_PRECISION = "lower precision"
    ROUNDING = "off by rounding only"
    NON_FINITE = "NaN or infinity in the wrong places"
    COPIES = "copies differ"
    CALLS = "calls differ"
    ONE_PROCESS = "differs on one process only"
    UNKNOWN = "unknown kind of fault"


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """Required shape, dtype and sharding of an array of a run; independent of the runtime."""

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


FLOAT32_PRODUCTS = "products of the check in float32"
BY_FLOAT32 = f"oracle, {FLOAT32_PRODUCTS}"
"""The method of an oracle whose large products were formed in float32 (docs/checks.md)."""


@dataclass(frozen=True, slots=True)
class BlockVerdict:
    """Whether one block on one device is right, and if not, which faults explain it.

    Attributes:
        array: Name of the array, such as "output 0" or "input 1".
        device: Position in `pyreactant.devices()`.
        process: Process index of the device.
        index: Index that the runtime reports, [start, stop] per dimension; None if the device
            holds no block.
        expected_index: Index that the sharding requires there; None if the device is not in
            the mesh.
        passed: Whether placement and values are right.
        method: How values were checked: "oracle", `BY_FLOAT32`, "exact oracle", "Freivalds",
            "digest" or "none" (no oracle, or no block).
        error: Largest absolute error against the oracle.
        allowed: Tolerance of the element where error over tolerance is largest.
        ratio: Largest error over tolerance; at most 1 if all values are right, infinite if the
            tolerance is zero.
        ulps: Largest error in units in the last place of the output's type.
        relative_norm: Euclidean norm of the error over that of the oracle.
        wrong: Number of elements beyond the tolerance.
        non_finite: Number of elements that are NaN or infinite, as in the oracle.
        worst: The worst element: {"element": [i, ...] (global), "got", "expected", "allowed"}.
        kinds: All kinds of fault that fit, the likeliest first; empty if passed. Several fit
            only if the values do not distinguish them.
        matches: Other blocks of the array with these values, as [start, stop] per dimension;
            None if they were not searched.
        text: One sentence that describes the fault; "" if passed.
        estimated: Why the tolerance is estimated, not derived; "" if it is derived.
        digest: Checksum of the bits if other devices hold copies of the block; "" if not.
        sight: What the comparison with the oracle can see; None without one, and for inputs.
        places: Number of wrong elements in each cell of a grid over the block, line by line; all
            dimensions but the last run down. None if the block passed or was not compared, and
            for further wrong blocks of a process.
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
    estimated: str = ""
    digest: str = ""
    sight: Sight | None = None
    places: list[list[int]] | None = None

    @property
    def kind(self) -> Kind | None:
        """The likeliest kind of fault; None if the block passed."""
        return self.kinds[0] if self.kinds else None

    @property
    def placed(self) -> bool:
        """Whether the runtime reports the required index."""
        return self.index == self.expected_index

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; numbers that are not finite become strings."""
        data = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return data | {"kinds": [str(kind) for kind in self.kinds]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BlockVerdict":
        """The verdict that `to_dict` described."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in data.items() if name in known}
        for name in _NUMBERS:
            given[name] = float(given[name])
        if given.get("sight") is not None:
            given["sight"] = Sight.from_dict(given["sight"])
        if given.get("places") is not None:
            _check_places(given["places"], given["index"])
        return cls(**{**given, "kinds": tuple(Kind(kind) for kind in given["kinds"])})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of combining the verdicts of all processes on one program and runtime.

    Attributes:
        passed: Whether every block of every array passed.
        kind: Kind of fault; None if passed.
        also: Other kinds that fit the values as well.
        array: The first wrong array; inputs come before outputs.
        processes: Processes with a wrong or missing block.
        devices: Devices with a wrong or missing block.
        text: Program, runtime, processes, devices, block, worst element and kind.
    """

    passed: bool
    kind: Kind | None = None
    also: tuple[Kind, ...] = ()
    array: str | None = None
    processes: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    text: str = ""


def _check_places(places: Any, index: Any) -> None:
    """Check that the grid of wrong elements is that of the block; ValueError if it is not."""
    lines, columns = grid_of([stop - start for start, stop in index])
    shaped = len(places) == lines and all(len(line) == columns for line in places)
    if not shaped or not all(type(n) is int and n >= 0 for line in places for n in line):
        raise ValueError(f"places must be {lines} lines of {columns} counts")


_NUMBERS = ("error", "allowed", "ratio", "ulps", "relative_norm")


NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Pair:
    """Whether the results of a program agree between two runs.

    Attributes:
        first: Runtime or folder of the first run.
        second: Runtime or folder of the second run.
        passed: Whether the results agree.
        kind: Kind of difference; "" if they agree.
        text: One sentence that describes the result.
        difference: Largest absolute difference between two elements.
        allowed: Tolerance of the block where difference over tolerance is largest.
        ulps: Largest difference in units in the last place.
        relative_norm: Euclidean norm of the difference over that of the first, over all blocks.
        blocks: Number of compared blocks.
        device: Device with the largest difference over tolerance; None if nothing was compared.
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
        """Whether both runs had results to compare."""
        return self.kind != NOT_COMPARED


def differ(names: tuple[str, str], kind: str, text: str) -> Pair:
    """The result for two runs that differ in something other than values."""
    return Pair(*names, passed=False, kind=kind, text=text)


def plain(value: Any) -> Any:
    """Dictionaries, lists, numbers and text; numbers that are not finite become strings."""
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


RAN, RAISED = "ran", "raised"


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """One program on one process.

    Attributes:
        program: Name of the program in the request.
        outcome: "ran" or "raised".
        summary: What it computes, in a few words.
        error: Type, message, traceback and exit code of the exception it raised.
        problem: Size, dtype, seed, mesh and layout, which must be equal in compared runs.
        inputs: Digests of the input blocks by array name and block.
        oracle: Whether the program has an oracle.
        exact: Whether results must equal the oracle's bit by bit.
        precision: Precision of products.
        seconds: Seconds for placing, compiling, calls and checking.
        communicated: Bytes that each device receives by the closed form; None without one.
        plans: Shape, dtype and sharding by array name.
        blocks: Verdicts on this process's blocks of inputs and outputs.
        repeats: Blocks whose bits differ between calls with the same inputs (`CaseRun.repeats`).
        keys: Keys of the output blocks in the shards file, by array and device.
        sets: Further sets of inputs, and the same in further layouts and element types.
    """

    program: str
    outcome: str
    summary: str = ""
    error: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    oracle: bool = True
    exact: bool = False
    precision: str | None = None
    seconds: Mapping[str, Any] = field(default_factory=dict)
    communicated: int | None = None
    plans: Mapping[str, ArrayPlan] = field(default_factory=dict)
    blocks: tuple[BlockVerdict, ...] = ()
    repeats: Sequence[Mapping[str, Any]] = ()
    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sets: tuple[SetRecord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; numbers that are not finite become strings."""
        return {name: plain(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ProgramRecord":
        """The record that `to_dict` described."""
        given = {name: data[name] for name in cls.__slots__}
        given["plans"] = {name: ArrayPlan.from_dict(plan) for name, plan in data["plans"].items()}
        given["blocks"] = tuple(BlockVerdict.from_dict(block) for block in data["blocks"])
        given["sets"] = tuple(map(SetRecord.from_dict, data["sets"]))
        return cls(**given)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        return [name for name in self.plans if name.startswith("output")]
