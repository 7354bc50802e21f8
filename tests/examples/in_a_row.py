"""Run the examples one after the other in this process, as `python examples/NAME/FILE` would.

`in_a_row.py FILE FOLDER [ADDRESS PROCESS]`: what each prints goes to FOLDER/NAME-PROCESS.txt. With
an address the two processes meet there by JAX's own means, and else by pyreactant's.
"""

import contextlib
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(path: Path, out: Path) -> None:
    with out.open("w") as stream, contextlib.redirect_stdout(stream):
        runpy.run_path(str(path), run_name="__main__")


def meet(address: str, process: int) -> int:
    """Start the processes once; each example's own call then does nothing."""
    if not address:
        import pyreactant as pr

        pr.initialize()
        return pr.process_index()
    import jax

    jax.distributed.initialize(address, 2, process)
    mock.patch("jax.distributed.initialize").start()
    return process


def main(file: str, folder: str, address: str = "", process: str = "0") -> None:
    index = meet(address, int(process))
    for path in sorted(EXAMPLES.glob(f"*/{file}")):
        name = path.parent.name
        # In a thread of its own, because jax.set_mesh holds for the rest of a thread.
        with ThreadPoolExecutor(1, name) as threads:
            threads.submit(run, path, Path(folder) / f"{name}-{index}.txt").result()


if __name__ == "__main__":
    main(*sys.argv[1:])
