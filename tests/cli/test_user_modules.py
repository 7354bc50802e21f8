"""A mistake in a user's module is told with its file, line and exception, in every command."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.base.packages import is_library
from pyreactant.check.programs import find_case
from tests import harness
from tests.harness import environment
from tests.harness import pyreactant as run

COMMAND = str(Path(sys.executable).with_name("pyreactant"))
"""As a user types it; `python -m pyreactant` finds modules in the current folder first."""

# The module, the line of the mistake, and what is told of it.
MODULES = {
    "name": ("import numpy as np\nx = absent\n", 2, "NameError: name 'absent' is not defined"),
    "syntax": ("def main(x:\n    return x\n", 1, "SyntaxError: '(' was never closed"),
    "zero": ("def f():\n    1 / 0\nf()\n", 2, "ZeroDivisionError: division by zero"),
    "keyword": (
        "import pyreactant as pr\nmain = pr.Program('x', jaxx=1)\n",
        2,
        "TypeError: Program.__init__() got an unexpected keyword argument 'jaxx'",
    ),
    "argument": (
        "import pyreactant as pr\n\nmain = pr.Program('x', jax=3)\n",
        3,
        "InvalidArgumentError: Program 'x': jax= must be",
    ),
    "exit": ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
    "exit_0": ("import sys\nsys.exit()\n", 2, "SystemExit"),
    "base": ("class Own(BaseException): pass\nraise Own('mine')\n", 2, "Own: mine"),
    "interrupt": ("\nraise KeyboardInterrupt\n", 2, "KeyboardInterrupt"),
    "recursion": ("def f(): return f()\nf()\n", 1, "RecursionError: maximum recursion depth"),
    "package": ("import no_such_thing\n", 1, "ModuleNotFoundError: No module named 'no_such"),
    "attribute": ("import numpy as np\nnp.absent\n", 2, "AttributeError: module 'numpy' has no"),
    "library": ("import json\n\njson.loads('{')\n", 3, "JSONDecodeError: Expecting property"),
    "lazy": ("def __getattr__(name):\n    raise ValueError(name)\n", 2, "ValueError: main"),
    "text": (
        "class Own(Exception):\n    def __str__(self): raise ValueError\nraise Own\n",
        3,
        "Own",
    ),
    "file": ("open('/no/such/file')\n", 1, "FileNotFoundError: [Errno 2] No such file"),
    "latin": ("x = '\udce9'\n", 1, "SyntaxError: (unicode error) 'utf-8' codec can't decode"),
}


def write(name: str, folder: Path) -> str:
    """The module, as a file; its path."""
    path = folder / f"{name}.py"
    path.write_text(MODULES[name][0], errors="surrogateescape")
    return str(path)


@pytest.mark.parametrize("name", MODULES)
def test_file_line_and_exception(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path)
    _, line, wanted = MODULES[name]
    with pytest.raises(pr.InvalidArgumentError) as error:
        find_case(f"{path}:main")
    text = f"cannot import program '{path}:main': {path}, line {line}: {wanted}"
    assert str(error.value).startswith(text)
    assert "\n" not in str(error.value)
    with pytest.raises(pr.InvalidArgumentError, match=f"jax='{path}:main': {path}, line {line}: "):
        pr.compile(pr.Program("own", jax=f"{path}:main"))


@pytest.mark.parametrize("made", ["pass", "raise ImportError"])
def test_an_interrupt_is_none_of_the_modules_mistakes(made: str, tmp_path: Path) -> None:
    """Ctrl-C, which the module itself sends here, is Ctrl-C whatever the module makes of it."""
    code = "import signal\ntry:\n  signal.raise_signal(signal.SIGINT)\nfinally:\n  " + made
    (tmp_path / "sent.py").write_text(code)
    with pytest.raises(KeyboardInterrupt):
        find_case(f"{tmp_path}/sent.py:main")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_folder_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(pr.InvalidArgumentError, match=r"there is no file '.*folder.py'"):
        find_case(f"{tmp_path}/folder.py:main")


@pytest.mark.parametrize("name", ["zero", "exit_0", "base", "interrupt", "latin"])
def test_a_cross_check_ends_with_2(name: str, tmp_path: Path) -> None:
    write(name, tmp_path)
    _, line, wanted = MODULES[name]
    ran = run("crosscheck", f"{name}:main", folder=tmp_path)
    assert ran.returncode == 2, ran.stderr
    start = f"error: cannot import program '{name}:main': {name}.py, line {line}: {wanted}"
    assert ran.stderr.startswith(start)
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["json.py", "queue.py"])
def test_a_file_with_the_name_of_a_module_of_python(name: str, tmp_path: Path) -> None:
    """It is not found in place of Python's, neither by the command nor by its runs."""
    (tmp_path / name).write_text(
        "import pyreactant as pr\n"
        "main = pr.Program('x', jax=lambda a: -a, oracle=lambda a: -a, inputs=(('n', 'n'),))\n"
    )
    argv = [COMMAND, "crosscheck", f"{name}:main", "--backends", "jax", "--quick"]
    ran = harness.run(argv, env=environment(), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert f"{name}:main: right on jax" in ran.stdout


def test_a_preflight_with_a_size_imports_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("number = 3")
    argv = [COMMAND, "preflight", "mine:number", "--topology", "v6e-1", "--size", "8"]
    ran = harness.run(argv, env=environment(), cwd=tmp_path)
    assert ran.returncode == 2
    assert "'mine:number' must be a pyreactant.Program, got int" in ran.stderr


def test_the_child_of_a_preflight(tmp_path: Path) -> None:
    pytest.importorskip("libtpu")
    write("exit", tmp_path)
    words = ["preflight", "exit.py:main", "--topology", "v6e-1", "--shape", "8x8"]
    ran = run(*words, folder=tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert "error: Program 'main': cannot import jax='" in ran.stderr
    assert "exit.py, line 2: SystemExit: 3" in ran.stderr


def test_a_function_is_not_called_if_its_file_ends_the_program(tmp_path: Path) -> None:
    """The run succeeded, although the function never ran."""
    (tmp_path / "train.py").write_text("import sys\nsys.exit()\ndef main(): open('ran', 'w')\n")
    ran = run("run", "--out", "out", "--", "train.py:main", folder=tmp_path)
    assert ran.returncode == 2, ran.stderr
    wanted = "error: train.py:main cannot be imported: train.py, line 2: SystemExit; an import must"
    assert wanted in ran.stderr
    assert not (tmp_path / "ran").exists()


def test_a_variable_that_jax_cannot_read(tmp_path: Path) -> None:
    ran = run("matmul", folder=tmp_path, JAX_ENABLE_X64="ja")
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("error: JAX_ENABLE_X64='ja' in the environment is no value that")
    assert "install" not in ran.stderr


@pytest.mark.parametrize(
    ("file", "library"),
    [
        (pytest.__file__, True),
        (subprocess.__file__, True),
        (pr.__file__, True),
        ("<frozen importlib._bootstrap>", True),
        ("/usr/lib/python3/dist-packages/numpy/__init__.py", True),
        (__file__, False),
    ],
)
def test_whose_a_file_is(file: str, library: bool) -> None:
    assert is_library(file) is library
