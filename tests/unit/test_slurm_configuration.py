"""SLURM_CONF names no file: sbatch would try again for a minute before it says so."""

from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.runs.places.slurm_jobs import Command


@pytest.mark.parametrize("name", ["absent.conf", "."])
def test_no_configuration_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / name
    monkeypatch.setenv("SLURM_CONF", str(conf))
    said = f"SLURM_CONF must name the configuration file of Slurm, but '{conf}' cannot be read "
    with pytest.raises(pr.RequirementError) as raised:
        pr.targets.Slurm().check()
    assert str(raised.value).startswith(said)
    with pytest.raises(pr.RequirementError) as raised:
        Command(["squeue"]).outcome()
    assert str(raised.value).startswith(said)
