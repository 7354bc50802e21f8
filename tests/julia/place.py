"""The Julia that tests of the real-Julia level use, with the stand-in for Reactant."""

import os

from tests.harness import REPOSITORY

STAND_IN = REPOSITORY / "julia" / "test" / "Reactant"
NAMED = ("PYREACTANT_TEST_JULIA", "PYREACTANT_TEST_JULIA_PROJECT")


def absent() -> str | None:
    """Why this level cannot run here, or None."""
    missing = [name for name in NAMED if not os.environ.get(name)]
    if missing:
        return f"no Julia was named for tests ({' and '.join(missing)})"
    return None


def stand_in() -> dict[str, str]:
    """Settings under which pyreactant starts that Julia and finds the stand-in."""
    executable, project = (os.environ[name] for name in NAMED)
    return {
        "PYTHON_JULIACALL_EXE": executable,
        "PYTHON_JULIACALL_PROJECT": project,
        # An empty part is Julia's own path; the stand-in comes after the project.
        "JULIA_LOAD_PATH": f"{os.environ.get('JULIA_LOAD_PATH', '')}:{STAND_IN}",
    }
