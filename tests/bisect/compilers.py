"""Environments whose compiler is wrong."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any


def wrong_python(folder: Path, right: str | Path = sys.executable, **rule: Any) -> Path:
    """A Python like the right one, whose compiler is wrong by a rule of `wrong_compiler`."""
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("wrong_compiler.py").read_text()
    (site / "sitecustomize.py").write_text(source)
    python = folder / "python"
    settings = f"PYTHONPATH={shlex.quote(str(site))} WRONG_RULE={shlex.quote(json.dumps(rule))}"
    python.write_text(f'#!/bin/sh\n{settings} exec {shlex.quote(str(right))} "$@"\n')
    python.chmod(0o755)
    return python
