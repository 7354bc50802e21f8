"""`make bench`: measure each figure and compare it with its bound, as a table and as JSON.

`python -m benchmarks [--json FILE] [--quick]`; --quick runs each part once, with one of the
examples, as a smoke test.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyreactant as pr

from . import (
    _compile,
    _guard,
    _in_process,
    _launch,
    _metrics,
    _placement,
    _profile,
    _state,
    _training,
    _whole_process,
)
from ._measure import Pair, machine


def _figures(quick: bool) -> list[Pair]:
    # If libtpu is installed, hand-written JAX searches for a TPU for seconds.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if quick:  # nobody reads the figures
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    few, some, many = (1, 1, 1) if quick else (7, 15, 31)
    members = 64 if quick else 1024
    pairs = [
        *_whole_process.import_package(many),
        _whole_process.show_help(many),
        _whole_process.completion(many),
        _whole_process.command(some),
        _whole_process.put_memory(2048 if quick else 16384, few),
        _launch.run(many),
        _launch.roll_call(members, few),
        *_metrics.log(some),
        _profile.step(some),
        *_profile.timeline(4 if quick else 64, 20 if quick else 500, 1 if quick else 3),
        *_profile.clocks(few),
        _compile.hook(5 if quick else 200, some),
        _compile.second_start(few),
        *_placement.put(some),
        *_training.memory(128 if quick else 1024, few),
        _guard.exchange(),
        _guard.many(members, few),
    ]
    pr.initialize(platform="cpu", num_cpu_devices=8)
    return [
        *pairs,
        _in_process.call(512 if quick else 2048, 2, 1 if quick else 61),
        _in_process.call(8, 20 if quick else 300, many),
        _in_process.matmul_call(many),
        _in_process.put(2048 if quick else 16384, some),
        _in_process.put_small(many),
        *_training.steps(["heat"] if quick else _training.SIZES, 1 if quick else 5, many),
        _training.tree(2 if quick else 20, many),
        *_in_process.check(2048 if quick else 8192, 1 if quick else 5),
        _guard.call(many),
        _guard.digest(few),
        *_state.checkpoints(8 if quick else 2048, few),
        _state.resumed(few),
        *_state.commands(*((20, 20) if quick else (1000, 10_000)), some),
        *_state.merged(8 if quick else 4096, few),
    ]


def _number(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**20:.0f} MiB"
    for name, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e-6:.3g} us"


def _row(pair: Pair) -> str:
    found = pair.to_dict()
    ours, reference = (
        "" if found[k] is None else _number(found[k], pair.unit)
        for k in ("ours_median", "theirs_median")
    )
    low, middle, high, bound = (
        _number(v, pair.unit) if pair.kind != "ratio" else f"{v:.3f}"
        for v in (*(found[k] for k in ("lower_quartile", "median", "upper_quartile")), pair.bound)
    )
    verdict = "within" if found["within"] else "**missed**"
    return (
        f"| {pair.name} | {ours} | {reference} | {middle} ({low} to {high}) | {bound} | {verdict} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    show(_figures(args.quick), args.json)


def show(pairs: Sequence[Pair], out: Path | None) -> None:
    """Print the figures as a table, and write them to a JSON file."""
    here = machine()
    print(", ".join(f"{name} {number}" for name, number in here.pop("versions").items()))
    print(", ".join(f"{name} {value}" for name, value in here.items()), end="\n\n")
    print("| what | ours, median | by hand, median | compared, median (quartiles) | bound | |")
    print("|---|---|---|---|---|---|")
    for pair in pairs:
        print(_row(pair))
    if out is not None:
        out.write_text(json.dumps({**here, "figures": [p.to_dict() for p in pairs]}, indent=2))


if __name__ == "__main__":
    main()
