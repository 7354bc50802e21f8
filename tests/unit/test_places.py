"""What places say when their settings, or their tools, cannot work."""

import subprocess
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs.places.slurm_jobs import Command, check_reached, reports
from pyreactant.runs.record import draft


@pytest.mark.parametrize("name", ["absent.conf", "."])
def test_no_configuration_file_of_slurm(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / name
    monkeypatch.setenv("SLURM_CONF", str(conf))
    said = f"SLURM_CONF must name the configuration file of Slurm, but '{conf}' cannot be read "
    with pytest.raises(pr.RequirementError) as raised:
        pr.targets.Slurm().check()
    assert str(raised.value).startswith(said)
    with pytest.raises(pr.RequirementError) as raised:
        Command(["squeue"]).outcome()
    assert str(raised.value).startswith(said)


def test_the_first_line_of_slurm_has_the_cause() -> None:
    """As sbatch of Slurm 22.05 wrote it; its last line alone says only what follows."""
    first = "sbatch: error: s_p_parse_file: cannot stat file /nope: No such file or directory"
    last = "sbatch: fatal: Unable to process configuration file"
    done = subprocess.CompletedProcess(["sbatch"], 1, "", f"{first}, retrying\n{last}\n")
    with pytest.raises(pr.RequirementError) as raised:
        check_reached(done)
    assert f"controller: {first}, retrying; {last}; check with scontrol" in str(raised.value)


def test_both_is_the_name_of_no_runtime_on_tpu() -> None:
    target = pr.targets.TPU("v6e-16", project="my-project", zone="us-east5-b", backend="both")
    with pytest.raises(pr.InvalidArgumentError) as raised:
        target.plan(draft("train.py:main", "tpu", {}))
    said = "unknown backend 'both'; known are: jax, reactant; for both, one after the other, name "
    assert str(raised.value) == f"{said}jax,reactant"


def test_the_report_of_a_crosscheck_is_not_that_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "report.json").write_text('{"cause": "done", "exit_code": 0}')
    (tmp_path / "report.json").write_text('{"verdict": "right"}')
    assert reports(tmp_path, 7) == {"jax": {"cause": "done", "exit_code": 0}}
