"""Cross-checks as a user runs them: processes, user programs, failures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant import testing
from pyreactant.check import run
from pyreactant.check.report.data import Result
from pyreactant.check.report.report import Report
from pyreactant.check.request import CheckRequest
from pyreactant.check.run import crosscheck
from pyreactant.testing import assert_crosscheck
from tests.crosscheck import samples
from tests.crosscheck.runs import STAND_IN, second_runtime, small
from tests.crosscheck.user_programs import HERE, blind, program, right, wrong


def results(report: Report) -> dict[str, Result]:
    return {row.program: row.results[0] for row in report.rows}


NAMES = ["wrong", "raises_on_all", "fewer_results", "two_results", "estimated", "one_pass"]
NAMES += ["all_nan", "of_kinds", "above_zero", "top_three", "short_as_said", "wrong_signs"]
NAMES += ["wrong_places", "too_short", "partial_sums", "nudged"]


@pytest.fixture(scope="module")
def of_users(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """User programs by name and as objects, and a built-in one, in one run."""
    programs = [right, *(f"{HERE}:{name}" for name in NAMES), "full_sum"]
    return small(programs, size=8, out=tmp_path_factory.mktemp("users") / "out")


@pytest.fixture(scope="module")
def found(of_users: Report) -> dict[str, Result]:
    return {name.rpartition(":")[2]: result for name, result in results(of_users).items()}


def test_users_programs(of_users: Report, found: dict[str, Result]) -> None:
    """One that raises on every process fails alone."""
    report = of_users
    assert found["right"].outcome == "right"
    assert found["two_results"].outcome == "right"
    assert {b.array for b in found["two_results"].blocks} == {"output 0", "output 1"}
    assert found["right"].values.estimated == ""
    assert [one.inputs for one in found["right"].sets] == ["wide"]
    assert found["estimated"].sets == ()  # an estimated tolerance is no bound
    assert "one_pass (wide inputs, float32 x,y) on jax: output 0" in found["one_pass"].text
    assert all(block.passed for block in found["one_pass"].blocks)
    assert found["all_nan"].outcome == "unchecked"
    assert "output 0 must be NaN or infinite in every element, so no" in found["all_nan"].text
    assert (
        found["estimated"].values.estimated
        == "no error bound is known for numpy.linalg.norm with ord=2"
    )
    text = report.to_text(200)
    assert "of the estimate" in text
    assert "is estimated, not derived, because no error bound is known for numpy.lin" in text
    assert text.count("estimated, not derived") == 1
    read = json.loads(report.to_json())["rows"]
    assert [row["results"][0]["estimated"] for row in read if "estimated" in row["program"]] == [
        "no error bound is known for numpy.linalg.norm with ord=2"
    ]
    page = report.to_html()
    assert "the tolerance is estimated, not derived, because no error bound" in page
    assert found["wrong"].outcome == "wrong"
    assert "wrong on jax: output 0" in found["wrong"].text
    assert "process" in found["wrong"].text
    assert found["raises_on_all"].outcome == "raised"
    where, _, place = found["raises_on_all"].text.partition(" (")
    assert where.endswith("raises_on_all on jax: every process raised ValueError: no luck at all")
    assert "user_programs.py, line " in place  # the user's, not the caller's
    assert found["fewer_results"].outcome == "wrong"
    assert found["fewer_results"].kind == "wrong shape or dtype"
    assert report.exit_code == 5
    assert Path(report.runs[0].folder, "process-1.json").exists()
    assert "raises_on_all raised on jax" in report.verdict


def test_results_of_other_types_and_in_trees(of_users: Report, found: dict[str, Result]) -> None:
    for name in ("of_kinds", "above_zero", "top_three", "short_as_said"):
        assert found[name].outcome == "right", found[name].text
    rows = {row.program.rpartition(":")[2]: row for row in of_users.rows}
    plans = rows["of_kinds"].plans
    assert [plans[f"output {n}"].dtype for n in range(4)] == ["float32", "int32", "bool", "float32"]
    plans = rows["top_three"].plans
    assert [plans[f"output {n}"].dtype for n in range(2)] == ["float32", "int32"]
    assert found["above_zero"].values.estimated == ""
    assert found["top_three"].values.estimated == ""
    assert found["too_short"].outcome == "wrong"
    assert found["too_short"].kind == "wrong shape or dtype"
    assert "must be float32[8, 8], as from its oracle or out_dtypes=" in found["too_short"].text
    for name, array in (("wrong_signs", "output 0"), ("wrong_places", "output 1")):
        assert found[name].outcome == "wrong"
        assert {b.array for b in found[name].blocks if not b.passed} == {array}


def test_copies_that_differ(of_users: Report, found: dict[str, Result]) -> None:
    assert found["full_sum"].outcome == "right"
    assert found["partial_sums"].kind == "missing reduction"
    assert found["nudged"].kind == "copies differ"
    assert "of output 0 has other bits on device" in found["nudged"].text
    assert "on device 2 than on other devices" in found["nudged"].text
    assert "each is within its tolerance" in found["nudged"].text
    alone = replace(of_users, rows=tuple(r for r in of_users.rows if "nudged" in r.program))
    assert "nudged did not pass: wrong on jax (copies differ)." in alone.verdict


def test_raising_on_one_process_ends_the_run_and_names_it() -> None:
    report = small(["matmul", f"{HERE}:raises_on_one", "row_sum"], size=8)
    found = results(report)
    assert found["matmul"].outcome == "right"
    raised = found[f"{HERE}:raises_on_one"]
    assert raised.outcome == "raised"
    assert "did not end: process 1 on " in raised.text
    assert "raised ValueError: no luck on this process" in raised.text
    assert found["row_sum"].outcome == "not run"
    assert "its run ended before" in found["row_sum"].text
    assert report.exit_code == 1


def test_a_process_that_is_lost_is_named() -> None:
    report = small(["matmul", f"{HERE}:leaves_early", "row_sum"], size=8)
    found = results(report)
    assert found["matmul"].outcome == "right"
    lost = found[f"{HERE}:leaves_early"]
    assert lost.outcome == "raised"
    assert "did not end: process 1 on " in lost.text
    assert "exit code 9" in lost.text
    assert found["row_sum"].outcome == "not run"
    assert report.exit_code == 1


def test_two_runtimes(tmp_path: Path) -> None:
    """Two bodies that may differ, as in JAX and Julia, and a program without an oracle."""
    names = ["turned_round", "other_shape", "other_dtype", "other_count"]
    with second_runtime(tmp_path):
        report = small([blind, *(f"{HERE}:{n}" for n in names)], backends=["jax", STAND_IN], size=8)
    rows = {row.program.rpartition(":")[2]: row for row in report.rows}
    alike = rows["blind"]
    assert alike.passed
    assert [r.outcome for r in alike.results] == ["unchecked", "unchecked"]
    assert "without an oracle" in alike.pairs[0].text
    alone = replace(report, rows=(alike,))
    assert "No oracle checks blind: both runtimes may be wrong in the same way" in alone.verdict
    assert "reference" not in alone.verdict
    turned = rows["turned_round"]
    assert [r.outcome for r in turned.results] == ["right", "wrong"]
    wrong = turned.results[1]
    assert "turned_round on standin: output 0 looks like" in wrong.text
    assert not turned.pairs[0].passed
    for name, said in (
        ("other_shape", "output 0 is float32[8, 8] on jax and float32[4, 8] on standin; make both"),
        ("other_dtype", "output 0 is float32[8, 8] on jax and float16[8, 8] on standin; make both"),
        ("other_count", "return different numbers of outputs: 1 on jax, 2 on standin; make both"),
    ):
        (pair,) = rows[name].pairs
        assert pair.kind == "different outputs"
        assert said in pair.text
        assert not rows[name].passed
    assert report.exit_code == 5
    assert "wrong on standin" in report.verdict
    assert "other_shape jax and standin differ (different outputs)" in report.verdict


def test_assert_crosscheck(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assertion and its message for a report; a test runs the example of docs/crosscheck.md."""
    asked = []

    def crosscheck(program: object, **options: object) -> Report:
        asked.append((program, options))
        return samples.report(["matmul"], wrong=[5] if program is wrong else [])

    monkeypatch.setattr(testing, "crosscheck", crosscheck)
    assert assert_crosscheck(right, size=8).passed
    with pytest.raises(AssertionError, match="wrong on stand-in"):
        assert_crosscheck(wrong, dtype="int32")
    assert asked == [(right, {"size": 8}), (wrong, {"dtype": "int32"})]


