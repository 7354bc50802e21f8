"""JAX and Reactant against each other, end to end: real processes, and a real Julia.

A stand-in (julia/test/Reactant) replaces Reactant, so the tests cover everything around it: the
runs, the Julia bodies, the records, the comparison and the report.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyreactant as pr
from pyreactant.check.programs import CASES
from pyreactant.check.report.data import Result
from pyreactant.check.report.report import Report
from pyreactant.check.run import compare, crosscheck
from tests.harness import environment

pytestmark = [pytest.mark.julia, pytest.mark.timeout(1800), pytest.mark.usefixtures("named_julia")]

BODIES = Path(__file__).parent / "WrongBodies"
EXACT = ("transpose", "sort", "gather", "random_fill")


def both(program: Any, **options: Any) -> Report:
    usual = {"processes": 2, "devices_per_process": 2, "platform": "cpu", "repeat": 1}
    quick = {"backends": "jax,reactant", "coverage": "quick"}
    return crosscheck(program, **{**usual, **quick, **options})


@pytest.fixture(scope="module")
def runs(named_julia: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-check of all programs on two processes with two devices each."""
    out = tmp_path_factory.mktemp("two") / "out"
    argv = [
        sys.executable,
        "-m",
        "pyreactant",
        "crosscheck",
        "--all",
        "--backends",
        "jax,reactant",
        "-n",
        "2",
        "--devices-per-process",
        "2",
        "--platform",
        "cpu",
        "--repeat",
        "1",
        "--out",
        str(out),
    ]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=1500)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "21 programs: right on jax and reactant" in " ".join(ran.stdout.split())
    assert re.search(r"reactant [0-9]+ of 21: random_fill: compiled in", ran.stderr)
    return out


def test_all_programs_on_two_processes(runs: Path) -> None:
    report = compare(runs / "jax", runs / "reactant")
    assert report.passed, report.to_text()
    assert [row.program for row in report.rows] == list(CASES)
    for row in report.rows:
        assert [r.outcome for r in row.results] == ["right", "right"], report.to_text()
        (pair,) = row.pairs
        assert pair.passed
        assert pair.compared
        assert pair.blocks >= 4
        jax, reactant = ({b.device: b.index for b in r.blocks} for r in row.results)
        assert jax == reactant  # which device holds which block
        assert {device: block.process for device, block in _outputs(row.results[1]).items()} == {
            0: 0,
            1: 0,
            2: 1,
            3: 1,
        }
        if row.program in EXACT:
            assert pair.text.startswith("agree to the last bit")
    assert "they agree with each other" in report.verdict


def _outputs(result: Result) -> dict[int, Any]:
    return {block.device: block for block in result.blocks}


def test_the_page_and_the_json_have_both(runs: Path) -> None:
    page = (runs / "report.html").read_text()
    assert "Passed</p>" in page
    assert page.count("<figure>") >= 18
    report = json.loads((runs / "report.json").read_text())
    jax, reactant = report["runs"]
    assert (jax["name"], reactant["name"]) == ("jax", "reactant")
    assert [device["id"] for device in reactant["devices"]] == [0, 1, 2048, 2049]
    assert reactant["facts"]["Reactant"] == "0.2.280+standin"
    for name in ("julia", "Reactant", "PyReactant", "PythonCall"):
        assert name not in jax["facts"]
        assert re.search(f'<th scope="row"[^>]*>{name}</th>', page)
        assert re.search(f"<td[^>]*>{re.escape(reactant['facts'][name])}</td>", page)


def test_one_process_with_four_devices() -> None:
    programs = ["matmul", "gram", "row_sum", "heat", "transpose", "sgd_step"]
    report = both(programs, processes=1, devices_per_process=4)
    assert report.passed, report.to_text()
    assert all(row.pairs[0].blocks >= 4 for row in report.rows)


def product(name: str, **more: Any) -> pr.Program:
    return pr.Program(
        name,
        jax="jax.numpy:matmul",
        julia=f"WrongBodies.{name}",
        julia_project=str(BODIES),
        inputs=(("n", "n"), ("n", "n")),
        **{"oracle": "numpy:matmul", **more},
    )


def test_wrong_julia_bodies_are_caught_and_named() -> None:
    """JAX stays right; the report names the runtime reactant and the kind of error."""
    names = ["right", "transposed", "half_a_sum", "short", "a_row_less", "throws"]
    report = both([product(name) for name in names], size=32)
    rows = {row.program: row for row in report.rows}
    assert all(row.results[0].outcome == "right" for row in report.rows), report.to_text()
    assert rows["right"].passed
    found = {name: row.results[1] for name, row in rows.items()}
    for name, kind in (
        ("transposed", "transposed block"),
        ("half_a_sum", "wrong factor"),
        ("short", "lower precision"),
    ):
        assert found[name].outcome == "wrong"
        assert found[name].kind == kind, found[name].text
        assert found[name].text.startswith(f"{name} on reactant: output 0 looks like")
        assert not rows[name].pairs[0].passed
    assert found["a_row_less"].outcome == "wrong"
    assert found["a_row_less"].kind == "wrong shape or dtype"
    assert found["throws"].outcome == "raised"
    assert "throws on reactant: every process raised" in found["throws"].text
    assert "the model wants another shape" in found["throws"].text
    assert report.exit_code == 5
    assert "transposed wrong on reactant (transposed block)" in report.verdict


def test_without_an_oracle_the_runtimes_disagree() -> None:
    report = both([product("right", oracle=None), product("transposed", oracle=None)], size=32)
    good, bad = report.rows
    assert [r.outcome for r in (*good.results, *bad.results)] == ["unchecked"] * 4
    assert good.pairs[0].passed, good.pairs[0].text
    assert not bad.pairs[0].passed
    assert "jax and reactant" in report.verdict


PATCH = """
import os, sys
if "pyreactant" in " ".join(sys.orig_argv) and os.environ.get("PYREACTANT_BACKEND") == "reactant":
    import numpy as np
    from pyreactant import Mesh, NamedSharding
    from pyreactant.arrays.runtimes.reactant import backend as _reactant

    def turned(sharding):
        mesh = sharding.mesh
        ids = np.array(mesh.device_ids).reshape(mesh.shape, order="F")
        return NamedSharding(Mesh(mesh.shape, mesh.axis_names, ids), sharding.spec)

    placed, from_blocks = _reactant.julia_sharding, _reactant.ReactantBackend.from_blocks

    def placed_otherwise(backend, sharding):
        return placed(backend, turned(sharding))

    def from_other_blocks(self, shape, dtype, sharding, read):
        _reactant.julia_sharding = placed
        try:
            return from_blocks(self, shape, dtype, turned(sharding), read)
        finally:
            _reactant.julia_sharding = placed_otherwise

    _reactant.julia_sharding = placed_otherwise
    _reactant.ReactantBackend.from_blocks = from_other_blocks
"""


def test_column_major_devices_are_caught_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trap: a mesh's devices are counted in Julia's column-major order."""
    (tmp_path / "sitecustomize.py").write_text(PATCH)
    monkeypatch.syspath_prepend(tmp_path)
    report = both(["matmul", "transpose", "row_sum"], size=32, devices_per_process=4)
    for row in report.rows:
        jax, reactant = row.results
        assert jax.outcome == "right", report.to_text()
        assert reactant.outcome == "wrong"
        assert reactant.kind == "column-major device order", reactant.text
        assert f"{row.program} on reactant" in reactant.text
    assert report.exit_code == 5
