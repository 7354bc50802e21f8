"""Gradients by Enzyme in the cross-check, on a module in Reactant's form."""

import importlib.util
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.arrays.lowering.enzyme import check_enzyme
from pyreactant.base.errors import named
from pyreactant.check.request import CheckRequest, program_of
from pyreactant.check.run import compare_gradients, gradients_wanted
from tests.harness import REPOSITORY, require

MODULE = (REPOSITORY / "tests" / "data" / "reactant_perceptron.mlir").read_text()
ORACLE = "the oracle of perceptron_gradient"


def need_enzyme() -> None:
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip("Enzyme's wheel is for Python 3.11 on Linux")
    try:
        check_enzyme()
    except pr.RequirementError as error:
        require(False, str(error))


@pytest.mark.slow
def test_right_gradients(tmp_path: Path) -> None:
    need_enzyme()
    (tmp_path / "perceptron.mlir").write_text(MODULE)
    report = pr.crosscheck(
        "perceptron",
        backends="jax",
        platform="cpu",
        processes=1,
        devices_per_process=1,
        size=16,
        coverage="quick",
        gradients=tmp_path,
    )
    assert report.passed
    assert [one.outcome for one in report.gradients] == ["right"] * 9
    assert sum(one.against == ORACLE for one in report.gradients) == 4
    assert f"gradient of perceptron by Enzyme, against {ORACLE}: right (" in report.to_text()
    file = tmp_path / "report.json"
    report.to_json(file)
    assert type(report).from_json(file).gradients == report.gradients
    data = json.loads(file.read_text())
    data["gradients"][0]["wrong"] = 1
    bad = type(report).from_dict(data)
    assert (bad.passed, bad.exit_code) == (False, 5)
    assert bad.verdict.startswith("Enzyme's gradient is wrong: perceptron.")
    assert "jax.grad of the JAX body: wrong by argument 0 (" in bad.to_text()


def test_wrong_gradients_and_none(tmp_path: Path) -> None:
    need_enzyme()
    request = CheckRequest(("perceptron",), size=16)
    (none,) = compare_gradients(request, tmp_path)
    assert none.outcome == "not run"
    assert "perceptron.mlir' cannot be read" in none.text
    before, last = MODULE.rsplit("stablehlo.add ", 1)  # of the layer and what does not vary
    wrong = before + "stablehlo.add " + re.sub(r"^(%\w+), %\w+", r"\1, \1", last)
    (tmp_path / "perceptron.mlir").write_text(wrong)
    found = {
        (one.argument, one.against): one.outcome for one in compare_gradients(request, tmp_path)
    }
    assert found["by argument 4", ORACLE] == "wrong"
    assert found["by argument 4", "jax.grad of the JAX body"] == "wrong"


def test_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    both = ("jax", "reactant")
    assert not gradients_wanted(None, both, "usual")
    assert not gradients_wanted(False, both, "usual")
    with pytest.raises(pr.RequirementError, match="enzyme-ad"):
        gradients_wanted(True, both, "usual")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert gradients_wanted(None, both, "usual")
    assert not gradients_wanted(None, both, "quick")
    assert not gradients_wanted(None, ("jax",), "usual")
    with pytest.raises(pr.FileError, match=r"gradients=.*absent' is not a folder; give one with"):
        gradients_wanted(tmp_path / "absent", both, "usual")


def test_a_program_with_a_domain_reaches_the_child() -> None:
    """The child that computes gradients makes the program from JSON, as a request is read."""
    program = pr.Program("double", jax="body:double", domain=pr.Domain(moves=True))
    assert program_of(json.loads(json.dumps(asdict(program)))) == program


def test_gradients_that_are_asked_for_and_cannot_be_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cross-check ended with 0, and a line in the middle said that they were not run."""
    monkeypatch.setattr("pyreactant.check.run.check_enzyme", lambda: None)
    monkeypatch.setattr("pyreactant.check.run.how_to_get", lambda name: f"{name} is absent")
    monkeypatch.setattr("pyreactant.check.run._run", lambda *_: pytest.fail("a run began"))
    with pytest.raises(pr.RequirementError, match="need Reactant: reactant is absent; or give"):
        pr.crosscheck("matmul", backends="jax", gradients=True)
    own = pr.Program("own", jax="jax.numpy:sin", oracle="numpy:sin", inputs=(("n",),))
    for asked in (True, tmp_path):
        with pytest.raises(pr.InvalidArgumentError, match="own lacks one; name another program"):
            pr.crosscheck(own, backends="jax", gradients=asked)


def test_the_option_is_named_if_its_package_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    told = "^--gradients needs the package enzyme-ad, .* or leave --gradients out"
    with (
        named({"differentiable": "--gradients"}),
        pytest.raises(pr.RequirementError, match=told),
    ):
        check_enzyme()
