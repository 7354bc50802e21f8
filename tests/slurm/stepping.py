"""stepping.py FOLDER STEPS: a program that saves its step when asked to stop, and resumes there."""

import os
import sys
import time
from pathlib import Path

import pyreactant as pr


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    process = int(os.environ["PYREACTANT_PROCESS_INDEX"])
    saved = folder / f"step-{process}"
    first = int(saved.read_text()) if saved.exists() else 0
    with (folder / f"story-{process}").open("a") as story:
        restarts = os.environ["PYREACTANT_RESTART_COUNT"]
        print(f"restart {restarts} from {first}", file=story, flush=True)
        for step in range(first, steps):
            if pr.reached_preemption(step):
                saved.write_text(str(step))
                print(f"stopped at {step}", file=story)
                return
            (folder / f"alive-{process}").write_text(str(step))
            # The processes differ in speed, so no single process could choose the step.
            time.sleep(0.02 if process else 0.05)
        print(f"done after {steps}", file=story)


if __name__ == "__main__":
    main()
