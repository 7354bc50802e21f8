"""`pyreactant plan` that prints the number of finished layouts on its standard output."""

import sys

import pyreactant.fit.plan.plan as module
from pyreactant.cli import main

evaluate = module._evaluate


def telling(*arguments: object) -> object:
    return evaluate(*arguments[:-1], lambda done, total, best: print(f"done {done}"))


module._evaluate = telling  # type: ignore[assignment]
sys.argv[1:] = ["plan", "--topology", "v6e-16", "--size", "512", "--no-cache", "--tried", "8"]
main()
