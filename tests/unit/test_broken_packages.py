"""A package that cannot be imported is a requirement that is missing, wherever it is imported."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tests import harness
from tests.harness import environment

NUMPY = '''raise ImportError("""

IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!

Importing the numpy C-extensions failed.

Original error was: libopenblas.so: cannot open shared object file
""")
'''
OLD_JAXLIB = {
    "jaxlib/__init__.py": "",
    "jaxlib/version.py": "__version__ = '0.4.0'",
    "jaxlib-0.4.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: jaxlib\nVersion: 0.4.0\n",
}
INITIALIZE = "import pyreactant as pr\npr.initialize()\n"
PLAIN = "import jax\njax.devices()\n"
JAX = importlib.metadata.version("jax")
FIT = "needs the package jax, which cannot be imported (RuntimeError: jaxlib is version 0.4.0, but "
MEND = f"make them fit with: python -m pip install jax=={JAX} jaxlib=={JAX}"
AGAIN = "or install it again with: python -m pip install --force-reinstall"


def _run(
    folder: Path, files: dict[str, str], *argv: str, program: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with some packages replaced; `program` is the text of ./program.py."""
    for name, text in {**files, "../program.py": program}.items():
        path = folder / "site-packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = environment(**more)
    settings["PYTHONPATH"] = f"{folder / 'site-packages'}:{settings['PYTHONPATH']}"
    return harness.run([sys.executable, *argv], env=settings, cwd=folder)


RUN = ("-m", "pyreactant", "run", "--platform", "cpu", "--processes", "2", "--", "program.py")


@pytest.mark.parametrize(
    ("files", "argv", "program", "messages"),
    [
        (OLD_JAXLIB, RUN, INITIALIZE, (f"backend 'jax' {FIT}", MEND)),
        (OLD_JAXLIB, RUN, PLAIN, (f"the program {FIT}", MEND)),
        (OLD_JAXLIB, ("-m", "pyreactant", "matmul", "--size", "8"), "", ("backend 'jax' ", MEND)),
        (
            OLD_JAXLIB,
            ("-m", "pyreactant", "preflight", "matmul", "--size", "64", "--topology", "v5e:2x2"),
            "",
            (f"pyreactant {FIT}", MEND),
        ),
        (
            {"jax/__init__.py": "from ._src import absent"},
            RUN,
            INITIALIZE,
            ("needs the package jax, which cannot be imported (No module named 'jax._src')", AGAIN),
        ),
        (
            {"numpy/__init__.py": NUMPY},
            RUN,
            PLAIN,
            ("needs the package numpy, which cannot be imported (numpy._core.multiarr", AGAIN),
        ),
        (
            {"numpy/__init__.py": NUMPY},
            ("-m", "pyreactant", "matmul", "--size", "8"),
            "",
            ("pyreactant needs the package numpy, which cannot be imported (libopenblas", AGAIN),
        ),
        (
            {"typer/__init__.py": "raise AttributeError('no such thing')"},
            ("-m", "pyreactant", "--version"),
            "",
            ("needs the package typer, which cannot be imported (AttributeError: no such", AGAIN),
        ),
        (
            {"typer/__init__.py": "import typer.absent"},
            ("-m", "pyreactant", "jobs", "list"),
            "",
            ("needs the package typer, which cannot be imported (No module named 'typer.a", AGAIN),
        ),
        (
            {"../jax.py": "x = 1"},
            RUN,
            PLAIN,
            ("(AttributeError: module 'jax' has no attribute 'devices'); it is not the inst", ""),
        ),
    ],
)
def test_exit_code_and_message(
    tmp_path: Path,
    files: dict[str, str],
    argv: tuple[str, ...],
    program: str,
    messages: tuple[str, ...],
) -> None:
    ran = _run(tmp_path, files, *argv, program=program)
    assert ran.returncode == 3, ran.stderr
    for message in messages:
        assert message in ran.stderr, ran.stderr
    assert "internal error" not in ran.stderr


@pytest.mark.parametrize(
    ("files", "program", "message"),
    [
        (OLD_JAXLIB, INITIALIZE, MEND),
        ({"numpy/__init__.py": NUMPY}, "import pyreactant as pr\npr.Mesh\n", AGAIN),
        (
            {"../jax.py": "x = 1"},
            INITIALIZE,
            "jax.py: rename that, or take its folder off PYTHONPATH",
        ),
    ],
)
def test_in_python(tmp_path: Path, files: dict[str, str], program: str, message: str) -> None:
    ran = _run(tmp_path, files, "program.py", program=program)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("pyreactant.base.errors.RequirementError: ")
    assert message in last


@pytest.mark.parametrize(
    "program", ["import jax\njax.nmp\n", "from jax import nmp\n", "import jax.nmp\n", "1 / 0\n"]
)
def test_a_mistake_of_the_program_is_its_own(tmp_path: Path, program: str) -> None:
    ran = _run(tmp_path, {}, *RUN, program=program)
    assert ran.returncode == 1, ran.stderr
    assert "needs the package" not in ran.stderr


@pytest.mark.parametrize(
    ("variable", "value"), [("JAX_NUM_CPU_DEVICES", "x"), ("JAX_ENABLE_X64", "banana")]
)
def test_a_variable_that_jax_refuses(variable: str, value: str, tmp_path: Path) -> None:
    """It was once a package to install again."""
    ran = _run(tmp_path, {}, *RUN, program=PLAIN, **{variable: value})
    assert ran.returncode == 2, ran
    assert f"{variable}={value!r} in the environment is no value that jax takes" in ran.stderr
    assert "pip install" not in ran.stderr
