"""Verdicts on blocks, diagnoses, comparisons of runs, and records of programs, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...arrays.dtypes import as_dtype
from ...arrays.sharding import NamedSharding
from ..bounds.verdict import Verdict
from .plain import Plain

UNCOMPARED = "none"
"""The method where no value was compared: the program has no oracle, or there is no block."""


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
    NON_FINITE = "NaN or infinity in the wrong places"
    UNINITIALISED = "stale or uninitialised block"
    HALO = "wrong halo"
    SHIFTED = "shifted block"
    MASK = "wrong mask"
    DIMENSION = "another dimension"
    VARIANCE = "unbiased variance"
    EPSILON = "wrong epsilon"
    FACTOR = "wrong factor"
    LOWER_PRECISION = "lower precision"
    TYPICAL = "beyond typical rounding"
    ROUNDING = "off by rounding only"
    COPIES = "copies differ"
    CALLS = "calls differ"
    ONE_PROCESS = "differs on one process only"
    UNKNOWN = "unknown kind of fault"


@dataclass(frozen=True, slots=True)
class ArrayPlan(Plain):
    """Required shape, dtype and sharding of an array of a run; independent of the runtime.

    Raises:
        DTypeError: The dtype is unknown, as in a damaged record.
    """

    shape: tuple[int, ...]
    dtype: str
    sharding: NamedSharding

    def __post_init__(self) -> None:
        as_dtype(self.dtype)


@dataclass(frozen=True, slots=True)
class BlockVerdict(Plain):
    """Whether one block on one device is right, and if not, which faults explain it.

    Attributes:
        array: Name of the array, such as "output 0" or "input 1".
        device: Position in `pyreactant.devices()`.
        process: Process index of the device.
        index: Index that the runtime reports, [start, stop] per dimension; None if the device
            holds no block.
        expected_index: Index that the sharding requires there; None if the device is not in
            the mesh.
        values: The verdict on the values. Its method is `UNCOMPARED` without an oracle or a block;
            `worst` and `places` are None if the values are right.
        kinds: All kinds of fault that fit, the likeliest first; empty if the block is right.
            Several fit only if the values do not distinguish them.
        matches: Other blocks of the array with these values, as [start, stop] per dimension;
            None if they were not searched.
        text: Where the block is, and how its worst element is off; "" if passed.
        digest: Checksum of the bits if other devices hold copies of the block; "" if not.
        reasons: How each of the kinds explains the block; "" if its name says all.
    """

    array: str
    device: int
    process: int
    index: list[list[int]] | None
    expected_index: list[list[int]] | None
    values: Verdict = field(default_factory=lambda: Verdict(UNCOMPARED))
    kinds: tuple[Kind, ...] = ()
    matches: list[list[list[int]]] | None = None
    text: str = ""
    digest: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether placement and values are right."""
        return not self.kinds

    @property
    def kind(self) -> Kind | None:
        """The likeliest kind of fault; None if the block passed."""
        return self.kinds[0] if self.kinds else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return Plain.to_dict(self) | {"passed": self.passed}


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


class Difference(StrEnum):
    """Kinds of difference between two runs of a program."""

    NONE = ""
    NOT_COMPARED = "not compared"
    PROBLEMS = "different problems"
    OUTPUTS = "different outputs"
    PLACEMENT = "placement differs"
    PERMUTED = "permuted blocks"
    TRANSPOSED = "transposed block"
    VALUES = "different values"


@dataclass(frozen=True, slots=True)
class Pair(Plain):
    """Whether the results of a program agree between two runs.

    Attributes:
        first: Runtime or folder of the first run.
        second: The same of the second run.
        text: One sentence that describes the result.
        values: The verdict on the values of the second run, those of the first being the right
            ones. Its error is infinite if only one run has a NaN or infinity somewhere, its norm
            that of the worst output, and its `worst` has array, process, block, element (global)
            and the two values.
        blocks: Number of compared blocks.
        device: Device with the largest difference over tolerance; None if nothing was compared.
    """

    first: str
    second: str
    kind: Difference
    text: str
    values: Verdict = field(default_factory=Verdict)
    blocks: int = 0
    device: int | None = None

    @property
    def passed(self) -> bool:
        """Whether the results agree."""
        return self.kind is Difference.NONE

    @property
    def compared(self) -> bool:
        """Whether both runs had results to compare."""
        return self.kind is not Difference.NOT_COMPARED

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        own = Plain.to_dict(self)
        return own | {"passed": self.passed, "difference": own["error"]}


@dataclass(frozen=True, slots=True)
class SetRecord(Plain):
    """One set of inputs of a program, beyond the ordinary one of its first layout and type.

    Attributes:
        inputs: Name of the set: "ordinary", "wide", "special" or "exact".
        text: What its elements are.
        specs: Partition specs of the inputs and results: {"in_specs", "out_specs"}.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts(Plain):
    """What a program is, on whichever runtime.

    Attributes:
        program: Name of the program in the request.
        summary: What it computes, in a few words.
        exact: Whether results must equal the oracle's bit by bit.
        problem: Size, dtype, seed, mesh and partition specs, equal in compared runs.
        communicated: None; the key stays for readers of reports, which had a count of bytes.
        plans: Shape, dtype and sharding of inputs and outputs, by array name.
    """

    program: str
    summary: str = ""
    oracle: bool = True
    exact: bool = False
    problem: Mapping[str, Any] = field(default_factory=dict)
    precision: str | None = None
    communicated: None = None
    plans: Mapping[str, ArrayPlan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRecord(ProgramFacts):
    """One program on one process.

    Attributes:
        error: Type, message, traceback and exit code of the exception it raised; None if it ran.
        inputs: Digests of the input blocks by array name and block.
        blocks: Verdicts on this process's blocks of inputs and outputs.
        repeats: Blocks whose bits differ between calls with the same inputs (`CaseRun.repeats`).
        keys: Keys of the output blocks in the shards file, by array and device.
        sets: Further sets of inputs, and the same in further layouts and element types.
    """

    error: Mapping[str, Any] | None = None
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seconds: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[BlockVerdict, ...] = ()
    repeats: Sequence[Mapping[str, Any]] = ()
    keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sets: tuple[SetRecord, ...] = ()

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        return [name for name in self.plans if name.startswith("output")]
