"""A user's Program as a case, with defaults for everything that it does not define."""

import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays import stablehlo
from ...arrays.domain import Domain
from ...arrays.dtypes import EXTENDED, NAMES, as_dtype, is_float
from ...arrays.inputs import Integers, Named, Uniform, as_arguments, check_names, flat
from ...arrays.inputs import Shape as Sizes
from ...arrays.mesh import Mesh
from ...arrays.program import Program, body_name, load
from ...arrays.sharding import Index, as_entry
from ...base.errors import InvalidArgumentError
from ...base.imports import users_place
from ...base.say import say
from ...base.steps import step
from ..bounds.estimate import (
    estimate,
    in_short,
    leaves,
    moved_by_constants,
    outputs_of,
    rounded_ranges,
    tracked_ranges,
    tracked_results,
    with_ranges,
)
from ..bounds.model import Model
from ..bounds.runs import COUNT, Rounding, Runs, as_runs
from ..bounds.tracked import Tracked, UnknownOperationError
from ..regions import read_whole, whole_index
from .case import (
    ASSUMED,
    Case,
    Input,
    Inputs,
    Layout,
    Oracle,
    Output,
    Shape,
    default_spec,
)
from .ordinary import source
from .stated import ArgumentsOf, Trial, in_full

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128", "int32", "bool")


class NoShapesError(InvalidArgumentError):
    """A program, or a function, that does not say the shapes of its arguments."""


def case_of(program: Program) -> Case:
    """A user's program as a case; its oracle computes whole arrays.

    Raises:
        NoShapesError: The program lacks the shapes of its inputs.
    """
    if program.stablehlo is not None:
        return _of_a_file(program)
    if not program.inputs:
        raise NoShapesError(
            f"Program {program.name!r}: a cross-check must know the shapes of its arguments; give "
            "them, for instance as Program(..., inputs=(('n', 'n'), ('n',)))"
        )

    field = "jax" if program.oracle is None else "oracle"
    if isinstance(program.inputs, Named) and getattr(program, field) is not None:
        check_names(program.name, program.inputs, load(program, field), field)

    def inputs(n: int, dtype: str) -> tuple[Input, ...]:
        return tuple(_input(place, entry, n, dtype) for place, entry in flat(program.inputs))

    summary = f"user's program {body_name(program.jax or program.julia)}"
    return _case(program, summary, DTYPES, inputs)


def _input(place: str, entry: Sizes | Integers | Uniform, n: int, dtype: str) -> Input:
    """One array of the arguments; entry is its shape or its range."""
    if isinstance(entry, tuple):
        return Input(place, tuple(_size(part, n) for part in entry), dtype)
    shape = tuple(_size(part, n) for part in entry.shape)
    if isinstance(entry, Integers):
        return Input(place, shape, "int32", "indices", high=entry.high, low=entry.low)
    kind = as_dtype(dtype)
    real = np.empty(0, kind).real.dtype.name if kind.kind == "c" else dtype
    real = "float32" if kind.kind in "biu" else real
    return Input(place, shape, real, "ranged", high=entry.high, low=entry.low)


def _of_a_file(program: Program) -> Case:
    """A StableHLO file as a case: its arguments have the shapes and types that the file says."""
    data = stablehlo.read(program)
    arguments = stablehlo.arguments(program, data)
    if not arguments:
        raise InvalidArgumentError(
            f"{stablehlo.label(program)} has no arguments, so there is nothing to shard and "
            "check; export a function of arrays"
        )
    if program.inputs not in ((), shapes := tuple(shape for shape, _ in arguments)):
        raise InvalidArgumentError(
            f"{stablehlo.label(program)} takes arguments of the shapes {shapes}, got inputs="
            f"{program.inputs}; leave inputs= away"
        )
    types = [as_dtype(name).name for _, name in arguments]
    dtype = next((name for name in types if is_float(as_dtype(name))), types[0])

    moving = [is_float(as_dtype(name)) == is_float(as_dtype(dtype)) for name in types]

    def inputs(n: int, dtype: str) -> tuple[Input, ...]:
        return tuple(
            Input(f"argument {i}", shape, types[i], "uniform" if moving[i] else "chooses")
            for i, (shape, _) in enumerate(arguments)
        )

    summary = f"StableHLO file {program.stablehlo} (blake2b {stablehlo.digest(data)})"
    return _case(program, summary, (dtype,), inputs)


