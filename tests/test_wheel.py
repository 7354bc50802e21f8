"""The unpacked wheel, as a user without a checkout gets it, with this environment's packages."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, environment

PLACES = {
    "julia/src": "_julia_package/src",
    "julia/ext": "_julia_package/ext",
    "julia/start": "_julia_package/start",
    "slurm": "_slurm",
    "gcloud": "_gcloud",
}
WHERE = """
import pyreactant
from pyreactant.julia.place import package_folder
from pyreactant.check.places import batch_folder
from pyreactant.runs.queued.lifecycle import scripts_folder
for found in (pyreactant.__file__, package_folder(), batch_folder(), scripts_folder()):
    print(found)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the unpacked wheel, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, tmp_path: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment() | {"PYTHONPATH": str(installed)},
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_file_is_in_it(installed: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "pyreactant", *PLACES, "julia/Project.toml"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("no git here, which says what belongs to the project")
    tracked = listed.stdout.split()
    assert len(tracked) > 200
    for name in tracked:
        inside = name.removeprefix("pyreactant/")
        for source, target in (*PLACES.items(), ("julia", "_julia_package")):
            if name.startswith(f"{source}/"):
                inside = f"{target}{name[len(source) :]}"
                break
        if (REPOSITORY / name).exists():  # git lists deleted files too
            there = installed / "pyreactant" / inside
            assert there.read_bytes() == (REPOSITORY / name).read_bytes(), name
    assert not [path for path in installed.rglob("*") if "test" in path.name.split("_")]


def test_it_finds_its_own(installed: Path, tmp_path: Path) -> None:
    """The wheel finds its own files, not those of a checkout in the working directory."""
    places = run(installed, tmp_path, "-c", WHERE).splitlines()
    assert len(places) == 4
    assert all(place.startswith(str(installed)) for place in places)


_SLURM = ("crosscheck", "--on", "slurm")


def test_its_commands_work(installed: Path, tmp_path: Path) -> None:
    output = run(installed, tmp_path, "-m", "pyreactant", "matmul", "--size", "8")
    assert "check     right" in output
    script = run(installed, tmp_path, "-m", "pyreactant", *_SLURM, "--dry-run")
    assert str(installed) in script
    cloud = [
        "crosscheck",
        "--on",
        "tpu",
        "--name",
        "test",
        "--project",
        "my-project",
        "--zone",
        "us-east5-b",
        "--topology",
        "v6e-16",
        "--runtime-version",
        "v2-alpha-tpuv6e",
    ]
    assert "v6e-16" in run(installed, tmp_path, "-m", "pyreactant", *cloud, "--dry-run")
