"""Benchmarks of whole processes: import, help, the matmul command and peak memory."""

import os
import subprocess
import sys
from pathlib import Path

from pyreactant.arrays.text import bytes_text

from ._measure import Pair, interleave, keeping_bytecode, timed

SCRIPT = Path(__file__).with_name("by_hand.py")


def _run(*argv: str, **settings: str) -> float:
    command = [sys.executable, *argv]
    kept = {**keeping_bytecode(os.environ), **settings}
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=kept))


IMPORTS = {
    "import pyreactant": "",
    "import pyreactant, Mesh and initialize": "pyreactant.Mesh, pyreactant.initialize",
    "import pyreactant, every name but the tools'": (
        "[getattr(pyreactant, n) for n, m in pyreactant._MODULE_OF.items()"
        " if m.startswith('base.')]"
    ),
}
"""Modules load when a name is first used, so the import alone shows little of the cost."""


def import_package(repetitions: int) -> list[Pair]:
    return [_import(what, used, repetitions) for what, used in IMPORTS.items()]


def _import(what: str, used: str, repetitions: int) -> Pair:
    ours, reference = interleave(
        lambda: _run("-c", f"import numpy; import pyreactant; {used}"),
        lambda: _run("-c", "import numpy"),
        repetitions,
    )
    return Pair(f"{what}, over import numpy", ours, reference, 0.030, difference=True)


def show_help(repetitions: int) -> Pair:
    ours, reference = interleave(
        lambda: _run("-m", "pyreactant", "--help"), lambda: _run("-c", "import typer"), repetitions
    )
    return Pair("pyreactant --help over import typer", ours, reference, 0.100, difference=True)


TOOL = "import sys; sys.argv = ['pyreactant']; from pyreactant.cli import main; main()"
COMPLETED = {
    "COMP_WORDS": "pyreactant run --pro",
    "COMP_CWORD": "2",
    "_PYREACTANT_COMPLETE": "complete_bash",
}
"""What bash asks when Tab is pressed."""


def completion(repetitions: int) -> Pair:
    ours, reference = interleave(
        lambda: _run("-c", TOOL, **COMPLETED),
        lambda: _run("-c", "import typer"),
        repetitions,
    )
    name = "completion of pyreactant run --pro, over import typer"
    return Pair(name, ours, reference, 0.200, difference=True)


def command(repetitions: int) -> Pair:
    ours, reference = interleave(
        lambda: _run("-m", "pyreactant", "matmul", "--size", "1024"),
        lambda: _run(str(SCRIPT), "1024"),
        repetitions,
    )
    return Pair("pyreactant matmul --size 1024 against a script", ours, reference, 1.15)


PUT = """
import resource, sys
import numpy as np
x = np.ones((int(sys.argv[2]),) * 2, np.float32)
import jax
jax.config.update("jax_num_cpu_devices", 8)
jax.devices()
import pyreactant as pr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def put(x):
    if sys.argv[1] == "ours":
        s = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), ("x", "y"))
        return pr.device_put(x, s)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    s = NamedSharding(mesh, PartitionSpec("x", "y"))
    return jax.make_array_from_callback(x.shape, s, lambda index: x[index])

put(np.ones((8, 8), np.float32)).block_until_ready()  # allocate what only a first call needs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
a = put(x)
a.block_until_ready()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def put_memory(n: int, repetitions: int) -> Pair:
    """The memory that the placement of an n by n matrix adds at its peak, in child processes."""

    def peak(which: str) -> float:
        argv = [sys.executable, "-c", PUT, which, str(n)]
        return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)

    ours, reference = interleave(lambda: peak("ours"), lambda: peak("reference"), repetitions)
    name = f"device_put of {bytes_text(n * n * 4)}, peak memory added"
    return Pair(name, ours, reference, 1.001, unit="B")
