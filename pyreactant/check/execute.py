"""Run one case on this process's runtime and keep what the check needs."""

import functools
import math
import statistics
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays.array import ShardedArray
from ..arrays.matmul import default_mesh
from ..arrays.mesh import Mesh
from ..arrays.runtimes.compile import compile
from ..arrays.runtimes.compiled import Compiled
from ..arrays.runtimes.operations import from_callback
from ..arrays.runtimes.runtime import backend_name, current, devices
from ..arrays.sharding import Device, Index, NamedSharding
from ..arrays.source import Source
from ..arrays.text import block_text
from ..base.counted import counted
from ..base.errors import MismatchError
from .bounds.model import Model
from .inputs import ORDINARY_SET, InputSet, sources
from .programs.case import Case, Layout, default_spec
from .records.verdict import ArrayPlan

PRECISION = "highest"
"""Precision of the products of all programs of a cross-check."""

_BEFORE = 1 << 32
"""Added to the stream number for the inputs of the calls before the checked one."""


@dataclass(frozen=True, slots=True)
class CaseRun:
    """A finished run of one case, with this process's blocks of inputs and outputs.

    Attributes:
        case: The program with its oracle and layouts.
        size: The "n" of its shapes.
        dtype: Requested element type.
        seed: Seed of the inputs.
        layout: Partition specs of inputs and outputs.
        compiled: The compiled program.
        plans: Required shape, dtype and sharding by array name ("input 0", ..., "output 0", ...).
            `diagnose` takes them, and records contain them.
        arrays: The runtime's arrays by the same names.
        digests: Digests of the generated input blocks, by array name and block.
        seconds: {"place", "compile", "call" (median), "calls" (list)}. The last call is the
            checked one.
        data: The set of inputs of the checked call.
        before: The set of inputs of the calls before it; None if it is the same with other numbers.
        typical: Standard deviations of rounding that a result may be off (`bounds.typical`); 0
            leaves this limit out.
        check: Where a large product is checked (`product.on_devices`); None chooses by platform.
        repeats: Blocks with other bits in a later call than in the first one with the same inputs:
            {"array", "device", "process", "call", "first"}; calls count from 1.
    """

    case: Case
    size: int
    dtype: str
    seed: int
    layout: Layout
    compiled: Compiled
    plans: Mapping[str, ArrayPlan] = field(default_factory=dict)
    arrays: Mapping[str, ShardedArray] = field(default_factory=dict)
    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seconds: Mapping[str, Any] = field(default_factory=dict)
    data: InputSet = ORDINARY_SET
    before: InputSet | None = None
    repeats: Sequence[Mapping[str, Any]] = ()
    typical: float = 0.0
    check: str | None = None

    def sources(self, *, before: bool = False) -> tuple[Source, ...]:
        """The sources of the inputs.

        Args:
            before: Whether to return those of the calls before the checked one.
        """
        inputs = self.case.inputs(self.size, self.dtype)
        if not before:
            return sources(inputs, self.seed, self.data)
        if self.before is None:
            return sources(inputs, self.seed, self.data, first=_BEFORE)
        return sources(inputs, self.seed, self.before)

    @property
    def random(self) -> bool:
        """Whether all sums run over data without structure, so that errors have random signs."""
        return self.case.random and self.data.random

    def model(self, output: int) -> Model | None:
        """How the runtime rounds an output; None if it must be exact."""
        # A program of integers may have results that are rounded, such as means.
        whole = self.case.is_exact(self.dtype)
        dtype = self.plans[f"output {output}"].dtype if whole else self.dtype
        if self.case.is_exact(dtype) or self.data.whole:
            return None
        return Model.of(
            dtype,
            platform=devices()[0].platform,
            kind=devices()[0].kind,
            precision=PRECISION,
            partials=self._cut_over(output),
            random=self.random,
            sums_in=self.case.domain.sums_in,
        )

    @property
    def exact(self) -> bool:
        """Whether all results must be equal bit by bit."""
        return all(self.model(number) is None for number in range(len(self.named("output"))))

    def _cut_over(self, output: int) -> int:
        """Number of devices that share the sums of an output; all devices if unknown."""
        mesh = self.plans[f"output {output}"].sharding.mesh
        if not self.case.random:
            return mesh.size
        plans = [self.plans[name] for name in self.named("input")]
        axes = {
            axis
            for number, dimension in self.case.contracted(output)
            for axis in plans[number].sharding.axes(len(plans[number].shape))[dimension]
        }
        return math.prod(mesh.axis_size(axis) for axis in axes)

    def named(self, what: str) -> list[str]:
        """The names of the inputs ("input") or outputs ("output"), in order."""
        return [name for name in self.plans if name.startswith(what)]