def test_bool_mesh_and_spec() -> None:
    report = crosscheck(
        "transpose",
        dtype="bool",
        mesh=pr.Mesh((4,), ("a",)),
        spec=[("a", None)],
        size=8,
        processes=1,
        devices_per_process=4,
        platform="cpu",
        backends="jax",
    )
    assert report.passed, report.to_text()
    (row,) = report.rows
    assert row.exact
    assert row.problem["dtype"] == "bool"
    assert row.problem["mesh"]["axis_names"] == ["a"]
    assert row.problem["in_specs"][0][0] == "a"


def test_meshes_and_specs_may_be_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text and objects give the same request; other tests cover its execution."""
    written = []

    def write(request: CheckRequest, path: Path) -> None:
        written.append((request.mesh, request.specs))
        raise pr.FileError("enough")

    monkeypatch.setattr(run, "write_request", write)
    mesh = pr.Mesh((2, 2), ("x", "y"))
    for given in (
        {"mesh": mesh, "spec": ("x", None)},
        {"mesh": "x=2,y=2", "spec": "x"},
        {"mesh": "2x2", "spec": [("x", None)]},
    ):
        with pytest.raises(pr.FileError, match="enough"):
            small("matmul", size=8, **given)
    assert [found for found, _ in written] == [mesh] * 3
    assert [specs for _, specs in written] == [(("x", None),), (("x",),), (("x", None),)]


NUMBERS = replace(program("p", "double", "double"), inputs=((),))

BAD = [
    (
        {"program": []},
        pr.InvalidArgumentError,
        "nothing to cross-check: name programs, or give --all",
    ),
    ({"program": "matmull"}, pr.InvalidArgumentError, "did you mean 'matmul'"),
    ({"program": "no_module:p"}, pr.InvalidArgumentError, "cannot import program 'no_module:p'"),
    ({"program": f"{HERE}:SQUARE"}, pr.InvalidArgumentError, "must be a pyreactant.Program"),
    (
        {"program": ["matmul", "matmul"]},
        pr.InvalidArgumentError,
        "each program only once, got mat",
    ),
    ({"program": pr.Program("p", jax="a:b")}, pr.InvalidArgumentError, "give them, for instance"),
    ({"program": NUMBERS}, pr.InvalidArgumentError, "at size 64; use one device"),
    ({"program": blind}, pr.RequirementError, "has no oracle, and only jax is to run"),
    ({"program": program("p", "double", "absent")}, pr.InvalidArgumentError, "cannot import oracl"),
    ({"backends": "torch"}, pr.InvalidArgumentError, "unknown backend 'torch'; known are: auto, j"),
    ({"backends": []}, pr.InvalidArgumentError, "no backend is named"),
    ({"backends": "jax,jax"}, pr.InvalidArgumentError, "backend 'jax' is named twice"),
    ({"platform": "abacus"}, pr.InvalidArgumentError, "unknown platform 'abacus'"),
    ({"size": 0}, pr.InvalidArgumentError, "size must be 1 or more, got 0"),
    ({"size": 7}, pr.ShardingError, "program 'matmul' at size 7: dimension 0 of shape (7, 7) has"),
    ({"seed": -1}, pr.InvalidArgumentError, "seed must be 0 or more, got -1"),
    ({"processes": 0}, pr.InvalidArgumentError, "processes must be 1 or more, got 0"),
    ({"processes": -1}, pr.InvalidArgumentError, "processes must be 1 or more, got -1"),
    ({"devices_per_process": 0}, pr.InvalidArgumentError, "devices_per_process must be 1 or more"),
    ({"repeat": 0}, pr.InvalidArgumentError, "repeat must be 1 or more, got 0"),
    ({"mesh": "4", "size": 9}, pr.ShardingError, "at size 9: dimension 0 of shape (9, 9) has size"),
    (
        {"mesh": "3", "size": 64, "processes": 1, "devices_per_process": 3},
        pr.ShardingError,
        "program 'matmul' at size 64: dimension 0 of shape (64, 64) has size 64, which is not",
    ),
    ({"mesh": "2"}, pr.ShardingError, "Mesh(x=2) does not fit the 4 devices of a run; give anoth"),
    ({"mesh": "zxy"}, pr.ShardingError, "cannot read mesh 'zxy'"),
    ({"spec": "x,q"}, pr.ShardingError, "names axis 'q', but the mesh has axes ('x', 'y')"),
    ({"spec": "x,y;x,y;x,y"}, pr.InvalidArgumentError, "at size 64 on Mesh(x=2, y=2) takes inputs"),
    ({"dtype": "float13"}, pr.InvalidArgumentError, "unknown dtype 'float13'"),
    (
        {"program": ["sort", "fft"], "dtype": "int32"},
        pr.InvalidArgumentError,
        "program 'fft' accepts the dtypes complex64, complex128, got int32; programs that accept "
        "int32: sort",
    ),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD, ids=[str(o) for o, _, _ in BAD])
def test_bad_input_starts_nothing(
    options: dict[str, object],
    kind: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyreactant.check.run._run", lambda *_: pytest.fail("it started"))
    with pytest.raises(kind) as caught:
        small(**{"program": "matmul", "out": tmp_path / "out", **options})
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(pr.FileError, match="exists and is not empty; name another folder"):
        small("matmul", out=tmp_path)
    with pytest.raises(pr.FileError, match="cannot be made"):
        small("matmul", out=tmp_path / "file" / "out")


def test_a_platform_that_is_not_here() -> None:
    with pytest.raises(pr.InvalidArgumentError, match="GPUs"):
        small("matmul", platform="gpu", processes=64, devices_per_process=64)
    report = crosscheck("matmul", platform="gpu", processes=1, backends="jax")
    assert report.exit_code == 3
    assert "platform 'gpu' was requested, but JAX has: cpu" in report.rows[0].results[0].text
    assert report.rows[0].results[0].outcome == "not run"
    assert "Did not pass" in report.to_html()


def test_a_runtime_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyreactant.arrays.runtimes import runtime

    monkeypatch.setitem(runtime.BACKENDS, "absent", ("no_package:Backend", "no_package"))
    how = "the package no_package is not installed; run python -m pip install 'no_package'"
    with pytest.raises(pr.RequirementError, match="'absent' was requested but is not available: "):
        small("matmul", backends="absent")
    report = small("matmul", backends="auto", processes=1, devices_per_process=1, size=8)
    assert report.absent["absent"] == how
    assert f"absent did not run: {how}" in report.to_text(width=300)
