"""Times 200 compilations with and without the hook, in turns; prints their seconds as JSON.

`benchmarks/_compile.py` starts it: ``python benchmarks/compilations.py REPETITIONS COUNT``.
"""

import json
import sys
import time

import jax
import numpy as np
from jax._src import compiler

from pyreactant.process import compilations


def main(repetitions: int, count: int) -> None:
    by_jax = compiler.compile_or_get_cached
    compilations.install(compiler)
    functions = {"hook": compiler.compile_or_get_cached, "jax": by_jax}
    x = np.ones(8, np.float32)
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for repetition in range(repetitions):
        spent = dict.fromkeys(functions, 0.0)
        for number in range(count):
            for name, function in [*functions.items()][:: 1 if number % 2 else -1]:
                compiler.compile_or_get_cached = function
                # Another number is another program.
                add = float(number + count * repetition)
                lowered = jax.jit(lambda x, add=add: x * 2 + add).lower(x)
                begin = time.perf_counter()
                lowered.compile()
                spent[name] += time.perf_counter() - begin
        for name, each in spent.items():
            seconds[name].append(each)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