def run_case(
    case: Case,
    *,
    size: int | None = None,
    dtype: str | None = None,
    seed: int = 0,
    mesh: Mesh | None = None,
    layout: Layout | None = None,
    calls: int = 3,
    typical: float = 0.0,
    check: str | None = None,
) -> CaseRun:
    """Place seeded inputs, compile and call the program. Collective.

    The calls before the checked one get other inputs, so that a stale result is detected. Calls
    with the same inputs are compared with each other; the checked one is repeated for that.

    Args:
        case: The program to run.
        size: The "n" of its shapes; None means the case's default, rounded up to a size that
            the mesh divides.
        dtype: Element type; None means the case's first.
        seed: Seed of the inputs, 0 or more.
        mesh: None means all devices, as square as their number allows.
        layout: One of ``case.layouts(mesh)``; None means the first.
        calls: Number of timed calls, 1 or more, including the checked one.
        typical: Standard deviations of rounding that a result may be off; 0 for no such limit.
        check: Where a large product is checked (`product.on_devices`); None chooses by platform.

    Raises:
        MismatchError: The runtime's outputs differ from the oracle's in number, shape or dtype.
        PyReactantError: Placing, compiling or running failed.
    """
    dtype = case.dtypes[0] if dtype is None else dtype
    mesh = default_mesh(len(devices())) if mesh is None else mesh
    size = case.size_for(mesh) if size is None else size
    layout = case.layouts(mesh, size)[0] if layout is None else layout
    shardings = [NamedSharding(mesh, spec) for spec in layout.in_specs]
    start = time.perf_counter()
    args, _ = _place(sources(case.inputs(size, dtype), seed, first=_BEFORE), shardings)
    placed = time.perf_counter()
    compiled = _compile(case, size, args, mesh, layout)
    seconds: dict[str, Any] = {"place": placed - start, "compile": time.perf_counter() - placed}
    bits, times = [], []
    for _ in range(max(2, calls)):
        outputs, last = _call(compiled, case.arguments(args))
        times.append(last)
        bits.append(_bits(outputs))
    del args, outputs  # one set of arrays is held at a time
    run = CaseRun(
        case=case,
        size=size,
        dtype=dtype,
        seed=seed,
        layout=layout,
        compiled=compiled,
        repeats=_repeats(bits, 1),
        typical=typical,
        check=check,
    )
    run, last = _call_twice(run, shardings, first=len(times) + 1)
    _check_outputs(run)
    times = [*times[1:], last][-calls:]  # the very first call warms up
    seconds |= {"call": statistics.median(times), "calls": times}
    return replace(run, seconds=seconds)


def run_again(run: CaseRun, data: InputSet) -> CaseRun:
    """Call the compiled program of a run twice with another set of inputs. Collective.

    The arrays of `run` can be dropped before; nothing here needs them.

    Args:
        run: A finished run of the case.
        data: The set of inputs.
    """
    shardings = [run.plans[name].sharding for name in run.named("input")]
    return _call_twice(replace(run, data=data, before=run.data, repeats=()), shardings)[0]


def _call_twice(
    run: CaseRun, shardings: Sequence[NamedSharding], first: int = 1
) -> tuple[CaseRun, float]:
    """Call a program twice with the inputs of a run.

    Args:
        run: The run, whose arrays are not needed.
        shardings: Shardings of the inputs.
        first: Number of the first of these calls, which is the checked one.

    Returns:
        The run with the arrays of the checked call, and the seconds of that.
    """
    args, digests = _place(run.sources(), shardings)
    given = run.case.arguments(args)
    outputs, seconds = _call(run.compiled, given)
    repeats = _repeats([_bits(outputs), _bits(_call(run.compiled, given)[0])], first)
    arrays = _by_name("input", args) | _by_name("output", outputs)
    plans = {
        name: ArrayPlan(array.shape, array.dtype.name, array.sharding)
        for name, array in arrays.items()
    }
    called = replace(
        run,
        plans=plans,
        arrays=arrays,
        digests=_by_name("input", digests),
        repeats=(*run.repeats, *repeats),
    )
    return called, seconds


_Bits = dict[tuple[str, Device], str]
"""The digest of each block of this process, by output and device."""


def _bits(outputs: Sequence[ShardedArray]) -> _Bits:
    return {
        (name, shard.device): digest(shard.data)
        for name, array in _by_name("output", outputs).items()
        for shard in array.addressable_shards
    }


