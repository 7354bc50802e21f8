"""Members for the roll-call benchmark, simulated in one process.

`python -m benchmarks._members ADDRESS COUNT [SECONDS]` joins as processes 1 to COUNT - 1 at the
same time, with the secret in `PYREACTANT_SECRET`, and waits for "go" in each. Each initializes,
sends heartbeats for SECONDS, ends, and waits for the report. It prints JSON: the seconds until the
last "go", from the first end until the last report, the number of reports, and the reasons of
members without one.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping

from pyreactant._errors import RendezvousError
from pyreactant._system.descriptors import raise_limit
from pyreactant._system.facts import facts
from pyreactant.launch._hello import hello
from pyreactant.launch._rollcall import Uplink, heartbeat_period, join

_PATIENCE = 120.0


async def _enter(address: str, process: int, count: int, known: Mapping[str, str]) -> Uplink:
    secret = os.environ["PYREACTANT_SECRET"].encode()
    first = hello(process, count, known)
    uplink = await join(address, secret, first, timeout=_PATIENCE, progress=lambda _: None)
    while (await uplink.receive(_PATIENCE))["type"] != "go":
        pass
    return uplink


async def _live(uplink: Uplink, process: int, until: float, beat: float) -> str | None:
    """A program's run until the report; why there was none."""

    def tell(kind: str, **more: object) -> None:
        uplink.send({"type": kind, "process": process, "age": 0.0, **more})

    tell("spawned", pid=process)
    for phase in ("started", "initializing", "initialized"):
        tell("phase", phase=phase, collectives=0)
    await asyncio.sleep(min(until - time.perf_counter(), beat * (process % 100) / 100))
    while (left := until - time.perf_counter()) > 0:
        uplink.send({"type": "alive"})
        await asyncio.sleep(min(beat, left))
    tell("phase", phase="ending", collectives=0, code=0)
    tell("exited", code=0, log_tail="")
    try:
        while (order := await uplink.receive(_PATIENCE))["type"] != "report":
            if order["type"] == "end":
                tell("ended")
    except RendezvousError as error:
        return str(error)
    finally:
        uplink.close()
    return None


async def _all(address: str, count: int, seconds: float) -> dict[str, object]:
    raise_limit(count + 256, f"{count} members")
    known = facts()
    began = time.perf_counter()
    uplinks = await asyncio.gather(*[_enter(address, i, count, known) for i in range(1, count)])
    joined = time.perf_counter()
    until, beat = joined + seconds, heartbeat_period(15.0, count)
    whys = await asyncio.gather(*[_live(u, i, until, beat) for i, u in enumerate(uplinks, 1)])
    return {
        "join": joined - began,
        "end": time.perf_counter() - until,
        "reports": whys.count(None),
        "without": Counter(why for why in whys if why is not None).most_common(5),
    }


if __name__ == "__main__":
    lasts = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    print(json.dumps(asyncio.run(_all(sys.argv[1], int(sys.argv[2]), lasts))))
