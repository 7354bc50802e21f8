"""The typical limit on programs that people run: right ones pass, faults are wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.bounds.compare import compare
from tests import harness

from . import networks
from .networks import Expectation
from .runs import small

pytestmark = pytest.mark.usefixtures("backend")

SHAPES = (("n", 16),) * 3


@pytest.mark.parametrize("name", networks.NAMES)
def test_right_programs_are_right(name: str) -> None:
    seen = {}
    for dtype in networks.dtypes_of(name):
        for kind in networks.KINDS:
            if dtype == "float16" and kind in ("offset", "large"):
                continue  # exponentials overflow
            verdict = Expectation(name, dtype, 32, kind, 1).verdict()
            assert verdict.passed, (name, dtype, kind, verdict)
            seen[dtype, kind] = verdict.sight.sensitivity
    assert seen["float32", "normal"] < (0.02 if name == "mixed" else 1e-4)
    if name != "mixed":
        assert seen["bfloat16", "normal"] < 0.05
        assert seen["float16", "normal"] < 0.01


@pytest.mark.parametrize(
    ("name", "dtype", "fault"),
    [
        ("attention", "float16", "factor 1.01"),
        ("gelu", "bfloat16", "short sums"),
        ("gelu", "bfloat16", "factor 1.01"),
        ("swiglu", "float16", "short sums"),
        ("recurrent", "bfloat16", "lost shard"),
        ("recurrent", "float32", "short sums"),
        ("mixed", "float32", "short sums"),
        ("mixed", "float32", "factor 1.01"),
    ],
)
def test_faults_within_the_derived_bound_are_wrong(name: str, dtype: str, fault: str) -> None:
    expectation = Expectation(name, dtype, 64, "normal", 3)
    verdict = expectation.verdict(fault)
    assert not verdict.passed
    assert verdict.typical is not None
    assert verdict.typical.only


@pytest.mark.parametrize("excess", [True, False])
def test_a_compiler_may_leave_out_conversions(excess: bool) -> None:
    """XLA may drop a conversion to bfloat16 and back (openxla/xla#41605)."""
    expectation = Expectation("mixed", "float32", 32, "normal", 2)
    body = jax.jit(lambda *arrays: networks.mixed("", *arrays))
    arrays = [jnp.asarray(array) for array in expectation.arrays]
    options = {"xla_allow_excess_precision": excess}
    compiled = body.lower(*arrays).compile(compiler_options=options)
    assert compare(np.asarray(compiled(*arrays)), expectation.expected).passed


PROGRAM = f"""
import numpy as np, pyreactant as pr
from tests.crosscheck import networks

def right(q, k, v): return networks.attention("", q, k, v)
def wrong(q, k, v): return networks.attention("short sums", q, k, v)
def own(x): return 2.0 * x
def numpy_own(x):
    assert isinstance(x, np.ndarray), "no array"
    return 2.0 * x

def steps(x): return __import__("jax").numpy.floor(3 * x) * 0.1
def numpy_steps(x): return np.floor(3 * x) * 0.1

good = pr.Program("good", jax=right, oracle=networks.attention_oracle, inputs={SHAPES})
bad = pr.Program("bad", jax=wrong, oracle=networks.attention_oracle, inputs={SHAPES})
own_arrays = pr.Program("own", jax=own, oracle=numpy_own, inputs=(("n", "n"),))
floor = pr.Program("floor", jax=steps, oracle=numpy_steps, inputs=(("n", "n"),))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typical")
    (folder / "mine.py").write_text(PROGRAM)
    return folder


def crosscheck(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyreactant", "crosscheck", *words, "--dtype", "bfloat16"]
    command += ["--size", "256", "-n", "1", "--devices-per-process", "2", "--platform", "cpu"]
    return harness.run(
        [*command, "--backends", "jax", "--quick"],
        env=harness.environment(),
        cwd=folder,
        timeout=600,
    )


@pytest.mark.slow
def test_the_command(folder: Path) -> None:
    """Attention in bfloat16 was unchecked, right or wrong."""
    done = crosscheck(folder, "mine:good", "mine:floor", "--json", "--out", "right")
    assert done.returncode == 0, done.stdout + done.stderr
    good, floor = (row["results"][0] for row in json.loads(done.stdout)["rows"])
    assert good["outcome"] == floor["outcome"] == "right"
    assert good["sensitivity"] < 0.05 < 0.5 < good["derived_sensitivity"]
    assert "the derived bound alone sees none below" in good["note"]
    why = "no typical rounding is known for numpy.floor"
    assert floor["note"].startswith(f"no typical limit of rounding: {why}")

    done = crosscheck(folder, "mine:bad", "mine:own_arrays", "--out", "wrong")
    text = " ".join(done.stdout.split())
    assert done.returncode == 5, text
    assert "wrong: beyond typical rounding" in text
    assert "standard deviations of rounding" in text
    assert "no typical limit of rounding: the oracle needs NumPy arrays (AssertionError: no" in text
    assert 'if it adds in bfloat16 itself, state that: Domain(sums_in="result")' in text

    done = crosscheck(folder, "mine:bad", "--typical", "0", "--out", "without")
    assert done.returncode == 3
    assert "is unchecked: rounding in bfloat16" in " ".join(done.stdout.split())


def added_in_short(x: object) -> object:
    return networks.row_sums(x)


def numpy_sums(x: Any) -> Any:
    return np.sum(x, axis=1)


def off_by_much(x: object) -> object:
    return 8 * jnp.mean(jnp.asarray(x) ** 2)


def numpy_mean(x: Any) -> Any:
    return np.mean(x**2)


def lower_inside(x: object) -> object:
    return jnp.tanh(jnp.asarray(x).astype("float8_e5m2").astype("bfloat16"))


def numpy_tanh(x: Any) -> Any:
    return np.tanh(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "oracle"), [("off_by_much", "numpy_mean"), ("lower_inside", "numpy_tanh")]
)
def test_sums_in_a_short_type_are_named_only_where_they_explain_the_error(
    body: str, oracle: str
) -> None:
    """An error as large as the result is none of them, nor one of a program that adds nothing."""
    names = {"jax": f"{__name__}:{body}", "oracle": f"{__name__}:{oracle}"}
    program = pr.Program("other", **names, inputs=(("n", "n"),))
    (result,) = small(program, size=64, dtype="bfloat16", coverage="quick").rows[0].results
    assert result.outcome == "wrong"
    assert result.kind in ("unknown kind of fault", "beyond typical rounding", "lower precision")
    assert "sums_in" not in result.text


@pytest.mark.slow
@pytest.mark.parametrize("stated", ["float32", "result"])
def test_a_program_that_adds_in_its_short_type_states_it(stated: str) -> None:
    program = pr.Program(
        "sums",
        jax=f"{__name__}:added_in_short",
        oracle=f"{__name__}:numpy_sums",
        inputs=(("n", "n"),),
        domain=pr.Domain(sums_in=stated),
    )
    (result,) = small(program, size=512, dtype="bfloat16", coverage="quick").rows[0].results
    if stated == "result":
        assert result.outcome in ("right", "unchecked")
    else:
        assert result.outcome == "wrong"
        assert "Domain(sums_in=" in result.text
