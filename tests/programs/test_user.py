"""Programs by name: built-in programs and user programs."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.program import find_object
from pyreactant.check.bounds.model import Model
from pyreactant.check.bounds.tracked import Tracked
from pyreactant.check.inputs import sources
from pyreactant.check.programs import CASES, find_case
from pyreactant.check.programs.case import default_spec
from pyreactant.check.programs.user import INTEGERS, case_of
from pyreactant.check.regions import whole_index
from tests.harness import environment
from tests.programs import own
from tests.programs.common import GRID, LINE, check_block, run

MODEL = Model.of("float32", partials=8)


def test_names_and_summaries_load_no_runtime() -> None:
    code = (
        "import sys; from pyreactant.check.programs import CASES; "
        "print(len([c.summary for c in CASES.values()]), 'jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["21", "False"]


def test_a_case_is_found_by_name() -> None:
    assert find_case("matmul") is CASES["matmul"]
    assert find_case("tests.programs.own:A_CASE") is own.A_CASE
    assert find_case("tests.programs.own:PRODUCT").program is own.PRODUCT
    assert next(iter(CASES)) == "matmul"
    with pytest.raises(KeyError):
        CASES["nothing"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("matmull", "no program 'matmull': did you mean 'matmul'"),
        ("zzz", "no program 'zzz': `pyreactant crosscheck --list` shows"),
        ("", "no program '': `pyreactant crosscheck --list` shows"),
        ("tests.programs.own:", "shows the built-in ones; .*'package.module:object'"),
        ("no.such:program", "named 'no'; start where it can be .*, such as no/such.py:NAME"),
        (
            "tests.programs.own:missing",
            r"cannot import program 'tests.programs.own:missing': .* has no attribute 'missing'; "
            r"Python imported /.*own.py; .*, such as DIR/tests/programs/own.py:missing, or rename",
        ),
        ("queue:right", r"module 'queue' has no attribute 'right'; Python imported /.*/queue.py;"),
        ("sys:right", "'right'; Python imported a module that is built in; for another file"),
        ("tests.programs.own:NUMBER", "must be a pyreactant.Program, got int; name a program$"),
        (
            "tests.programs.own:norms",
            r"got function; .*, such as pr.Program\('NAME', jax='tests.pr",
        ),
        ("tests.programs.own:NO_INPUTS", r"give them, for instance as Program\(\.\.\., inputs="),
    ],
)
def test_names_that_are_no_program(name: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        find_case(name)


def test_shapes_come_from_the_program_and_its_oracle() -> None:
    case = find_case(own.PRODUCT)
    assert [one.shape for one in case.inputs(16, "float32")] == [(32, 16), (16, 8)]
    assert case.outputs is not None
    assert [one.shape for one in case.outputs(16, "float32")] == [(32, 8), (32,)]
    assert {one.dtypes for one in case.outputs(16, "float32")} == {("float32",)}
    layouts = case.layouts(GRID, 16)
    assert layouts[0].in_specs == (("x", "y"), ("x", "y"))
    assert layouts[0].out_specs == (("x", "y"), ("x",))
    assert len(layouts) == 3
    assert default_spec(GRID, (3, 4)) == (None, "x")


@pytest.mark.parametrize(
    ("oracle", "dtype", "expected"),
    [
        (np.negative, "float32", "float32"),
        (np.negative, "bfloat16", "bfloat16"),
        (lambda x: x / np.sqrt(np.float64(8)), "float32", "float32 float64"),
        (lambda x: x.astype(np.float16), "float32", "float16"),
        (lambda x: x.astype(np.float32), "bfloat16", "bfloat16 float32"),
        (lambda x: np.fft.fft(x), "float32", "complex64"),
        (lambda x: np.fft.fft(x), "float64", "complex128"),
        (lambda x: np.fft.fft(x), "bfloat16", "complex64"),
        (np.abs, "complex64", "float32"),
        (np.abs, "complex128", "float64"),
        (lambda x: x > 0, "float16", "bool"),
        (lambda x: x.argmax(axis=1), "float32", " ".join(INTEGERS)),
        (lambda x: x.sum(axis=1), "int32", " ".join(INTEGERS)),
        (lambda x: x / 2, "int32", "float32 float64"),
        (lambda x: x * 1j, "int32", "complex64 complex128"),
    ],
)
def test_element_types_of_results(oracle: Any, dtype: str, expected: str) -> None:
    outputs = find_case(pr.Program("p", jax=abs, oracle=oracle, inputs=(("n", "n"),))).outputs
    assert outputs is not None
    assert outputs(8, dtype)[0].dtypes == tuple(expected.split())


def test_given_element_types_of_results() -> None:
    given = pr.Program("p", jax=abs, oracle=np.negative, inputs=(("n",),), out_dtypes=("bfloat16",))
    outputs = find_case(given).outputs
    assert outputs is not None
    assert outputs(8, "float32")[0].dtypes == ("bfloat16",)
    outputs = find_case(replace(given, out_dtypes=("int32", "bool"))).outputs
    assert outputs is not None
    with pytest.raises(pr.InvalidArgumentError, match="result of the oracle, 1 in all, got 2"):
        outputs(8, "float32")
    with pytest.raises(pr.InvalidArgumentError, match=r"one element type per result, such as"):
        replace(given, out_dtypes="int32")
    with pytest.raises(pr.DTypeError, match="unknown dtype 'float13'"):
        replace(given, out_dtypes=("float13",))


def test_blocks_of_a_user_s_oracle_have_a_derived_bound() -> None:
    case = find_case(own.PRODUCT)
    inputs = sources(case.inputs(16, "float32"), 0)
    x, y = (one.read(whole_index(one.shape)) for one in inputs)
    index = (slice(4, 8), slice(0, 3))
    block = case.expected(0, index, inputs, MODEL)
    assert isinstance(block, Tracked)
    assert not block.estimated
    np.testing.assert_allclose(block.value, 0.1 * (x.astype(float) @ y.astype(float))[index])
    assert check_block((np.float32(0.1) * (x @ y))[index], block) <= 1
    exact = case.expected(1, (slice(0, 5),), sources(case.inputs(16, "int32"), 0), None)
    assert isinstance(exact, np.ndarray)
    assert not case.random  # a user's inputs may be anything
    assert CASES["matmul"].random


def test_what_has_no_derived_bound_is_estimated() -> None:
    case = find_case(own.NORMS)
    inputs = sources(case.inputs(16, "float32"), 0)
    block = case.expected(0, (slice(2, 9),), inputs, MODEL)
    assert isinstance(block, Tracked)
    assert block.estimated == "no error bound is known for numpy.linalg.norm with ord=2"
    x = inputs[0].read(whole_index((16, 16)))
    assert check_block(np.linalg.norm(x, axis=1)[2:9], block) <= 1


def quotes_arrays(x: np.ndarray) -> Any:
    if not isinstance(x, np.ndarray):
        raise TypeError("no array:\n" + "[0.1 0.2 0.3]\n" * 1000)
    return x * 2


def test_the_reason_of_an_estimate_is_short() -> None:
    program = pr.Program("quotes", jax="jax.numpy:add", oracle=quotes_arrays, inputs=(("n", "n"),))
    case = find_case(program)
    block = case.expected(0, (slice(0, 2),), sources(case.inputs(8, "float32"), 0), MODEL)
    assert isinstance(block, Tracked)
    reason = "the oracle needs NumPy arrays (TypeError: no array: [0.1 0.2 0.3] [0.1"
    assert block.estimated.startswith(reason)
    assert len(block.estimated) < 250


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (own.LISTING, "no error bound is known for numpy.ndarray.tolist"),
        (own.INSISTING, "the oracle needs NumPy arrays (ValueError: not an array: Tracked)"),
    ],
)
def test_an_oracle_for_plain_arrays_alone_has_an_estimated_bound(
    program: pr.Program, reason: str
) -> None:
    case = find_case(program)
    inputs = sources(case.inputs(16, "float32"), 0)
    block = case.expected(0, (slice(2, 9),), inputs, MODEL)
    assert isinstance(block, Tracked)
    assert block.estimated == reason
    x = inputs[0].read(whole_index((16, 16)))
    assert check_block(x.sum(axis=1)[2:9], block) <= 1


def test_a_conversion_to_a_longer_type_keeps_the_program_s_roundings() -> None:
    inputs = sources(find_case(own.CONVERTING).inputs(16, "float32"), 0)
    converted, plain = (
        find_case(pr.Program("p", jax=abs, oracle=oracle, inputs=(("n", "n"),))).expected(
            0, (slice(2, 9),), inputs, MODEL
        )
        for oracle in (own.converting_oracle, lambda x: x.sum(axis=1))
    )
    assert isinstance(converted, Tracked)
    assert isinstance(plain, Tracked)
    np.testing.assert_array_equal(converted.bound, plain.bound)
    assert not converted.estimated


def test_results_that_are_no_floats_have_exact_bounds() -> None:
    case = find_case(own.MASKING)
    x = sources(case.inputs(16, "float32"), 0)[0].read(whole_index((16, 16)))
    for number, wanted in enumerate(own.masking_oracle(x)):
        inputs = sources(case.inputs(16, "float32"), 0)
        block = case.expected(number, whole_index(np.shape(wanted)), inputs, MODEL)
        assert isinstance(block, Tracked)
        assert not block.estimated
        assert block.value.dtype == np.float64
        np.testing.assert_array_equal(block.value, wanted)
        assert not block.bound.any()


@pytest.mark.parametrize("program", [own.CHANGING, own.WRITING])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_an_oracle_may_change_its_arguments(program: pr.Program, dtype: str) -> None:
    case = find_case(program)
    x = np.ascontiguousarray(sources(case.inputs(16, dtype), 0)[0].read(whole_index((16, 16))))
    kept = x.copy()
    inputs = (Held(x),)
    model = MODEL if dtype == "float32" else None
    wanted = np.cbrt(x + 1.0) if program is own.CHANGING else (x + 1) * 2
    for rows in (slice(2, 9), slice(0, 16)):
        block = case.expected(0, (rows, slice(0, 16)), inputs, model)
        value = block.value if isinstance(block, Tracked) else block
        np.testing.assert_allclose(value, wanted[rows], rtol=1e-6)
        if isinstance(block, Tracked):
            assert block.bound.max() < 1e-3
    np.testing.assert_array_equal(x, kept)


class Held:
    """A source that gives out its own array, as one that reads from devices does."""

    random = True

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def read(self, index: tuple[slice, ...]) -> np.ndarray:
        return self._array[index]


@pytest.mark.parametrize(
    ("program", "cause", "message"),
    [
        (own.BROKEN, ValueError, r"ValueError: this oracle is broken \(.*own.py, line \d+\)"),
        (own.MISSPELT, AttributeError, r"AttributeError: 'numpy.ndarray' .* 'summ'"),
        (own.LATE, FloatingPointError, "FloatingPointError: too much"),
    ],
)
def test_an_oracle_s_own_error_is_raised(
    program: pr.Program, cause: type[Exception], message: str
) -> None:
    case = find_case(program)
    named = rf"Program '{program.name}': its oracle '.*{program.name}_oracle' must run on NumPy"
    inputs = sources(case.inputs(16, "float32"), 0)
    for action in (
        lambda: case.layouts(GRID),
        lambda: case.expected(0, (slice(2, 9),), inputs, MODEL),  # with a bound
        lambda: case.expected(0, (slice(2, 9),), inputs, None),  # without
    ):
        with pytest.raises(pr.InvalidArgumentError, match=f"{named}.*float.*{message}") as raised:
            action()
        assert isinstance(raised.value.__cause__, cause)


def test_too_little_memory_does_not_lead_to_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(self: Tracked, *_: object, **__: object) -> Tracked:
        raise MemoryError

    case = find_case(own.PRODUCT)
    monkeypatch.setattr(Tracked, "__array_function__", fill)
    with pytest.raises(MemoryError):
        case.expected(1, (slice(2, 9),), sources(case.inputs(16, "float32"), 0), MODEL)


def test_without_an_oracle_only_the_runtime_knows_the_results() -> None:
    case = find_case(own.NO_ORACLE)
    assert case.outputs is None
    assert case.oracle is None
    assert case.layouts(LINE)[0].out_specs == ()
    with pytest.raises(NotImplementedError, match="'alone' has no oracle"):
        case.expected(0, (slice(0, 1),), sources(case.inputs(8, "float32"), 0), MODEL)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("program", [own.PRODUCT, own.NORMS])
def test_a_user_s_program_on_eight_devices(program: pr.Program) -> None:
    case = find_case(program)
    for mesh in (GRID, LINE):
        for layout in case.layouts(mesh):
            results, inputs = run(case, mesh, layout, "float32")
            for number, result in enumerate(results):
                for shard in result.addressable_shards:
                    block = case.expected(number, shard.index, inputs, MODEL)
                    assert check_block(shard.data, block) <= 1


def test_a_program_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "import pyreactant as pr\n"
        "def raises(x): raise ValueError('of the oracle')\n"
        "@pr.program(oracle=np.negative, inputs=(('n', 'n'),))\n"
        "def minus(x): return -x\n"
        "bad = pr.Program('bad', jax=lambda x: x, oracle=raises, inputs=(('n',),))\n"
    )
    case = find_case(f"{file}:minus")
    assert (case.name, case.summary) == ("minus", "user's program minus")
    assert case.outputs is not None
    assert case.outputs(8, "float32")[0].shape == (8, 8)
    bad = find_case(f"{file}:bad")
    assert bad.outputs is not None
    with pytest.raises(pr.InvalidArgumentError) as caught:
        bad.outputs(8, "float32")
    assert "Program 'bad': its oracle 'raises' must run on NumPy arrays" in str(caught.value)
    assert f"it raised ValueError: of the oracle ({file}, line 3); correct" in str(caught.value)
    for unnamed in (str(file), str(file.with_suffix(""))):
        with pytest.raises(pr.InvalidArgumentError, match=r"such as '.*mine\.py:program'"):
            find_case(unnamed)
    for missing in (f"{file}:none", f"{tmp_path}/none.py:f"):
        with pytest.raises(pr.InvalidArgumentError, match="cannot import program"):
            find_case(missing)


@pytest.mark.parametrize(
    ("oracle", "problem"),
    [
        pytest.param(lambda x: None, "got None, which has none", id="nothing"),
        pytest.param(lambda x: [], r"got \[\], which has none", id="empty"),
        pytest.param(lambda x: (x * 2).tolist(), "a list of lists of numbers", id="lists"),
        pytest.param(lambda x: "right", "got str", id="text"),
        pytest.param(lambda x: {1, 2}, r"got set \(object\)", id="set"),
        pytest.param(lambda x: np.array([None] * 4), r"got ndarray \(object\)", id="objects"),
        pytest.param(lambda x: np.ma.masked_less(x, 0), "got a masked array", id="masked"),
        pytest.param(lambda x: sys.exit(3), "it raised SystemExit: 3", id="exit"),
    ],
)
def test_an_oracle_without_numbers(oracle: Any, problem: str) -> None:
    program = pr.Program("odd", jax=lambda x: x, oracle=oracle, inputs=(("n", "n"),))
    case = case_of(program)
    assert case.outputs is not None
    with pytest.raises(pr.InvalidArgumentError, match=problem):
        case.outputs(8, "float32")


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    """In messages, and in the names of its functions, which other processes find, too."""
    file = tmp_path / "own.py"
    file.write_text("def f(x):\n    return x\n")
    f = find_object(f"{file}:f")
    assert f.__module__ == str(file)
    assert find_object(f"{f.__module__}:f") is f
    with pytest.raises(AttributeError, match=re.escape(f"module '{file}' has no attribute 'g'")):
        find_object(f"{file}:g")
