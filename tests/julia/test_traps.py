"""Each piece of code that avoids a trap of Reactant is needed: without it a test fails."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, environment, free_port, spawn
from tests.julia.place import STAND_IN, command
from tests.julia.traps import JULIA, MUTANTS, PORT, Mutant

pytestmark = [pytest.mark.julia, pytest.mark.timeout(600)]


def in_julia(mutant: Mutant, folder: Path) -> list[tuple[int | None, str]]:
    """Run the mutant's files; the definition changes after the package is loaded."""
    assert not isinstance(mutant.runs, str)
    ours, port = REPOSITORY / "julia", str(free_port())
    settings = {
        "JULIA_LOAD_PATH": ":".join(map(str, ("", STAND_IN, ours / "start", ours))),
        "JULIA_PYTHONCALL_EXE": sys.executable,
        "JULIA_CONDAPKG_BACKEND": "Null",
        "JULIA_PKG_OFFLINE": "true",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={8 if len(mutant.runs) == 1 else 2}",
        "STANDIN_REACTANT_GPU": mutant.gpu,
        "PYREACTANT_MUTANT": mutant.file.removeprefix(JULIA),
        "PYREACTANT_MUTANT_CODE": mutant.code,
        "PYREACTANT_MUTANT_WITHOUT": mutant.without,
    }
    argvs = [
        command(str(ours / "test" / file), *(port if a == PORT else a for a in arguments))
        for file, *arguments in mutant.runs
    ]
    finished = spawn(argvs, [environment(**settings)] * len(argvs), folder, 400)
    return [(f.code, f.log) for f in finished]


def in_python(mutant: Mutant, folder: Path) -> list[tuple[int | None, str]]:
    """Run the mutant's tests in a changed copy of the project."""
    copy = folder / "project"
    kept_out = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("pyreactant", "tests", "julia"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=kept_out)
    shutil.copy(REPOSITORY / "pyproject.toml", copy)
    changed = copy / mutant.file
    text = changed.read_text()
    assert text.count(mutant.code) == 1, f"{mutant.file} must have this once: {mutant.code}"
    changed.write_text(text.replace(mutant.code, mutant.without))
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(mutant.runs)]
    ran = subprocess.run(
        argv, cwd=copy, env=environment(PYTHONPATH=str(copy)), capture_output=True, text=True
    )
    return [(ran.returncode, ran.stdout + ran.stderr)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.trap)
def test_without_it_a_test_fails(mutant: Mutant, tmp_path: Path) -> None:
    run = in_python if isinstance(mutant.runs, str) else in_julia
    found = run(mutant, tmp_path)
    logs = "\n".join(log for _, log in found)
    assert any(code != 0 for code, _ in found), f"nothing noticed that {mutant.trap}:\n{logs}"
    assert "must have this once" not in logs, logs
    assert mutant.says in logs, logs
