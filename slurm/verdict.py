"""verdict.py RUN...: whether the runtimes' products agree; each RUN is RUN.npy and RUN.json."""

import sys
from pathlib import Path

from pyreactant._compare import compare_products

if __name__ == "__main__":
    runs = [Path(name) for name in sys.argv[1:]]
    if len(runs) == 1:
        print(f"verdict: {runs[0].name} agrees with the float64 oracle; nothing to compare it with")
    agree = True
    for other in runs[1:]:
        found = compare_products(runs[0], other)
        print(f"verdict: {runs[0].name} and {other.name}: {found.text}")
        agree = agree and found.passed
    sys.exit(0 if agree else 5)
