"""Every public name has a docstring with an example, and all examples run."""

import doctest
import inspect
import os
import pydoc
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from tests import harness
from tests.harness import environment

# Modules, and errors, which share the example of their base.
WITHOUT = {"targets", "preferences", "testing", "__version__"}
NAMES = [
    name
    for name in sorted(pr.__all__, key=lambda name: (name[0].isupper(), name))
    if name not in WITHOUT and (name == "PyReactantError" or not name.endswith("Error"))
]


def docstring(name: str) -> str:
    return inspect.getdoc(getattr(pr, name)) or ""


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>> " in docstring(name)


def run_examples() -> int:
    """Run all examples in one process, with the names that docs/reference/api.md lists."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    mesh = pr.Mesh((2, 4), ("x", "y"))
    sharding = pr.NamedSharding(mesh, ("x", "y"))
    rows, whole = pr.NamedSharding(mesh, ("x",)), pr.NamedSharding(mesh, ())
    x = pr.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), sharding)
    modules = {"pr": pr, "np": np, "jax": jax, "jnp": jnp, "Path": Path}
    names = {"mesh": mesh, "sharding": sharding, "rows": rows, "whole": whole, "x": x} | modules
    Path("hello.py").write_text('print("hello")\n')
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for name in NAMES:
        test = doctest.DocTestParser().get_doctest(docstring(name), names, name, name, 0)
        runner.run(test, clear_globs=False)
        names = test.globs
    return runner.summarize().failed


def test_the_examples(tmp_path: Path) -> None:
    ran = harness.run(
        [sys.executable, "-c", "from tests.docs.test_api import run_examples as r; exit(r())"],
        env=environment(PYTHONPATH=os.getcwd(), XDG_STATE_HOME=str(tmp_path / "state")),
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_help_of_the_cross_check_shows_how_it_is_called() -> None:
    """It is a package as well, of which help() shows the text."""
    text = pydoc.plain(pydoc.render_doc(pr.crosscheck))
    assert "    pyreactant.crosscheck(program='matmul', *, backends='auto'," in text
    assert ">>> report = pr.crosscheck(" in text
    assert inspect.signature(pr.crosscheck).parameters["repeat"].default == 5
