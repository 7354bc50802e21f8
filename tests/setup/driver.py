"""Run one setup as a separate process, which can be killed at a given step."""

import json
import os
import signal
import sys
import types
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from pyreactant.base.errors import PyReactantError
from pyreactant.base.steps import told_to
from pyreactant.julia import place

# Calls with effects outside of this process; a kill can happen before each of them.
SMALL_STEPS = {"os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "subprocess.Popen"}


def _kill_at(step: int, every_step: bool, noted: Path) -> None:
    steps: Iterator[int] = count()

    def hook(event: str, arguments: Any) -> None:
        counts = event == "os.rename"
        counts |= event == "subprocess.Popen" and "setup/guard.py" in str(arguments[1])
        if every_step:
            counts |= event in SMALL_STEPS
            counts |= event == "open" and bool((arguments[2] or 0) & os.O_CREAT)
        if counts and next(steps) == step:
            noted.write_text(f"{event} {arguments[0]}")
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main(options: dict[str, Any]) -> None:
    """Print what it does, then the record or the error, each as a line of JSON."""
    from pyreactant.julia.setup.install import setup
    from pyreactant.julia.setup.options import Options

    if not options.pop("real_package", False):
        place._PACKAGE = Path(os.environ["STAND_IN"]).parent / "package"
    if options.pop("julia_runs", False):
        sys.modules["juliacall"] = types.ModuleType("juliacall")
        sys.modules["juliacall"].__dict__["CONFIG"] = {"inited": True}
    step, every_step = options.pop("kill_at", None), options.pop("every_step", False)
    if "project" in options:
        options["project"] = Path(options["project"])
    if step is not None:
        _kill_at(step, every_step, Path(os.environ["STAND_IN"], "killed"))
    try:
        with told_to(lambda text: print(json.dumps(text), flush=True)):
            record = setup(Options(**options))
    except PyReactantError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
        sys.exit(error.exit_code)
    print(json.dumps(record.to_dict()))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
