"""`--deep`: a real product on each runtime that starts, and a description of the result."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyreactant.doctor import diagnose
from pyreactant.doctor.check import Machine
from tests.doctor.machines import (
    interpreter,
    jax_packages,
    julia,
    julia_project,
    machine,
    package,
    settled,
)
from tests.doctor.test_command import doctor
from tests.doctor.test_runtimes import ON_CPU, row

PRODUCT = {
    "platform": "cpu",
    "num_processes": 1,
    "versions": {"jax": "0.10.2"},
    "dtype": "float32",
    "mesh": {"shape": [2, 4]},
    "check": {"method": "float64 product", "error": 1e-5, "tolerance": 1e-4},
}


@pytest.mark.slow
def test_the_real_thing(tmp_path: Path) -> None:
    """JAX multiplies on one process and on two."""
    ran = doctor(tmp_path, "--deep", "--json", "--backend", "jax")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    for name, processes in (("JAX product", "1 process"), ("JAX, 2 processes", "2 processes")):
        found = rows[name]
        assert (found["status"], found["required"]) == ("pass", True)
        assert found["found"].startswith("jax 0.")
        assert f"mesh of {processes} is right: error" in found["found"]
        assert "(float64 product)" in found["found"]
    assert not list(tmp_path.iterdir())


def with_products(folder: Path, product: dict[str, Any], script: str = "", **facts: Any) -> Machine:
    """A machine with a stand-in interpreter that starts runtimes and multiplies as given."""
    (folder / "devices.json").write_text(json.dumps(ON_CPU) + "\n")
    (folder / "product.json").write_text(json.dumps(product))
    python = interpreter(
        folder,
        f'case "$*" in *doctor.runtimes*) exec cat {folder}/devices.json;; esac\n{script}\n'
        'while [ "$1" != --report ]; do shift; done\n'
        f'cp {folder}/product.json "$2"',
    )
    return machine(folder, python=python, **facts)


@pytest.mark.parametrize("real", [True, False])
def test_whether_it_was_the_real_reactant(tmp_path: Path, real: bool) -> None:
    package(tmp_path, "juliacall", "0.9.37")
    versions = {"Reactant": "0.2.280"} | ({"Reactant_jll": "0.0.250+0"} if real else {})
    environ = settled(julia(tmp_path), julia_project(tmp_path, versions))
    here = with_products(tmp_path, PRODUCT, environ=environ)
    found = row(diagnose("reactant", deep=True, machine=here), "Reactant product")
    assert found.status == "pass", found
    what = (
        "the real Reactant 0.2.280" if real else "not the real Reactant but a package with its name"
    )
    assert found.found.startswith(what)
    assert "on cpu: 256 x 256 float32 over a 2 x 4 mesh of 1 process is right" in found.found


def test_a_wrong_product(tmp_path: Path) -> None:
    jax_packages(tmp_path)
    package(tmp_path, "numpy", "2.4.0")
    here = with_products(tmp_path, PRODUCT, "echo 'the result is wrong' >&2; exit 5")
    diagnosis = diagnose(deep=True, machine=here)
    assert row(diagnosis, "JAX devices").status == "pass"
    found = row(diagnosis, "JAX product")
    assert (found.status, found.found) == ("fail", "JAX: the result is wrong")
    assert found.mend == (
        "pyreactant run --processes 1 -- -m pyreactant matmul --backend jax --size 256"
    )
    assert "--platform cpu" in row(diagnosis, "JAX, 2 processes").mend
    assert [check.name for check in diagnosis.missing] == ["usable runtime"]


def test_a_product_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyreactant.doctor.runtimes.MARGIN", 0.5)
    jax_packages(tmp_path)
    here = with_products(tmp_path, PRODUCT, "exec sleep 60")
    found = row(diagnose("jax", deep=True, timeout=0.5, machine=here), "JAX product")
    assert (found.status, found.found) == (
        "fail",
        "JAX: the product took longer than 2.5 s and was ended",
    )


def test_nothing_is_multiplied_where_nothing_starts(tmp_path: Path) -> None:
    jax_packages(tmp_path)
    here = machine(tmp_path, python=interpreter(tmp_path, "exit 1"))
    found = row(diagnose("jax", deep=True, machine=here), "JAX product")
    assert (found.status, found.found) == ("warn", "not computed: the runtime did not start")
