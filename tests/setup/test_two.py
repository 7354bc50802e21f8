"""Two setups at the same time: one works, the other waits and names the holder of the lock."""

import json
import os
import subprocess
import time

from tests.setup.conftest import Here


def test_the_second_waits_and_finds_it_done(here: Here) -> None:
    with _started(here, delay=2) as first:
        second = here.run()
        output, _ = first.communicate(timeout=30)
    assert first.returncode == 0
    assert json.loads(output.splitlines()[-1])["ran"][-1] == "record"
    assert second["ran"] == []
    [text] = second["steps"]
    who = f"`pyreactant setup` (process {first.pid} on {os.uname().nodename}, since 20"
    assert text.startswith(f"waiting for {who}")
    assert here.asked() == ["resolve", "precompile"]


def test_it_does_not_wait_for_ever(here: Here) -> None:
    with _started(here, delay=600) as first:
        waited = here.run(wait=0.3)
        first.kill()
    assert waited["error"] == "DeadlineError"
    assert waited["code"] == 7
    assert "is still held by `pyreactant setup` (process" in waited["message"]
    assert "after 0.3 s; wait for it, or end it, then run it again" in waited["message"]


def _started(here: Here, delay: float) -> subprocess.Popen[str]:
    """Start a setup, and return when it has the lock and runs a stage."""
    environment = here.environment(STAND_IN_DELAY=str(delay))
    first = subprocess.Popen(here.argv(), env=environment, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not here.asked():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return first