def _case(program: Program, summary: str, dtypes: tuple[str, ...], inputs: ArgumentsOf) -> Case:
    domain = _domain(program, len(inputs(1, dtypes[0])))
    oracle = None if program.oracle is None else _Oracle(program)
    outputs = None if oracle is None else functools.lru_cache(_outputs(program, oracle, inputs))

    def candidates(mesh: Mesh, n: int) -> Iterable[Layout]:
        shapes = [array.shape for array in inputs(n, dtypes[0])]
        of_results = [] if outputs is None else [array.shape for array in outputs(n, dtypes[0])]
        default = tuple(default_spec(mesh, shape) for shape in of_results)
        rows = (as_entry(mesh.axis_names),)
        yield Layout(tuple(default_spec(mesh, shape) for shape in shapes), default)
        yield Layout(tuple(rows if shape else () for shape in shapes), default)
        yield Layout(tuple(() for _ in shapes), default)

    case = Case(
        program=program,
        summary=summary,
        dtypes=dtypes,
        default_size=64,
        inputs=functools.lru_cache(inputs),
        outputs=outputs,
        candidates=candidates,
        needs=lambda output, index, shapes: tuple(map(whole_index, shapes)),
        oracle=None,
        exact=domain.moves,
        domain=domain,
        arguments=functools.partial(as_arguments, program.inputs),
    )
    if oracle is None:
        return case
    results = _Results(oracle)
    case = replace(
        case,
        oracle=Oracle(results.block, first=results.whole),
        runs=results.runs,
        of_class=results.of_class,
        seconds=oracle.seconds,
    )
    if program.domain is None:
        return case
    function = oracle.arranged(oracle.function)
    trial = Trial(program.name, domain, oracle=oracle, function=function, inputs=inputs)
    return replace(
        case, inputs=functools.lru_cache(trial.inputs), tried=functools.lru_cache(trial.sums)
    )


def _domain(program: Program, count: int) -> Domain:
    """What is stated of a program; by default that it takes wide inputs in [-1, 1) only."""
    domain = program.domain or ASSUMED
    if domain.moves or domain.sums:
        ranged = [place for place, entry in flat(program.inputs) if isinstance(entry, Uniform)]
        if ranged:
            raise InvalidArgumentError(
                f"Program {program.name!r}: domain= with moves=True or sums=True gives it numbers "
                f"beyond the range that pyreactant.Uniform states of {ranged[0]}; give its shape "
                "instead, or leave domain= away"
            )
    if max(domain.special_arguments, default=0) >= count:
        raise InvalidArgumentError(
            f"Program {program.name!r}: domain= names special values of argument "
            f"{max(domain.special_arguments)}, but the program takes {count}; arguments count "
            "from 0"
        )
    return domain


class OracleError(InvalidArgumentError):
    """An oracle cannot be used; other programs of a cross-check run without it."""


