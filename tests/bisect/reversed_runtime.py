"""A stand-in for the process that runs products on Reactant: JAX runs them, sizes are reversed.

`REVERSED` says what is wrong: "module" in the lowered module, "runtime" in what runs it.
"""

import os
from pathlib import Path
from typing import Any

import jax

from pyreactant.check.bisect import program_child
from pyreactant.check.bisect.worker import load_arrays, save_arrays, serve

FACTOR = 2 if os.environ["REVERSED"] == "module" else 1


def _reversed(x: Any, y: Any) -> Any:
    return FACTOR * (x.T @ y.T).T


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    answer = program_child._answer({**request, "backend": "jax"})
    if "out" in request:
        out = Path(request["out"])
        save_arrays(out, [x + 1 for x in load_arrays(out)])
    elif "folder" in request:
        folder = Path(request["folder"])
        x, y = load_arrays(folder / "inputs.npz")
        (folder / "program.mlir").write_text(jax.jit(_reversed).lower(x.T, y.T).as_text())
    return answer


if __name__ == "__main__":
    serve(_answer)
