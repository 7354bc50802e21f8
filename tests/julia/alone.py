"""Python with the tests' Julia and the stand-in for Reactant, in a separate process."""

import subprocess
import sys
from pathlib import Path

from tests.harness import environment
from tests.julia.place import stand_in


def alone(code: str, timeout: float = 240, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run code; settings replace those of the stand-in, and "" removes one."""
    variables = environment(**{"PYREACTANT_BACKEND": "reactant", **stand_in(), **settings})
    variables = {name: value for name, value in variables.items() if value or name not in settings}
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=timeout)


def project(folder: Path, *, runtime: str | None = None) -> Path:
    """Create a Julia project with the packages of the tests' project and this preference."""
    template = Path(stand_in()["PYTHON_JULIACALL_PROJECT"])
    folder.mkdir(parents=True)
    for name in ("Project.toml", "Manifest.toml", "JuliaProject.toml"):
        if (template / name).exists():
            (folder / name).write_text((template / name).read_text())
    if runtime is not None:
        (folder / "LocalPreferences.toml").write_text(f'[Reactant]\nxla_runtime = "{runtime}"\n')
        text = (folder / "Project.toml").read_text()
        uuid = "3c362404-f566-11ee-1572-e11a4b42c853"
        (folder / "Project.toml").write_text(f'{text}\n[extras]\nReactant = "{uuid}"\n')
    return folder
