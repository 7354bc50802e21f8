"""What a user states of his program: its form, and the trial on the oracle."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.inputs import InputSet, input_sets
from pyreactant.check.programs import find_case
from pyreactant.check.request import CheckRequest, read_request, write_request

MOVES, SUMS, PRODUCTS = (
    pr.Domain(moves=True),
    pr.Domain(sums=True),
    pr.Domain(sums=True, degree=2),
)
SQUARE = (("n", "n"),)


def stated(oracle: Callable[..., Any], domain: Any, inputs: Any = SQUARE) -> pr.Program:
    return pr.Program("p", jax=abs, oracle=oracle, inputs=inputs, domain=domain)


def sets(program: pr.Program, dtype: str = "float32", size: int = 16) -> dict[str, InputSet]:
    return {one.name: one for one in input_sets(find_case(program), size, dtype)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"moves": 1}, "moves= must be True or False, got 1"),
        ({"sums": "yes"}, "sums= must be True or False, got 'yes'"),
        ({"moves": True, "sums": True}, "give one of them"),
        ({"degree": 0}, "most factors in a product, a whole number from 1 to 16, got 0"),
        ({"degree": True}, "a whole number from 1 to 16, got True"),
        ({"degree": 99}, "a whole number from 1 to 16, got 99"),
        ({"special": "nan"}, r"such as \('nan', 'inf'\), or for some .*, got 'nan'; kinds are"),
        ({"special": ("NaN",)}, r"got \('NaN',\); kinds are 'nan', 'inf', '-inf', 'zero'"),
        ({"special": {0: "nan"}}, r"such as \{0: \('nan',\)\}, got \{0: 'nan'\}"),
        ({"special": {-1: ("nan",)}}, "by their number"),
        ({"special": {"x": ("nan",)}}, "by their number"),
        ({"special": {0: ("nan",), "x": ("nan",)}}, "by their number"),
        ({"special": 3}, "by their number"),
        ({"exponents": 4}, r"exponents= must be \(low, high\), two whole numbers .*, got 4"),
        ({"exponents": (4, -4)}, r"with low < high .*, got \(4, -4\)"),
        ({"exponents": (0.5, 4)}, r"two whole numbers .*, got \(0.5, 4\)"),
        ({"exponents": (-4, 9999)}, "from -1024 to 1024"),
        ({"exponents": (20, 30)}, r"must overlap \(-20, 20\), .* got \(20, 30\)"),
        ({"exponents": (-30, -20)}, r"must overlap \(-20, 20\), .* got \(-30, -20\)"),
    ],
)
def test_bad_arguments_say_what_is_required(given: dict[str, Any], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=f"Domain: .*{message}"):
        pr.Domain(**given)


def test_a_program_takes_a_domain_only() -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"'p': domain= must be a pyreactant.Domain"):
        stated(np.copy, "moves")
    names_two = stated(np.copy, pr.Domain(special={2: ("nan",)}))
    with pytest.raises(pr.InvalidArgumentError, match=r"values of argument 2, but .* takes 1; arg"):
        find_case(names_two)


def test_a_domain_travels_with_its_program(tmp_path: Any) -> None:
    domain = pr.Domain(sums=True, degree=2, special={1: ["nan"], 0: ("inf",)}, exponents=(-4, 4))
    named = pr.program(
        name="p", oracle="numpy:matmul", inputs=(("n", "n"), ("n", "n")), domain=domain
    )(np.matmul)
    programs = tuple(
        replace(named, jax="numpy:matmul", name=name, domain=one)
        for name, one in (("a", domain), ("b", MOVES), ("c", None))
    )
    write_request(CheckRequest(programs=programs), tmp_path / "request.json")
    assert read_request(tmp_path / "request.json").programs == programs
    assert json.loads((tmp_path / "request.json").read_text())["programs"][2]["domain"] is None
    assert {*programs} == {*read_request(tmp_path / "request.json").programs}
    assert named.domain is domain


def masked(x: np.ndarray) -> np.ndarray:
    return np.where(np.tril(np.ones(x.shape, bool)), x, 0)


def laplacian(x: np.ndarray) -> Any:
    p = np.pad(x, 1)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x


@pytest.mark.parametrize(
    ("oracle", "domain", "terms", "lost"),
    [
        (lambda x: x.sum(), SUMS, 256, 0),
        (lambda x: np.cumsum(x, axis=1), SUMS, 16, 0),
        (lambda x: masked(x).sum(axis=0), SUMS, 16, 0),
        (laplacian, SUMS, 8, 0),  # whose weights add up to 0
        (lambda x: 0.25 * laplacian(x), SUMS, 2, 2),
        (lambda x: x.mean(), SUMS, 1, 8),
        (lambda x: x.T @ x, PRODUCTS, 16, 0),
        (lambda x: 3 * x * x - x + 5, PRODUCTS, 9, 0),
        (lambda x: np.array([sum(row) for row in x.tolist()]), SUMS, 256, 0),  # without a rule
    ],
)
def test_terms_come_from_the_oracle(oracle: Any, domain: Any, terms: int, lost: int) -> None:
    assert find_case(stated(oracle, domain)).sums(16, "float32") == (terms, lost)


def softmax(x: np.ndarray) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


WRONG: list[tuple[Any, Any, str]] = [
    (np.tanh, MOVES, "no result of its oracle is an element of an argument"),
    (np.abs, MOVES, r"element \[\d+, \d+\] of output 0 of its oracle is 0\.\d+, which is neither"),
    (lambda x: x.astype(np.float16), MOVES, "no result of its oracle is an element"),
    (lambda x: (x.T, x.sum()), MOVES, r"output 1 of its oracle is -?\d.*, which is neither"),
    (lambda x: (x.T, x.argmax(axis=1)), MOVES, "output 1 of its oracle is int64"),
    (lambda x: np.ones(3), MOVES, "no result of its oracle is an element"),
    (np.tanh, SUMS, r"a result of its oracle for whole numbers is -?0\.9"),
    (softmax, SUMS, "a result of its oracle for whole numbers is"),
    (lambda x: x * np.nan, SUMS, "a result of its oracle for whole numbers is nan"),
    (lambda x: 0.1 * x, SUMS, "a result of its oracle for whole numbers is"),
    (lambda x: x @ x, SUMS, "grow otherwise with the arguments, as with degree=2"),
    (lambda x: x**3, PRODUCTS, "grow otherwise with the arguments, as with degree=3"),
    (lambda x: x // 2, SUMS, "grow otherwise with the arguments; correct"),
    (lambda x: x.argmax(axis=1), SUMS, "output 0 of its oracle is int64"),
    # These grow like sums with a factor above 0.
    (lambda x: np.abs(x).sum(axis=0), SUMS, "grow otherwise with the arguments; correct"),
    (lambda x: x.max(axis=0), SUMS, "grow otherwise with the arguments; correct"),
    (lambda x: np.sort(x, axis=0), SUMS, "grow otherwise with the arguments; correct"),
    (lambda x: x @ np.maximum(x, 0), PRODUCTS, "grow otherwise with the arguments; correct"),
]


@pytest.mark.parametrize(("oracle", "domain", "message"), WRONG)
def test_a_wrong_statement_is_refused_by_name(oracle: Any, domain: Any, message: str) -> None:
    said = "moves=True" if domain.moves else f"sums=True, degree={domain.degree}"
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(pr.InvalidArgumentError) as caught:
            sets(stated(oracle, domain), dtype)
        assert caught.match(message)
        assert f"Program 'p': domain=Domain({said}) means that" in str(caught.value)
        assert "leave" in str(caught.value)


@pytest.mark.parametrize(
    ("oracle", "message"),
    [
        (lambda x: x[x > 0], r"same shapes for all numbers, .*, got \[\d+\] and \[\d+\]; correct"),
        (lambda x: {1: x, "a": x}, r"got a dict whose keys have no order \(.*\); use keys of one"),
        pytest.param(
            lambda x: x.astype(np.longdouble),
            "which no runtime has; convert it to float64",
            marks=pytest.mark.skipif(np.finfo(np.longdouble).bits == 64, reason="no longer type"),
        ),
    ],
)
def test_results_that_no_program_has_are_named(oracle: Any, message: str) -> None:
    for domain in (MOVES, SUMS):
        with pytest.raises(pr.InvalidArgumentError, match=f"'p': its oracle .*{message}"):
            sets(stated(oracle, domain))


def test_sets_follow_from_the_statement() -> None:
    roll, total = stated(lambda x: np.roll(x, 1), MOVES), stated(lambda x: x.sum(), SUMS)
    assert [*sets(roll)] == ["wide", "special", "exact"]
    assert [*sets(roll, "int32")] == ["wide", "exact"]
    assert [*sets(total)] == ["wide", "exact"]
    assert [*sets(total, "int32")] == ["wide"]
    assert [*sets(stated(lambda x: x.mean(), SUMS), "int32")] == []
    assert [*sets(stated(np.tanh, None))] == ["wide"]
    assert "2^-4 to 2^4" in sets(stated(np.tanh, pr.Domain(exponents=(-4, 4))))["wide"].text
    assert "NaN" in sets(stated(np.tanh, pr.Domain(special=("nan",))))["special"].text
    assert sets(total, "bfloat16", 64)["exact"].text.endswith("1 of 16 is not zero")
    # A weight that the type cannot hold leaves no room for a probe.
    assert [*sets(stated(lambda x: x + 1000, SUMS), "bfloat16")] == ["wide"]
    # Zeros that leave whole results without a term would show nothing.
    across = stated(lambda x: np.array([float(np.trace(x[::-1], k)) for k in range(7)]), SUMS)
    assert [*sets(across, "float32", 64)] == ["wide", "exact"]
    assert [*sets(across, "bfloat16", 64)] == ["wide"]


def test_what_chooses_elements_keeps_ordinary_numbers() -> None:
    def taken(x: np.ndarray, where: np.ndarray) -> Any:
        return x[np.floor(8 + 8 * where).astype(int)]

    case = find_case(stated(taken, MOVES, (("n", "n"), ("n",))))
    assert [one.kind for one in case.inputs(16, "float32")] == ["uniform", "chooses"]
    for found in input_sets(case, 16, "float32"):
        what = case.inputs(16, "float32")[1]
        indices = found.make(what, 0, 1).read((slice(0, 16),))
        assert (np.abs(indices) <= 1).all()
    # What a sort does with NaN differs between devices: it must be stated.
    assert "special" not in sets(stated(lambda x: np.sort(x, axis=1), MOVES))
    assert "special" in sets(
        stated(lambda x: np.sort(x, axis=1), pr.Domain(moves=True, special=("nan",)))
    )
    vector = sets(stated(lambda x: np.roll(x, 1), MOVES, (("n",),)))["special"]
    what = find_case(stated(np.copy, MOVES, (("n",),))).inputs(64, "float32")[0]
    assert np.isnan(vector.make(what, 0, 0).read((slice(0, 64),))).any()


def test_integer_arguments_of_a_float_file_keep_ordinary_numbers(tmp_path: Any) -> None:
    """They are indices or conditions; wide floats do not fit into them."""
    text = """module @jit_f { func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<6xi32>)
    -> tensor<8x4xf32> { return %arg0 : tensor<8x4xf32> } }"""
    (tmp_path / "f.mlir").write_text(text)
    for domain in (None, MOVES, SUMS):
        case = find_case(
            pr.Program(
                "f",
                stablehlo=str(tmp_path / "f.mlir"),
                oracle=lambda x, i: x[np.arange(8) % (abs(i).max() + 9)],
                domain=domain,
            )
        )
        assert len(input_sets(case, 8, "float32")) == {None: 1, MOVES: 3, SUMS: 2}[domain]
        for found in input_sets(case, 8, "float32"):
            what = case.inputs(8, "float32")[1]
            assert np.abs(found.make(what, 0, 1).read((slice(0, 6),))).max() <= 8
