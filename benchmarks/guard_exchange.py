"""Program for the benchmark of the guard: one of two processes, which announce placements in turn.

Process 0 prints the seconds of each as JSON.
"""

import json
import time

import jax

from pyreactant.arrays.backend import StartOptions
from pyreactant.arrays.runtimes.guard.guard import Guard
from pyreactant.arrays.runtimes.jax.distributed import JaxStore, connect
from pyreactant.process.group import resolve
from tests.unit.guards import placed

_COUNT = 300

group = resolve()
connect(group, StartOptions())
guard = Guard(
    JaxStore(group.num_processes), group.process_index, group.num_processes, fail=lambda e: None
)
seconds = []
for number in range(_COUNT):
    operation = placed(number)
    start = time.perf_counter()
    guard.announce(operation)
    seconds.append(time.perf_counter() - start)
guard.end()
if group.process_index == 0:
    print(json.dumps(seconds[10:]))
jax.distributed.shutdown()
guard.close()
