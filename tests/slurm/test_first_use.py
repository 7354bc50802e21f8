"""What a first user of `slurm/main.sbatch` meets: arrays, --export, a wheel, no controller."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from pyreactant import InvalidArgumentError, ShardingError
from pyreactant.check.places import slurm_command
from pyreactant.runs.supervisor.options import RunOptions
from tests.harness import REPOSITORY, environment
from tests.slurm.cluster import Cluster

MAIN = str(REPOSITORY / "slurm" / "main.sbatch")
PYREACTANT = (sys.executable, "-m", "pyreactant")
SCRIPT = "import os\nprint('ran on', os.environ['PYREACTANT_BACKEND'])\n"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package as a wheel has it, for PYTHONPATH; tests/test_wheel.py checks a real one."""
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "pyreactant", site / "pyreactant", ignore=ignored)
    shutil.copytree(REPOSITORY / "slurm", site / "pyreactant" / "_slurm")
    return site


@pytest.mark.slow
def test_an_array_from_a_wheel_without_the_environment(
    cluster: Cluster, installed: Path, tmp_path: Path
) -> None:
    """Each task finds Python and its settings, and has its own folder."""
    out = tmp_path / "the output"
    options = ["--nodes", "1", "--cpus-per-task", "1", "--backends", "jax", "--size", "8"]
    sbatch = ["--sbatch=--array=0-1", "--sbatch=--export=NONE"]
    submit = [*PYREACTANT, "crosscheck", "--on", "slurm", *options, *sbatch, "--out", str(out)]
    env = environment() | {"PYTHONPATH": str(installed)}
    done = cluster.run(submit, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    array = int(done.stdout.split()[2].strip(";"))
    for index in range(2):
        status = [*PYREACTANT, "jobs", "status", f"{array}_{index}", "--json"]
        ended = cluster.wait(f"{array}_{index}", timeout=120)
        found = json.loads(cluster.run(status, env=env, cwd=tmp_path).stdout)
        printed = (tmp_path / f"pyreactant-{found['raw_id']}.out").read_text()
        assert (ended.state, ended.code) == ("COMPLETED", 0), printed
        assert "matmul: right on jax" in printed
        assert found["folder"] == str(out / str(index))
        assert found["runs"]["jax"]["cause"] == "done"
        job = (out / str(index) / "provenance" / "job").read_text()
        assert job.count("Command=") == 1
        assert f"ArrayTaskId={index}" in job
    assert sorted(p.name for p in out.iterdir()) == ["0", "1"]


def test_sbatch_that_exports_nothing(cluster: Cluster, script: str, tmp_path: Path) -> None:
    env = environment(SBATCH_EXPORT="NONE")
    argv = ["--nodes=2", "--cpus-per-task=1", MAIN, script]
    number = cluster.submit(argv, env=env, cwd=tmp_path)
    ended = cluster.wait(number, timeout=120)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert (ended.state, ended.code) == ("COMPLETED", 0), printed
    assert "2 processes joined" in printed


def test_heterogeneous_jobs_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    one = ["--nodes=1", "--cpus-per-task=1"]
    number = cluster.submit([*one, ":", *one, MAIN], env=environment(), cwd=tmp_path)
    ended = cluster.wait(number)
    assert (ended.state, ended.code) == ("FAILED", 2)
    printed = (tmp_path / f"pyreactant-{number}.out").read_text()
    assert "this is a heterogeneous job of 2 components; submit one component" in printed


def test_no_controller(cluster: Cluster, tmp_path: Path) -> None:
    """Slurm is installed, and its controller does not answer."""
    conf = tmp_path / "slurm.conf"
    usual = (cluster.folder / "etc" / "slurm.conf").read_text()
    conf.write_text(f"{usual}\nSlurmctldPort=6999\nMessageTimeout=1\n")
    env = environment(SLURM_CONF=str(conf), XDG_STATE_HOME=str(tmp_path))
    job = ["run", "--on", "slurm", "--", "true"]
    check = ["crosscheck", "--on", "slurm"]
    for command in (check, ["jobs", "status", "1"], ["jobs", "cancel", "1"], job):
        done = cluster.run([*PYREACTANT, *command], env=env, cwd=tmp_path)
        assert done.returncode == 3, done
        assert "does not reach Slurm's controller: " in done.stderr
        assert "check with scontrol ping that it runs, and run this command on" in done.stderr


def test_unknown_runtimes() -> None:
    known = "known are: jax, reactant"
    with pytest.raises(InvalidArgumentError, match=f"unknown backend 'jax,reactant'; {known}"):
        RunOptions(["-m", "x"], backend="jax,reactant")
    for text in ("jax,recatant", "jax recatant", "recatant"):
        with pytest.raises(InvalidArgumentError, match=f"unknown backend 'recatant'; {known}"):
            slurm_command({}, {"backends": text})
    for text in ("jax", "jax,reactant", "jax reactant", "jax, reactant"):
        slurm_command({}, {"backends": text})


def test_specs_of_several_inputs() -> None:
    command = slurm_command({}, {"spec": "x,y;y,x"})
    assert command.settings["PYREACTANT_SPEC"] == "x,y;y,x"
    with pytest.raises(ShardingError, match="cannot read partition spec ''"):
        slurm_command({}, {"spec": "x;;"})
    with pytest.raises(InvalidArgumentError, match="size must be 1 or more, got 0"):
        slurm_command({}, {"size": 0})


def test_what_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings reach the job also where the rest of the environment does not."""
    monkeypatch.setenv("PYREACTANT_PYTHON", "python")

    def options(*more: str) -> list[str]:
        argv = slurm_command({"options": more}, {"size": 4, "mesh": "x=2,y=2"}).argv
        return [text for text in argv if text.startswith("--export")]

    names = "PYREACTANT_SIZE,PYREACTANT_MESH"
    assert options() == []
    assert options("--export=ALL,X=1") == ["--export=ALL,X=1"]
    assert options("--export=NONE")[-1] == f"--export={names}"
    assert options("--export=NIL", "--export=HOME,X=1")[-1] == f"--export=HOME,X=1,{names}"
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    assert options() == [f"--export={names}"]
    assert slurm_command({}, {}).argv[2:-1] == []


def test_this_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless main.sbatch finds it in its checkout, or the user names one."""
    monkeypatch.delenv("PYREACTANT_PYTHON", raising=False)

    def named(executable: str) -> dict[str, str]:
        monkeypatch.setattr(sys, "executable", executable)
        return dict(slurm_command({}, {}).settings)

    assert named("/opt/conda/bin/python") == {"PYREACTANT_PYTHON": "/opt/conda/bin/python"}
    assert named(str(REPOSITORY / ".venv" / "bin" / "python3")) == {}
    monkeypatch.setenv("PYREACTANT_PYTHON", "other")
    assert named("/opt/conda/bin/python") == {}
