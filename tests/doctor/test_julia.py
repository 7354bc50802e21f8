"""Julia and its project, read without starting more than `julia --version`."""

from pathlib import Path

import pytest

from pyreactant.doctor import software
from pyreactant.doctor.check import Machine
from tests.doctor.machines import (
    executable,
    julia,
    julia_project,
    machine,
    nvidia_driver,
    package,
    settled,
)

REAL = {"Reactant": "0.2.280", "Reactant_jll": "0.0.250+0", "PythonCall": "0.9.37"}


def place(
    folder: Path, versions: dict[str, str] = REAL, preferences: str = "", **environ: str
) -> Machine:
    project = julia_project(folder, versions, preferences)
    return machine(folder, environ={**settled(julia(folder), project), **environ})


def test_nothing_is_there(tmp_path: Path) -> None:
    here = machine(tmp_path)
    absent = software.juliacall(here)
    assert absent.status == "absent"
    assert absent.mend.endswith("-m pip install 'pyreactant[reactant]'")
    for check in (software.julia, software.project):
        assert check(here).status == "unknown"
    package(tmp_path, "juliacall", "0.9.37")
    assert software.juliacall(here).found == "0.9.37, without juliapkg"
    for check in (software.julia, software.project):
        found = check(here)
        assert (found.status, found.mend) == ("absent", "pyreactant setup")
    for check in (software.reactant, software.libraries, software.xla_runtime):
        assert check(here).status == "unknown"


def test_all_is_there(tmp_path: Path) -> None:
    here = place(tmp_path, preferences='[Reactant]\nxla_runtime = "IFRT"\n')
    package(tmp_path, "juliacall", "0.9.37")
    package(tmp_path, "juliapkg", "0.1.28")
    found = [
        check(here)
        for check in (
            software.juliacall,
            software.julia,
            software.project,
            software.reactant,
            software.libraries,
            software.xla_runtime,
        )
    ]
    assert [f.status for f in found] == ["pass"] * 6, found
    assert found[0].found == "0.9.37, with juliapkg 0.1.28"
    assert found[1].found.startswith("1.12.1, ")
    assert "Julia Projekt ü, from PYTHON_JULIACALL_EXE" in found[2].found
    assert found[3].found == "0.2.280"
    assert found[4].found.startswith("0.0.250+0, GPU variant not set")
    assert found[5].found == "IFRT, by preference"


def test_on_path_but_not_settled(tmp_path: Path) -> None:
    package(tmp_path, "juliacall", "0.9.37")
    julia(tmp_path)
    found = software.julia(machine(tmp_path))
    assert found.status == "warn"
    assert "on PATH but not set up" in found.found
    assert found.mend == "pyreactant setup"


def test_too_old(tmp_path: Path) -> None:
    julia(tmp_path, "1.9.4")
    found = software.julia(machine(tmp_path))
    assert found.status == "fail"
    assert "1.9.4" in found.found
    assert "juliacall needs 1.10.3 or newer" in found.found


@pytest.mark.parametrize("script", ["echo broken >&2; exit 127", "echo hello"])
def test_not_a_julia(tmp_path: Path, script: str) -> None:
    executable(tmp_path, "julia", script)
    found = software.julia(machine(tmp_path))
    assert found.status == "fail"
    assert "printed no version" in found.found


def test_one_of_the_two_variables(tmp_path: Path) -> None:
    here = machine(tmp_path, environ={"PYTHON_JULIACALL_EXE": str(julia(tmp_path))})
    found = software.project(here)
    assert found.status == "absent"
    assert "must be set together" in found.found
    assert found.mend == "unset PYTHON_JULIACALL_EXE PYTHON_JULIACALL_PROJECT"


def test_the_project_has_gone(tmp_path: Path) -> None:
    here = machine(tmp_path, environ=settled(julia(tmp_path), tmp_path / "gone"))
    found = software.project(here)
    assert found.status == "absent"
    assert "gone" in found.found


def test_nothing_is_resolved(tmp_path: Path) -> None:
    here = place(tmp_path)
    (tmp_path / "Julia Projekt ü" / "Manifest.toml").unlink()
    found = software.project(here)
    assert (found.status, found.mend) == ("fail", "pyreactant setup")
    assert "no Manifest.toml" in found.found


def test_a_project_without_reactant(tmp_path: Path) -> None:
    here = place(tmp_path, {"PythonCall": "0.9.37"})
    found = software.reactant(here)
    assert (found.status, found.mend) == ("fail", "pyreactant setup")
    assert software.libraries(here).status == "fail"


def test_a_stand_in_is_called_one(tmp_path: Path) -> None:
    here = place(tmp_path, {"Reactant": "0.2.280"})
    assert "not the real Reactant" in software.reactant(here).found
    assert software.libraries(here).status == "warn"


def test_the_manifest_of_the_last_julia_counts(tmp_path: Path) -> None:
    here = place(tmp_path)
    newer = tmp_path / "Julia Projekt ü" / "Manifest-v1.12.toml"
    newer.write_text('[[deps.Reactant]]\nversion = "0.2.281"\n')
    assert software.reactant(here).found.startswith("0.2.281")


def test_pythoncall_and_juliacall_belong_together(tmp_path: Path) -> None:
    here = place(tmp_path, {**REAL, "PythonCall": "0.9.35"})
    package(tmp_path, "juliacall", "0.9.37")
    found = software.juliacall(here)
    assert found.status == "fail"
    assert "PythonCall 0.9.35: the versions must be equal" in found.found
    assert found.mend.endswith("install juliacall==0.9.35")


def test_the_gpu_variant(tmp_path: Path) -> None:
    here = place(tmp_path, preferences='[Reactant_jll]\ngpu = "none"\n')
    assert software.libraries(here).status == "pass"
    nvidia_driver(tmp_path, 2)
    found = software.libraries(here)
    assert found.status == "warn"
    assert "GPU variant none (preference); this machine has 2 GPUs" in found.found
    assert found.mend == "pyreactant setup --gpu cuda"


def test_the_variant_of_the_environment(tmp_path: Path) -> None:
    here = place(tmp_path, preferences='[Reactant_jll]\ngpu = "none"\n', REACTANT_GPU="cuda")
    nvidia_driver(tmp_path, 2)
    found = software.libraries(here)
    assert found.status == "pass"
    assert "cuda (REACTANT_GPU)" in found.found


class TestRuntime:
    def test_pjrt(self, tmp_path: Path) -> None:
        found = software.xla_runtime(
            place(tmp_path, preferences='[Reactant]\nxla_runtime = "PJRT"\n')
        )
        assert found.status == "warn"
        assert found.found == "PJRT, by preference: for one process only"
        assert found.mend.startswith("pyreactant prefs set xla_runtime IFRT")

    def test_no_such_runtime(self, tmp_path: Path) -> None:
        found = software.xla_runtime(
            place(tmp_path, preferences='[Reactant]\nxla_runtime = "TFRT"\n')
        )
        assert found.status == "fail"
        assert "TFRT" in found.found

    @pytest.mark.parametrize(("real", "status"), [("IFRT", "pass"), ("PJRT", "fail")])
    def test_against_the_real_one(self, tmp_path: Path, real: str, status: str) -> None:
        here = place(tmp_path, preferences='[Reactant]\nxla_runtime = "IFRT"\n')
        found = software.xla_runtime(here, real)
        assert found.status == status
        if status == "fail":
            assert "but Reactant was compiled with PJRT" in found.found
            assert found.mend == "pyreactant setup"
