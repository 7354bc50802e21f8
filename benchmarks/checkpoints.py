"""The figures of checkpoints alone: `python -m benchmarks.checkpoints [--json FILE]`."""

import argparse
from pathlib import Path

import pyreactant as pr

from . import _state
from .__main__ import show


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    pr.initialize(platform="cpu", num_cpu_devices=8)
    show(
        [
            *_state.checkpoints(args.mebibytes, args.repetitions),
            _state.resumed(args.repetitions),
            *_state.commands(1000, 10_000, args.repetitions),
            *_state.merged(4096, args.repetitions),
        ],
        args.json,
    )


if __name__ == "__main__":
    main()
