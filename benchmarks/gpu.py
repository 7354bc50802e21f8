"""`python -m benchmarks.gpu [--json FILE] [--quick]`: figures of one process on GPUs."""

import argparse
import subprocess
from pathlib import Path

import pyreactant as pr

from . import _in_process, _training
from .__main__ import show

_CHECKS = (
    (8192, "float32", 0.12),
    (16384, "float32", 0.12),
    (8192, "bfloat16", 0.30),
    (16384, "bfloat16", 0.10),
)
"""Side, type, and the bound of the check on the devices as a part of the product's time."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few repetitions, as a smoke test")
    args = parser.parse_args()
    some, many = (2, 2) if args.quick else (9, 31)
    pr.initialize(platform="gpu")
    subprocess.run(["nvidia-smi", "-L"], check=True)
    pairs = [
        _in_process.call(16384, 2, many),
        _in_process.call(8, 2 if args.quick else 300, many),
        _in_process.matmul_call(many),
        _in_process.put(16384, some),
        _training.tree(2 if args.quick else 20, many),
        *_in_process.check(16384, some // 2),
        *(
            pair
            for n, dtype, bound in _CHECKS
            for pair in _in_process.device_check(n, dtype, bound, some)
        ),
    ]
    show(pairs, args.json)


if __name__ == "__main__":
    main()
