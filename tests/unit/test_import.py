"""Cost of the import: no runtime, no Julia, and few modules beyond NumPy's."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, environment

HEAVY = ("jax", "jaxlib", "juliacall", "rich", "typer", "ml_dtypes", "asyncio", "socket")


def _loaded(code: str) -> list[str]:
    program = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return list(json.loads(ran.stdout.splitlines()[-1]))


def test_import_loads_no_runtime() -> None:
    core = (
        "[n for n, module in pr._MODULE_OF.items() "
        "if not (module or n).startswith(('fit', 'check', 'crosscheck', 'testing'))]"
    )
    every = f"import pyreactant as pr; [getattr(pr, name) for name in {core}]"
    new = set(_loaded(every)) - set(_loaded("import numpy"))
    assert not new & set(HEAVY)
    assert "numpy" not in _loaded("import pyreactant")


def test_tpu_tools_load_no_runtime() -> None:
    every = "import pyreactant as pr; [getattr(pr, name) for name in pr.__all__]"
    assert not set(_loaded(every)) & {"jax", "jaxlib", "juliacall"}


def test_what_is_not_there_is_an_attribute_error() -> None:
    import pyreactant

    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        pyreactant.nonsense  # noqa: B018
    assert set(pyreactant.__all__) <= set(dir(pyreactant))
    assert len(set(dir(pyreactant))) == len(dir(pyreactant))


def test_the_lazy_names_are_the_typed_ones() -> None:
    """The names for type checkers and the names loaded at run time are two lists."""
    import pyreactant

    text = (REPOSITORY / "pyreactant" / "__init__.py").read_text()
    typed = set(re.findall(r"import (\w+) as \1", text))
    assert typed == set(pyreactant.__all__) - {"__version__"}


@pytest.mark.parametrize("arguments", [["--help"], ["matmul", "--help"], ["--version"]])
def test_help_loads_no_runtime(arguments: list[str]) -> None:
    loaded = _loaded(f"sys.argv[1:] = {arguments!r}; import pyreactant.cli as c; c.main()")
    assert "typer" in loaded
    assert not {"jax", "jaxlib", "juliacall", "packaging", "platformdirs"} & set(loaded)


def test_a_run_here_loads_no_other_place() -> None:
    words = ["run", "-n", "2", "--heartbeat-timeout=9s", "--dry-run", "--", "python", "--on=slurm"]
    loaded = _loaded(f"sys.argv[1:] = {words!r}; import pyreactant.cli as c; c.main()")
    assert "pyreactant.runs.spec" in loaded
    assert not [name for name in loaded if name.startswith("pyreactant.runs.places.")]


def test_only_the_jax_runtime_imports_jax() -> None:
    package = REPOSITORY / "pyreactant"
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    found = {
        name
        for name, text in texts.items()
        if re.search(r"^\s*(import|from) jax\b", text, re.MULTILINE)
    }
    # Its child process imports jax, in functions.
    assert not re.search(r"^(import|from) jax", texts["arrays/lowering/enzyme.py"], re.MULTILINE)
    found -= {"arrays/lowering/enzyme.py"}
    # Mains of child processes; never imported.
    found -= {
        "check/bisect/edit_child.py",
        "check/bisect/worker.py",
        "check/gradients_child.py",
        "fit/compiler/compile_child.py",
    }
    found -= {"check/bisect/script.py"}  # the text of a script
    bodies = (
        "check/programs/",
        *(f"check/product/{name}" for name in ("on_devices", "operands", "whole")),
        "check/burnin/work",
    )
    # Only the JAX runtime calls JAX bodies, which import jax then.
    found = {name for name in found if not name.startswith(bodies)}
    assert {name.rpartition("/")[0] for name in found} == {"arrays/runtimes/jax"}


def test_tests_reach_private_code_by_its_modules_only() -> None:
    """A test may import a private module, the place of its concept, but no private name of one."""
    tests = Path(__file__).resolve().parents[1]
    found = [
        f"{file.relative_to(tests)}: {node.module}.{alias.name}"
        for file in sorted(tests.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyreactant")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert found == []
