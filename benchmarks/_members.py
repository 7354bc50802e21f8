"""Members for the roll-call benchmark, simulated in one process.

`python -m benchmarks._members ADDRESS COUNT` joins as processes 1 to COUNT - 1 at the same time,
with the secret in `PYREACTANT_SECRET`, waits for "go" in each, and prints the elapsed seconds.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping

from pyreactant._system.facts import facts
from pyreactant.launch._rollcall import Uplink, join
from pyreactant.launch._supervisor import _hello


async def _enter(address: str, process: int, count: int, known: Mapping[str, str]) -> Uplink:
    secret = os.environ["PYREACTANT_SECRET"].encode()
    hello = _hello(process, count, known)
    uplink = await join(address, secret, hello, timeout=60, progress=lambda _: None)
    while (await uplink.receive(60))["type"] != "go":
        pass
    return uplink


async def _all(address: str, count: int) -> float:
    known = facts()
    began = time.perf_counter()
    uplinks = await asyncio.gather(*[_enter(address, i, count, known) for i in range(1, count)])
    seconds = time.perf_counter() - began
    for uplink in uplinks:
        uplink.close()
    return seconds


if __name__ == "__main__":
    print(asyncio.run(_all(sys.argv[1], int(sys.argv[2]))))
