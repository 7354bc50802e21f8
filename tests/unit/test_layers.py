"""Import circles, with the imports that import-linter does not see.

Those in functions, those for type checkers, `importlib.import_module` with a constant name, and the
tables of names that are loaded at first use. `pyreactant/__init__` is left out: it has every name.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import REPOSITORY

PACKAGE = REPOSITORY / "pyreactant"


def parts_of(path: Path, package: Path) -> tuple[str, ...]:
    return path.relative_to(package.parent).with_suffix("").parts


def name_of(path: Path, package: Path) -> str:
    return ".".join(parts_of(path, package)).removesuffix(".__init__")


def imports(path: Path, package: Path) -> Iterator[str]:
    """Every dotted name that a file imports: modules, and names of modules."""
    parts = parts_of(path, package)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = node.args[0]
            if isinstance(name, ast.Constant):
                yield str(name.value)


def tables(path: Path, package: Path) -> Iterator[str]:
    """The modules of a table of names that are loaded at first use."""
    if "_MODULE_OF" not in path.read_text():
        return
    module = importlib.import_module(name_of(path, package))
    for name, within in module._MODULE_OF.items():
        yield f"{module.__package__}.{within or name}"


def graph(package: Path, lazy: bool = True) -> dict[str, set[str]]:
    """The modules that each module of a package imports."""
    files = {name_of(path, package): path for path in package.rglob("*.py")}
    del files[package.name]
    edges: dict[str, set[str]] = {}
    for name, path in files.items():
        wanted = {*imports(path, package), *(tables(path, package) if lazy else ())}
        # Of "a.b.name" the module is "a.b", if "a.b.name" is none.
        modules = {w if w in files else w.rpartition(".")[0] for w in wanted}
        edges[name] = {module for module in modules if module in files} - {name}
    return edges


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules each of which leads to every other one."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        left = [start]
        while left:
            new = edges[left.pop()] - seen
            seen |= new
            left += new
        reached[start] = seen
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in edges
        if name in reached[name]
    }


def test_there_are_no_circles() -> None:
    assert circles(graph(PACKAGE)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "from . import b",
        "from .b import thing",
        "def f():\n    from .b import thing",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import thing",
        "import importlib\ndef f():\n    return importlib.import_module('p.b')",
        "import p.b",
    ],
)
def test_every_form_of_import_is_seen(tmp_path: Path, text: str) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(text)
    (package / "b.py").write_text("from .a import f")
    assert circles(graph(package, lazy=False)) == {frozenset({"p.a", "p.b"})}


def test_the_tables_of_lazy_names_are_seen() -> None:
    edges = graph(PACKAGE)
    assert "pyreactant.runs.places.slurm" in edges["pyreactant.runs.targets"]
    assert "pyreactant.doctor.diagnosis" in edges["pyreactant.doctor"]


def test_directly_in_the_package_there_are_nine_folders() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {
        *("base", "process", "julia", "arrays", "runs", "check", "fit", "doctor", "cli"),
    }
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert files == {"__init__", "__main__", "_version", "testing", "preferences", "crosscheck"}


def test_no_name_of_a_file_or_folder_has_an_underscore() -> None:
    """Which names are public is said once, by `pyreactant.__all__`."""
    parts = {part for path in PACKAGE.glob("*/**/*.py") for part in path.relative_to(PACKAGE).parts}
    assert {p for p in parts if p.startswith("_")} == {"__init__.py", "__main__.py"}
