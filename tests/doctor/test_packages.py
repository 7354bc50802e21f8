"""Python packages: presence, matching versions, and the command that repairs them."""

import json
from pathlib import Path

import pytest

import pyreactant
from pyreactant.doctor import software
from pyreactant.doctor.check import Machine
from tests.doctor.machines import (
    executable,
    jax_packages,
    machine,
    nvidia_driver,
    package,
    tpu_chips,
)


def test_python(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert software.python(here).status == "pass"
    old = software.python(here, "3.10.12")
    assert old.status == "fail"
    assert "3.10.12" in old.found
    assert old.mend == "python3.11 -m venv .venv"


def test_this_one_is_seen() -> None:
    found = software.pyreactant(Machine())
    assert found.status == "pass", found
    assert found.found.startswith(pyreactant.__version__)
    for check in (software.numpy, software.jax, software.jaxlib, software.libtpu):
        assert check(Machine()).status == "pass", check(Machine())


def test_editable_and_stale(tmp_path: Path) -> None:
    url = json.dumps({"url": "file:///home/me/my%20tree", "dir_info": {"editable": True}})
    package(tmp_path, "pyreactant", pyreactant.__version__, direct_url=url)
    assert "editable, from /home/me/my tree" in software.pyreactant(machine(tmp_path)).found
    other = tmp_path / "other"
    package(other, "pyreactant", "0.0.1", direct_url=url)
    stale = software.pyreactant(machine(other))
    assert stale.status == "warn"
    assert "installed version is 0.0.1" in stale.found
    assert stale.mend.endswith("pip install -e '/home/me/my tree'")


def test_a_dependency_is_missing(tmp_path: Path) -> None:
    requires = ["numpy>=2.0", "rich>=13.7", "tomlkit>=0.13", 'pytest>=8; extra == "dev"']
    package(tmp_path, "pyreactant", pyreactant.__version__, requires)
    package(tmp_path, "rich", "13.9.4")
    found = software.pyreactant(machine(tmp_path))
    assert found.status == "fail"
    assert "lacks tomlkit>=0.13" in found.found
    assert found.mend.endswith("-m pip install 'tomlkit>=0.13'")


def test_numpy(tmp_path: Path) -> None:
    missing = software.numpy(machine(tmp_path))
    assert (missing.status, missing.found) == ("fail", "not installed")
    assert missing.mend.endswith("-m pip install 'numpy>=2.0'")
    package(tmp_path, "numpy", "1.26.4")
    package(tmp_path, "jax", "0.12.0", ["numpy>=2.2"])
    old = software.numpy(machine(tmp_path))
    assert old.status == "fail"
    assert old.found == "1.26.4, but pyreactant requires >=2.0 and jax requires >=2.2"
    assert old.mend.endswith("'numpy>=2.0,>=2.2'")


def test_jax(tmp_path: Path) -> None:
    assert software.jax(machine(tmp_path)).status == "absent"
    assert software.jaxlib(machine(tmp_path)).status == "unknown"
    package(tmp_path, "jax", "0.4.38")
    old = software.jax(machine(tmp_path))
    assert old.status == "fail"
    assert "0.4.38, but pyreactant requires >=0.10" in old.found


def test_jaxlib_must_be_the_one_that_jax_wants(tmp_path: Path) -> None:
    jax_packages(tmp_path, "0.10.2", jaxlib="0.9.0")
    found = software.jaxlib(machine(tmp_path))
    assert found.status == "fail"
    assert found.found == "0.9.0, but jax 0.10.2 requires jaxlib<=0.10.2,>=0.10.1"
    assert found.mend.endswith("-m pip install jax==0.10.2 jaxlib==0.10.2")
    right = tmp_path / "right"
    jax_packages(right)
    assert software.jaxlib(machine(right)).status == "pass"


def test_the_interpreter_of_the_line(tmp_path: Path) -> None:
    here = machine(tmp_path, python=str(tmp_path / "bin" / "python"))
    assert here.pip("numpy").startswith(f"{tmp_path}/bin/python -m pip")
    executable(tmp_path, "python", "exit 0")
    assert here.pip("numpy", "a b") == "python -m pip install numpy 'a b'"


class TestPlugins:
    def test_none_needed(self, tmp_path: Path) -> None:
        jax_packages(tmp_path)
        assert software.plugins(machine(tmp_path)).status == "pass"

    @pytest.mark.parametrize(
        ("driver", "extra"), [("580.95.05", "cuda13"), ("550.54.14", "cuda12")]
    )
    def test_none_where_gpus_are(self, tmp_path: Path, driver: str, extra: str) -> None:
        jax_packages(tmp_path)
        nvidia_driver(tmp_path, 4, driver)
        found = software.plugins(machine(tmp_path))
        assert found.status == "warn"
        assert "4 NVIDIA GPUs" in found.found
        assert found.mend.endswith(f"install 'jax[{extra}]'")

    def test_right(self, tmp_path: Path) -> None:
        jax_packages(tmp_path)
        nvidia_driver(tmp_path, 1)
        for part in ("plugin", "pjrt"):
            package(tmp_path, f"jax-cuda12-{part}", "0.10.2")
        found = software.plugins(machine(tmp_path))
        assert (found.status, found.found) == (
            "pass",
            "jax-cuda12-pjrt 0.10.2, jax-cuda12-plugin 0.10.2",
        )

    def test_of_another_version(self, tmp_path: Path) -> None:
        jax_packages(tmp_path)
        nvidia_driver(tmp_path, 1)
        for part in ("plugin", "pjrt"):
            package(tmp_path, f"jax-cuda12-{part}", "0.9.1")
        found = software.plugins(machine(tmp_path))
        assert found.status == "fail"
        assert "jax 0.10.2 requires jax-cuda12-plugin<=0.10.2,>=0.10.2" in found.found
        assert found.mend.endswith("install 'jax[cuda12]==0.10.2'")

    def test_two_kinds(self, tmp_path: Path) -> None:
        jax_packages(tmp_path)
        for name in ("jax-cuda12-plugin", "jax-cuda13-plugin"):
            package(tmp_path, name, "0.10.2")
        found = software.plugins(machine(tmp_path))
        assert found.status == "fail"
        assert "two versions of CUDA" in found.found
        assert "uninstall -y jax-cuda12-plugin" in found.mend

    def test_half_of_it(self, tmp_path: Path) -> None:
        jax_packages(tmp_path)
        package(tmp_path, "jax-cuda13-plugin", "0.10.2")
        found = software.plugins(machine(tmp_path))
        assert found.status == "fail"
        assert "but jax-cuda13-pjrt is missing" in found.found

    def test_without_a_gpu(self, tmp_path: Path) -> None:
        jax_packages(tmp_path)
        for part in ("plugin", "pjrt"):
            package(tmp_path, f"jax-cuda13-{part}", "0.10.2")
        found = software.plugins(machine(tmp_path))
        assert found.status == "warn"
        assert "but no NVIDIA GPU" in found.found


def test_libtpu(tmp_path: Path) -> None:
    jax_packages(tmp_path)
    assert software.libtpu(machine(tmp_path)).status == "pass"
    tpu_chips(tmp_path, 4)
    found = software.libtpu(machine(tmp_path))
    assert found.status == "warn"
    assert "4 TPU chips" in found.found
    assert found.mend.endswith("install 'libtpu==0.0.42.*'")
    package(tmp_path, "libtpu", "0.0.51")
    found = software.libtpu(machine(tmp_path))
    assert (found.status, found.found) == (
        "fail",
        "0.0.51, but jax 0.10.2 requires libtpu==0.0.42.*",
    )
