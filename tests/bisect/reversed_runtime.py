"""A stand-in for the process that runs products on Reactant: JAX runs them, sizes are reversed.

`REVERSED` says what is wrong: "module" in the lowered module, "runtime" in what runs it.
"""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pyreactant.check.bisect import program_child
from pyreactant.check.bisect.judge import load_arrays
from pyreactant.check.bisect.worker import serve

FACTOR = 2 if os.environ["REVERSED"] == "module" else 1


def _reversed(x: Any, y: Any) -> Any:
    return FACTOR * (x.T @ y.T).T


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    answer = program_child._answer({**request, "backend": "jax"})
    if "out" in request:
        out = Path(request["out"])
        np.savez(out, *(x + 1 for x in load_arrays(out, answer["dtypes"])))
    elif "folder" in request:
        folder = Path(request["folder"])
        x, y = load_arrays(folder / "inputs.npz", answer["dtypes"])
        (folder / "program.mlir").write_text(jax.jit(_reversed).lower(x.T, y.T).as_text())
    return answer


if __name__ == "__main__":
    serve(_answer)
