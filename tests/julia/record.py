"""Record modules that Reactant lowers, for tests that read them without Julia.

    python -m tests.julia.record FOLDER [NAME ...] [--reactant real-sources]

It needs the environment of the tests that are marked julia. The first line of each file says by
which versions it was written. The stand-in for Reactant can write `reactant_matmul` only.
Recordings of Reactant's own sources belong in tests/data.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pyreactant as pr
from tests.julia import place

LIMIT = 1800  # seconds; Reactant's own sources take minutes
SQUARE, VECTOR = (16, 16), (16,)
MODULES = {
    "reactant_matmul": (pr.Program("matmul", julia="*"), ((8, 6), (6, 4))),
    "reactant_perceptron": (
        pr.Program("perceptron", julia="PyReactant.Programs.perceptron"),
        (SQUARE, SQUARE, VECTOR, SQUARE, VECTOR),
    ),
}


def recorded(name: str) -> str:
    """The module as a file that `as_jax(stablehlo=)` reads."""
    program, shapes = MODULES[name]
    args: list[Any] = [jax.ShapeDtypeStruct(shape, np.dtype("float32")) for shape in shapes]
    lowered = pr.as_jax(program, *args, precision="highest", timeout=LIMIT)
    header, _, module = lowered.as_text().partition("\n")
    level = "Reactant's own sources" if place.real_sources else "the stand-in for Reactant"
    return f"{header}\n// Recorded by tests/julia/record.py from {level}.\n{module}"


def tell_children(folder: Path) -> None:
    """Name the library to Julia in the children that lower: they get no PYREACTANT_ variable."""
    setting = f"import os\nos.environ[{place.LIBRARY!r}] = {os.environ[place.LIBRARY]!r}\n"
    (folder / "sitecustomize.py").write_text(setting)
    sys.path.insert(0, str(folder))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.julia.record")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(MODULES)}; default: all")
    parser.add_argument("--reactant", default="stand-in", choices=("stand-in", "real-sources"))
    options = parser.parse_args()
    if unknown := sorted({*options.names} - {*MODULES}):
        parser.error(f"there is no module {', '.join(unknown)}; known are {', '.join(MODULES)}")
    place.real_sources = options.reactant == "real-sources"
    if why := place.absent():
        parser.error(f"--reactant {options.reactant}: {why}")
    os.environ.update(place.settings())
    with tempfile.TemporaryDirectory() as folder:
        if place.real_sources:
            tell_children(Path(folder))
        return record(options.names or [*MODULES], options.folder)


def record(names: Sequence[str], folder: Path) -> int:
    """Write the modules; the exit code."""
    failed = 0
    for name in names:
        try:
            text = recorded(name)
        except pr.PyReactantError as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        (folder / f"{name}.mlir").write_text(text.rstrip() + "\n")
        print(folder / f"{name}.mlir")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
