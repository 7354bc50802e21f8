"""End launchers of a check on slices at 41 points of their life and count what remains.

``python -m benchmarks.tpu_kills [--json FILE] [--points N]`` runs the real client, real sshd and
real JAX processes against the stand-in for the API in tests/gcloud, with one slice and with two.
The points take SIGTERM, SIGINT, SIGHUP and SIGKILL (followed by `gc`) in turn, with an offset
between one slice and two. It also measures the time of a whole run.
"""

import argparse
import json
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import TpuApi

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
LINES = (
    "is ACTIVE with",
    "copy on",
    "install on",
    "run jax on",
    "processes came",
    "all 2 initialized",
    "deleting",
)
Point = tuple[str, object, float]


def points() -> list[Point]:
    """List calls of the API, and lines of the launcher's output with a delay in seconds."""
    calls: list[Point] = [
        (moment, number, 0.0) for number in range(1, 11) for moment in ("before", "after")
    ]
    lines: list[Point] = [("line", text, later) for text in LINES for later in (0.0, 0.4, 1.2)]
    return (calls + lines)[:41]


def main() -> None:
    """End launchers and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--points", type=int, default=41)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for slices in (1, 2):
            for turn, point in enumerate(points()[: args.points]):
                number = SIGNALS[(turn + slices) % 4]
                place = Path(folder, f"{slices}-{turn}")
                rows.append(
                    {
                        "slices": slices,
                        "point": point,
                        "signal": number.name,
                        **_one(place, slices, point, number),
                    }
                )
                print(rows[-1], flush=True)
        added = [_whole(Path(folder, f"whole-{i}")) for i in range(3)]
    left = sum(bool(row["left"]) for row in rows)
    print(
        f"{len(rows)} launchers ended, {sum(row['reached'] for row in rows)} at their point, "
        f"{left} left something; a whole run on 4 VMs takes {statistics.median(added):.1f} s "
        f"({min(added):.1f} to {max(added):.1f})"
    )
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "whole": added}, indent=1, default=str))


def _one(folder: Path, slices: int, point: Point, number: int) -> dict[str, Any]:
    api = TpuApi(workers=lambda kind: 1 if slices == 2 else hosts_of(kind))
    with cloud(folder, api, 2) as made:
        kind = ["--topology", "v5litepod-8" if slices == 2 else "v5p-16"]
        runtime = "v2-alpha-tpuv5-lite" if slices == 2 else "v2-alpha-tpuv5"
        argv = [
            *made.run_options(),
            *kind,
            "--slices",
            str(slices),
            "--out",
            "out",
            "--runtime-version",
            runtime,
        ]
        reached = _end_at(made, argv, point, number)
        noted = list((folder / "home" / "state").rglob("*.json"))
        if number == signal.SIGKILL:
            made.run("gc")
        deadline = time.monotonic() + 40
        programs: list[str] = _programs(folder)
        while programs and time.monotonic() < deadline:
            time.sleep(0.2)
            programs = _programs(folder)
        again = list((folder / "home" / "state").rglob("*.json"))
        return {"reached": reached, "noted": len(noted), "left": [*api.left(), *programs, *again]}


def _end_at(made: Cloud, argv: list[str], point: Point, number: int) -> bool:
    where, what, later = point
    reached, started = threading.Event(), threading.Event()

    def see(moment: str, call: str) -> None:
        started.wait(20)
        if moment == where and len(made.api.calls) == what and not reached.is_set():
            reached.set()
            process.send_signal(number)

    made.api.on_call = see
    process = made.start(*argv)
    started.set()
    log = made.folder / "launcher.log"
    deadline = time.monotonic() + 120
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if where == "line" and not reached.is_set() and str(what) in log.read_text():
                time.sleep(later)
                reached.set()
                process.send_signal(number)
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        made.api.on_call = lambda moment, call: None
    return reached.is_set()


def _programs(folder: Path) -> list[str]:
    """Command lines that name the workers' folder, except sshd."""
    return [line for line in _lines() if str(folder) in line and "sshd" not in line]


def _lines() -> Iterator[str]:
    read: Callable[[Path], bytes] = Path.read_bytes
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield read(path).replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


def _whole(folder: Path) -> float:
    api = TpuApi(workers=hosts_of)
    with cloud(folder, api, 4) as made:
        began = time.monotonic()
        code, output = made.run(*made.run_options(gcloud=True), "--out", "out")
        assert code == 0, output
        return time.monotonic() - began


if __name__ == "__main__":
    main()
