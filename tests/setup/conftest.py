"""A Python environment, a home directory and a stand-in for Julia for each test."""

import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPOSITORY, environment, require

# A setup needs juliacall's metadata and its requirements for juliapkg. The real juliacall also
# requires an OpenSSL that fits this Python's, which would restrict the choice of Julia.
JULIACALL = {
    "juliacall/__init__.py": "",
    "juliacall/juliapkg.json": json.dumps(
        {
            "julia": "^1.10.3",
            "packages": {
                "PythonCall": {"uuid": "6099a3de-0909-46bc-b1f4-468b9a2dfc0d", "version": "=0.9.37"}
            },
        }
    ),
}
STAND_IN = Path(__file__).with_name("stand_in_julia.sh")
_OURS = ("PYTHON_JULIA", "JULIA_", "REACTANT_", "XDG_CONFIG_HOME", "STAND_IN", "LD_PRELOAD")


@dataclass
class Here:
    """The place where a setup runs, isolated from other tests."""

    folder: Path

    @property
    def prefix(self) -> Path:
        """The Python environment."""
        return self.folder / "python"

    @property
    def python(self) -> str:
        """The Python of the environment."""
        return str(self.prefix / "bin" / "python")

    @property
    def julia(self) -> str:
        """The stand-in for Julia."""
        return str(self.folder / "julia")

    @property
    def project(self) -> Path:
        """The Julia project that juliapkg uses in such an environment."""
        return self.prefix / "julia_env"

    @property
    def notes(self) -> Path:
        """The file in which the stand-in records its calls."""
        return self.folder / "notes"

    def environment(self, **settings: str) -> dict[str, str]:
        """The environment variables of a process in this place."""
        kept = {k: v for k, v in environment().items() if not k.startswith(_OURS)}
        kept.pop("PYTHONPATH")
        own = {"HOME": str(self.folder / "home"), "STAND_IN": str(self.notes)}
        return {**kept, **own, "PYTHON_JULIAPKG_EXE": self.julia, **settings}

    def argv(self, **options: Any) -> list[str]:
        """The command that sets up."""
        return [self.python, "-P", "-m", "tests.setup.driver", json.dumps(options)]

    def run(
        self, settings: dict[str, str] | None = None, within: Sequence[str] = (), **options: Any
    ) -> dict[str, Any]:
        """Set up, optionally within a command; return the record or the error, and its steps."""
        ran = subprocess.run(
            [*within, *self.argv(**options)],
            env=self.environment(**(settings or {})),
            capture_output=True,
            text=True,
            timeout=500,
        )
        lines = ran.stdout.splitlines()
        assert lines, ran.stderr
        answer: dict[str, Any] = json.loads(lines[-1])
        assert isinstance(answer, dict), ran.stderr
        return {
            **answer,
            "steps": [json.loads(line) for line in lines[:-1]],
            "code": ran.returncode,
        }

    def asked(self) -> list[str]:
        """The actions of the stand-in, in order."""
        path = self.notes / "asked"
        return path.read_text().split() if path.exists() else []

    def place(self, **settings: str) -> dict[str, str]:
        """The result of `find_place`, in a separate process."""
        code = (
            "import json; from pyreactant.julia.place import find_place; p = find_place();"
            "print(json.dumps({k: str(v) for k, v in vars(p).items()}))"
        )
        ran = subprocess.run(
            [self.python, "-P", "-c", code],
            env=self.environment(**settings),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        found: dict[str, str] = json.loads(ran.stdout)
        return found


@pytest.fixture
def here(tmp_path: Path) -> Here:
    """A new Python environment with all packages of the current one."""
    require(importlib.util.find_spec("juliapkg"), "juliapkg")
    return make(tmp_path)


def make(folder: Path) -> Here:
    """Create the place in a folder."""
    here = Here(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir()
    here.notes.mkdir()
    shutil.copy(STAND_IN, here.julia)
    source = folder / "package" / "_julia_package" / "src"  # tests may change the original
    source.mkdir(parents=True)
    (source / "PyReactant.jl").write_text("module PyReactant end\n")
    venv.create(here.prefix, symlinks=True)
    [packages] = here.prefix.glob("lib/python*/site-packages")
    for name, text in JULIACALL.items():
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text(text)
    ours = [folder for folder in sys.path if "site-packages" in folder]
    (packages / "all.pth").write_text("\n".join([*ours, str(REPOSITORY)]))
    return here


class Mounted:
    """Prefixes of commands that mount folders for one command only."""

    def __init__(self) -> None:
        self._base = ["unshare", "--mount", "--map-root-user", "--"]
        works = shutil.which("unshare") and subprocess.run([*self._base, "true"]).returncode == 0
        require(works, "unshare, and the right to mount")

    def read_only(self, *folders: Path) -> list[str]:
        """Mount these folders read-only."""
        lines = []
        for folder in map(shlex.quote, map(str, folders)):
            lines += [f"mount --bind {folder} {folder}", f"mount -o remount,bind,ro {folder}"]
        return self._shell(*lines)

    def full(self, folder: Path) -> list[str]:
        """Mount a full file system on this folder."""
        name = shlex.quote(str(folder))
        return self._shell(
            f"mount -t tmpfs -o size=64k none {name}",
            f"mkdir {name}/pyreactant",
            f"touch {name}/pyreactant/lock",
            f"dd if=/dev/zero of={name}/filler bs=4k status=none 2>/dev/null || true",
        )

    def _shell(self, *lines: str) -> list[str]:
        script = "\n".join(["set -e", *lines, 'exec "$@"'])
        return [*self._base, "sh", "-c", script, "sh"]


@pytest.fixture
def mounted() -> Mounted:
    """A way to run commands with read-only folders and full disks."""
    return Mounted()