class _Oracle:
    """A user's oracle on copies of NumPy arrays; its errors are raised with its name.

    Attributes:
        function: The user's function.
    """

    def __init__(self, program: Program) -> None:
        self.function = load(program, "oracle")
        self._inputs = program.inputs
        self._shapes: dict[tuple[Shape, ...], tuple[Shape, ...]] = {}
        self._seconds: dict[tuple[Shape, ...], _Seconds] = {}
        self._name = f"Program {program.name!r}: its oracle {body_name(program.oracle)!r}"

    def __call__(self, *arrays: np.ndarray) -> Any:
        start, busy = time.monotonic(), time.thread_time()
        try:
            # An oracle may change its arguments, which later runs and the devices still need.
            result = self.arranged(self.function)(*(array.copy() for array in arrays))
        except (Exception, SystemExit) as error:
            place = users_place(error)
            got = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
            raise OracleError(
                f"{self._name} must run on NumPy arrays, such as {got}, but it raised "
                f"{type(error).__name__}: {error}{f' ({place})' * bool(place)}; "
                "correct the oracle"
            ) from error
        problem = _problem(result)
        if problem:
            raise OracleError(
                f"{self._name} must return an array of numbers, or a tree of such arrays, got "
                f"{problem}"
            )
        shapes = tuple(map(np.shape, leaves(result)))
        given = _shapes(arrays)
        known = self._shapes.setdefault(given, shapes)
        if shapes != known:
            raise OracleError(
                f"{self._name} must return arrays of the same shapes for all numbers, as a "
                f"compiled program does, got {_text(known)} and {_text(shapes)}; correct the oracle"
            )
        now = _Seconds(time.monotonic() - start, time.thread_time() - busy)
        before = self._seconds.get(given, now)  # a busy machine may have made it slow
        self._seconds[given] = _Seconds(min(before.passed, now.passed), min(before.busy, now.busy))
        return result

    def cost(self, arrays: Sequence[np.ndarray]) -> tuple[int, "_Seconds"]:
        """Elements of the largest result for such arguments, and how long a call takes."""
        given = _shapes(arrays)
        if given not in self._seconds:
            with np.errstate(all="ignore"):
                self(*map(in_full, arrays))
        largest = max(math.prod(shape) for shape in self._shapes[given])
        return largest, self._seconds[given]

    def seconds(self) -> float:
        """How long a call takes, of those for the largest arguments; 0 before the first one."""
        return max((seconds.passed for seconds in self._seconds.values()), default=0.0)

    def check_steady(self, results: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> None:
        """Check that two calls with the same arguments have the same results.

        Raises:
            OracleError: They differ by more than sums in another order do, as those of threads or
                of arrays at other addresses. So no result can be compared with them.
        """
        both = zip(results, again, strict=True)
        if not all(_same(*pair) for pair in both):
            raise OracleError(
                f"{self._name} must return the same numbers for the same arguments, and two calls "
                "differ; draw no random numbers in it, or seed them there, and let it change no "
                "globals"
            )

    def arranged(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of all arrays that makes of them the arguments of this one."""
        return lambda *arrays: function(*as_arguments(self._inputs, arrays))


class _Seconds(NamedTuple):
    """How long a call took: the time that passed, and the processor's."""

    passed: float
    busy: float


def _shapes(arrays: Sequence[np.ndarray]) -> tuple[Shape, ...]:
    return tuple(array.shape for array in arrays)


_UNSTEADY = 64
"""How far two calls of an oracle may be apart, in units of the result's largest number."""


def _same(result: np.ndarray, again: np.ndarray) -> bool:
    """Whether all elements are equal but for rounding, or NaN in both."""
    same = (result == again) | ((result != result) & (again != again))
    if result.dtype.kind in "fc":
        sizes = np.abs(result)
        largest = np.max(sizes, initial=0.0, where=np.isfinite(sizes))
        same |= np.abs(result - again) <= _UNSTEADY * np.finfo(result.dtype).eps * largest
    return bool(np.all(same))


def _text(shapes: tuple[Shape, ...]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes)


def _problem(result: Any) -> str:
    """Why an oracle's result cannot be compared with a program's, and what to do; "" if it can."""
    try:
        results = leaves(result)
    except TypeError as error:  # runtimes sort the keys of a dict
        return f"a dict whose keys have no order ({error}); use keys of one type"
    if not results:
        return f"{result!r}, which has none; return the expected result"
    nested = isinstance(result, list) and isinstance(result[0], list)
    if nested and all(isinstance(result, (bool, int, float, complex)) for result in results):
        return "a list of lists of numbers, whose every number is one result; return an array"
    for result in results:
        if isinstance(result, np.ma.MaskedArray):
            return "a masked array, whose masked elements have no value; return filled(...) of it"
        dtype = np.asarray(result).dtype
        if dtype.kind not in "biufc" and dtype.name not in EXTENDED:
            return f"{type(result).__name__} ({dtype}); return an array of numbers or booleans"
        if dtype.name not in NAMES:
            return f"{dtype.name}, which no runtime has; convert it to float64 or complex128"
    return ""


_SECONDS = 2.0
"""Processor time that all runs of an oracle may take, by that of one."""

_LARGEST = 2**20
"""Elements of an array in each run: with all runs, 150 MB."""

_PATIENCE = 30.0
"""Seconds of a call beyond which an oracle is called for its bounds only."""


class _Results:
    """The results of a user's oracle on whole arrays, with bounds if they are rounded."""

    def __init__(self, oracle: _Oracle) -> None:
        self._oracle = oracle

    def whole(self, inputs: Inputs) -> tuple[Any, ...]:
        """All results; blocks share them."""
        step(f"running the oracle {'on exact numbers' if inputs.model is None else 'with bounds'}")
        parts, model = inputs.read_all(), inputs.model
        if model is None:
            with np.errstate(all="ignore"):
                return outputs_of(self._oracle(*map(in_full, parts)))
        if not any(isinstance(part, Tracked) for part in parts):  # of integers alone
            parts = tuple(Tracked(part, 0.0, model) for part in parts)
        derived = self._derive(parts, model)
        if not isinstance(derived, str):
            return derived
        plain = tuple(p.value if isinstance(p, Tracked) else p for p in parts)
        with np.errstate(all="ignore"):
            return estimate(self._oracle, plain, model, derived, self._rounded_constants(model))

    def block(self, output: int, index: Index, inputs: Inputs) -> Any:
        """A block of one result."""
        return inputs.shared[output][index]

    def runs(self, arrays: Sequence[np.ndarray], model: Model) -> tuple[Runs, ...]:
        """All results with random roundings.

        Raises:
            UnknownOperationError: The oracle calls something without a rule, needs NumPy's own
                arrays, or is slow.
        """
        self._check_cost(arrays)
        step(f"running the oracle {COUNT + 1} times at once, with random roundings")
        rounding, function = Rounding(model), self._oracle.function
        if not model.is_short:
            function = with_ranges(function, rounding.range) or function
        try:
            results = self._oracle.arranged(function)(*(rounding.input(array) for array in arrays))
        except (MemoryError, UnknownOperationError):
            raise
        except Exception as error:
            raise UnknownOperationError(
                f"the oracle needs NumPy arrays ({type(error).__name__}: {in_short(error)})"
            ) from error
        return tuple(as_runs(leaf, model, rounding) for leaf in leaves(results))

    def of_class(self, arrays: Sequence[np.ndarray], kind: type) -> tuple[np.ndarray, ...]:
        """All results, computed with NumPy arrays of another class; ranges are of it, too.

        Raises:
            UnknownOperationError: The oracle cannot run on such arrays.
        """
        own = self._oracle.function
        function = with_ranges(own, lambda values: values.view(kind)) or own
        try:
            arguments: list[Any] = [array.copy().view(kind) for array in arrays]
            return outputs_of(self._oracle.arranged(function)(*arguments))
        except Exception as error:
            raise UnknownOperationError(in_short(error)) from error

    def _check_cost(self, arrays: Sequence[np.ndarray]) -> None:
        largest = max(array.size for array in arrays)
        if largest > _LARGEST:
            raise UnknownOperationError(f"an argument has more than {_LARGEST} elements")
        size, (passed, busy) = self._oracle.cost(arrays)
        if size > _LARGEST:
            raise UnknownOperationError(f"a result has more than {_LARGEST} elements")
        if COUNT * busy > _SECONDS:
            raise UnknownOperationError(
                f"the oracle takes {busy:.2g} s, and {COUNT} runs may take {_SECONDS:g} s"
            )
        if passed > _PATIENCE:
            raise UnknownOperationError(f"a call of the oracle takes {passed:.2g} s")

    def _derive(self, parts: tuple[Any, ...], model: Model) -> tuple[Any, ...] | str:
        """The results with bounds, or why the oracle cannot run on Tracked arrays.

        Bounds cover how the program computes constants from ranges. Shorter types than float32
        have their constants computed in float32 and rounded, which the bound of a constant covers.
        """
        function, arranged = self._oracle.function, self._oracle.arranged
        if model.is_short:
            return tracked_results(arranged(function), parts, model)
        ranged = with_ranges(function, tracked_ranges(model))
        results = "" if ranged is None else tracked_results(arranged(ranged), parts, model)
        if not isinstance(results, str):
            return results
        plain = tracked_results(arranged(function), parts, model)
        other = self._rounded_constants(model)
        if isinstance(plain, str) or other is None:
            return plain
        moved = tracked_results(other, parts, model)
        return plain if isinstance(moved, str) else moved_by_constants(plain, moved, results)

    def _rounded_constants(self, model: Model) -> Callable[..., Any] | None:
        """The oracle on copies, with its constants computed in the runtime's type."""
        if model.is_short:
            return None
        function = with_ranges(self._oracle.function, rounded_ranges(model))
        if function is None:
            return None
        arranged = self._oracle.arranged(function)
        return lambda *parts: arranged(*(p.copy() for p in parts))


def _outputs(
    program: Program, oracle: _Oracle, inputs: ArgumentsOf
) -> Callable[[int, str], tuple[Output, ...]]:
    """Shapes and element types of the results, which the oracle shows if it runs once."""

    def outputs(n: int, dtype: str) -> tuple[Output, ...]:
        arrays = [in_full(read_whole(source(one, 0, i))) for i, one in enumerate(inputs(n, dtype))]
        step(f"running the oracle of {program.name}, the first call")
        with np.errstate(all="ignore"):
            results = outputs_of(oracle(*arrays))
            if (seconds := oracle.seconds()) > _PATIENCE:
                say(
                    f"the oracle of {program.name} took {seconds:.3g} s for a call, so it is not "
                    "called a second time to see whether its numbers are the same; a smaller size "
                    "takes less"
                )
            else:
                step(f"running the oracle of {program.name}, the same call again")
                oracle.check_steady(results, outputs_of(oracle(*arrays)))
        wanted = program.out_dtypes
        if wanted and len(wanted) != len(results):
            raise InvalidArgumentError(
                f"Program {program.name!r}: out_dtypes= must have an element type for each "
                f"result of the oracle, {len(results)} in all, got {len(wanted)}"
            )
        own = (array for one, array in zip(inputs(n, dtype), arrays, strict=True) if one.is_data)
        given = next(own, arrays[0]).dtype
        return tuple(
            Output(one.shape, wanted[i] if wanted else out_dtypes(dtype, given, one.dtype))
            for i, one in enumerate(results)
        )

    return outputs


def _size(entry: str | int, n: int) -> int:
    if isinstance(entry, int):
        return entry
    return int(entry[:-1] or 1) * n


INTEGERS = tuple(name for name in NAMES if "int" in name)


def out_dtypes(program: str, given: np.dtype[Any], result: np.dtype[Any]) -> tuple[str, ...]:
    """The element types that a result may have.

    It has the program's type, or its complex or real partner; a narrower one if the oracle
    converts to it. NumPy may also compute in a wider type than the program, so both are accepted
    then. Comparisons give bool, and indices any integer type, because runtimes differ in it.

    Args:
        program: Name of the program's element type.
        given: Type of the oracle's arguments; float64 if NumPy lacks the program's type.
        result: Type of the oracle's result.
    """
    if result.kind == "b":
        return ("bool",)
    if result.kind in "iu":
        return INTEGERS
    if given.kind in "biu":  # quotients and means of integers
        return ("complex64", "complex128") if result.kind == "c" else ("float32", "float64")
    own = _partner(as_dtype(program), result.kind).name
    usual = _partner(given, result.kind)
    if result == usual:
        return (own,)
    if program in EXTENDED or result.itemsize > usual.itemsize:
        return (own, result.name)
    return (result.name,)


def _partner(dtype: np.dtype[Any], kind: str) -> np.dtype[Any]:
    """The complex type of a real one, or the real one of a complex one."""
    if kind == "c":
        return np.result_type(np.complex64, dtype if dtype.name not in EXTENDED else np.float16)
    return np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype
