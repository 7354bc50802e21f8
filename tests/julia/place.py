"""The Julia for tests, with the stand-in for Reactant or with Reactant's own sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness import REPOSITORY, environment

STAND_IN = REPOSITORY / "julia" / "test" / "Reactant"
NAMED = ("PYREACTANT_TEST_JULIA", "PYREACTANT_TEST_JULIA_PROJECT")
LIBRARY = "PYREACTANT_TEST_XLA_LIBRARY"

real_sources = False  # what pytest's option --reactant says


def absent() -> str | None:
    """The reason why this level cannot run on this machine, or None."""
    named = (*NAMED, LIBRARY) if real_sources else NAMED
    missing = [name for name in named if not os.environ.get(name)]
    if missing:
        return f"no Julia was named for tests ({' and '.join(missing)})"
    return None


def settings() -> dict[str, str]:
    """Environment settings with which pyreactant starts that Julia, and the Reactant under test."""
    if not real_sources:
        return stand_in()
    executable, project = (os.environ[name] for name in NAMED)
    return {"PYTHON_JULIACALL_EXE": executable, "PYTHON_JULIACALL_PROJECT": project}


def stand_in(reactant: Path = STAND_IN) -> dict[str, str]:
    """Environment settings with which pyreactant starts that Julia and finds the stand-in."""
    executable, project = (os.environ[name] for name in NAMED)
    return {
        "PYTHON_JULIACALL_EXE": executable,
        "PYTHON_JULIACALL_PROJECT": project,
        # An empty part is Julia's default path; the stand-in follows the project.
        "JULIA_LOAD_PATH": f"{os.environ.get('JULIA_LOAD_PATH', '')}:{reactant}",
    }


def command(*words: str) -> list[str]:
    """That Julia in its project; it optimises as juliacall does, so one compilation serves both."""
    executable, project = (os.environ[name] for name in NAMED)
    level = os.environ.get("PYTHON_JULIACALL_OPTIMIZE", "2")
    return [executable, f"--project={project}", "--startup-file=no", f"-O{level}", *words]


def compile_packages() -> None:
    """Precompile changed packages, which takes a minute or more; Julia caches the result."""
    code = "from pyreactant.arrays.runtimes.reactant import julia; julia.start()"
    subprocess.run([sys.executable, "-c", code], env=environment(**settings()), check=True)


def without_workload(folder: Path) -> Path:
    """A copy of the stand-in without the precompile workload that the real Reactant lacks."""
    copy = folder / "Reactant"
    shutil.copytree(STAND_IN, copy)
    (copy / "ext" / "ReactantPyReactantExt.jl").unlink()
    project = copy / "Project.toml"
    lines = project.read_text().splitlines(keepends=True)
    project.write_text("".join(x for x in lines if not x.startswith("ReactantPyReactantExt")))
    return copy