def _repeats(calls: Sequence[_Bits], first: int) -> list[dict[str, Any]]:
    """Blocks whose bits differ from those of the first call, of number `first`."""
    return [
        {
            "array": name,
            "device": device.position,
            "process": device.process_index,
            "call": number,
            "first": first,
        }
        for number, bits in enumerate(calls[1:], first + 1)
        for (name, device), block_digest in bits.items()
        if block_digest != calls[0][name, device]
    ]


def digest(block: np.ndarray) -> str:
    """Checksum of a block's bytes in C order."""
    if not block.size:
        return "00000000"
    data = np.asarray(block, order="C").reshape(-1).view(np.uint8)
    return f"{zlib.crc32(data.data):08x}"


def _place(
    sources: Sequence[Source], shardings: Sequence[NamedSharding]
) -> tuple[list[ShardedArray], list[dict[str, str]]]:
    arrays, digests = [], []
    for source, sharding in zip(sources, shardings, strict=True):
        by_block: dict[str, str] = {}
        read = functools.partial(_read_and_digest, source, by_block)
        arrays.append(from_callback(source.shape, source.dtype, sharding, read))
        digests.append(by_block)
    return arrays, digests


def _read_and_digest(source: Source, by_block: dict[str, str], index: Index) -> np.ndarray:
    block = source.read(index)
    by_block[block_text(index)] = digest(block)
    return block


def _compile(
    case: Case, size: int, args: Sequence[ShardedArray], mesh: Mesh, layout: Layout
) -> Compiled:
    given = case.arguments(args)
    how = functools.partial(
        compile, case.program, *given, precision=PRECISION, static=case.static(size)
    )
    specs = layout.out_specs
    if not specs:
        # Only the runtime knows the number and shapes of the outputs: compile once to get them.
        specs = tuple(default_spec(mesh, aval.shape) for aval in _listed(how().outputs))
    out = tuple(NamedSharding(mesh, spec) for spec in specs)
    if len(out) == 1:
        return how(out_sharding=out[0])
    try:
        return how(out_sharding=out)
    except ValueError:
        # The results may be another tree than a tuple, or of another number.
        return how(out_sharding=_as_results(case, how(), out))


def _as_results(case: Case, free: Compiled, out: Sequence[NamedSharding]) -> Any:
    """The shardings in the structure of a program's results."""
    got = len(_listed(free.outputs))
    if got != len(out):
        raise MismatchError(
            f"program {case.name!r} must return {counted(len(out), 'output')}, as its oracle "
            f"does, got {got}; "
            "make the body return as many outputs as the oracle"
        )
    return current().backend.trees.unflatten(free.executable.structure, out)


def _listed(outputs: Any) -> list[Any]:
    """The arrays of a result, which may be a tree."""
    return current().backend.trees.flatten(outputs)[0]


def _call(compiled: Compiled, args: Sequence[Any]) -> tuple[list[ShardedArray], float]:
    start = time.perf_counter()
    outputs = _listed(compiled(*args))
    for output in outputs:
        output.block_until_ready()
    return outputs, time.perf_counter() - start


def _check_outputs(run: CaseRun) -> None:
    case, plans = run.case, [run.plans[name] for name in run.named("output")]
    got = [f"{plan.dtype}{list(plan.shape)}" for plan in plans]
    if case.outputs is not None:
        planned = case.outputs(run.size, run.dtype)
        right = [[f"{name}{list(array.shape)}" for name in array.dtypes] for array in planned]
        types = ["integers" if len(a.dtypes) > 2 else " or ".join(a.dtypes) for a in planned]
        names = [f"{name}{list(a.shape)}" for name, a in zip(types, planned, strict=True)]
    elif case.program.out_dtypes:
        got = [plan.dtype for plan in plans]
        right = [[name] for name in case.program.out_dtypes]
        names = list(case.program.out_dtypes)
    else:
        return
    if len(got) != len(right) or any(g not in r for g, r in zip(got, right, strict=True)):
        raise MismatchError(
            f"program {case.name!r} on {backend_name()}: outputs must be {', '.join(names)}, as "
            f"from its oracle or out_dtypes=, got {', '.join(got)}; make the bodies return the "
            "same, or give Program(..., out_dtypes=) with one element type for each result"
        )


def _by_name(what: str, items: Sequence[Any]) -> dict[str, Any]:
    return {f"{what} {number}": item for number, item in enumerate(items)}
