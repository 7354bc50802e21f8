"""Twelve programs made wrong on purpose: does `pyreactant bisect` find what is wrong, and how fast?

    python -m benchmarks.bisections [--python FILE]... [CASE]...

Bounds: 12 of 12 found; median of operations left at most 8; 4 minutes each in the median, 15 at
most, on two cores. Each script fails with the wrong compiler and passes with the right one, in new
environments that have nothing but a version of jax: those of the given interpreters, or new ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyreactant.check.bisect.way import environment_of
from tests.bisect.compilers import wrong_python
from tests.docs.pages import blocks
from tests.harness import REPOSITORY, environment

LAYERS = "tests.bisect.programs:layers"
TANH = [["stablehlo.tanh", "stablehlo.sine"]]
FAST = "flags=--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false"

VERSIONS = ("0.10.2", "0.9.2")
"""Versions of jax of the new environments."""

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "tanh is sine": (LAYERS, {"replace": TANH}, "stablehlo.tanh"),
    "tanh is sine, by a pass": (LAYERS, {"replace": TANH, "pass": "algsimp"}, "stablehlo.tanh"),
    "tanh is sine, on several devices": (
        LAYERS,
        {"replace": TANH, "only": r"num_partitions = [248]"},
        "stablehlo.tanh",
    ),
    "tanh is sine, one time in three": (LAYERS, {"replace": TANH, "every": 3}, "stablehlo.tanh"),
    "tanh crashes": (LAYERS, {"replace": TANH, "crash": True}, "stablehlo.tanh"),
    "tanh before a product is sine": (
        LAYERS,
        {"replace": TANH, "only": r"tanh[\s\S]*multiply"},
        "stablehlo.tanh",
    ),
    "exp is expm1": (
        "softmax",
        {"replace": [["stablehlo.exponential ", "stablehlo.exponential_minus_one "]]},
        "stablehlo.exponential",
    ),
    "a quotient is a product": (
        "layer_norm",
        {"replace": [["stablehlo.divide", "stablehlo.multiply"]]},
        "stablehlo.divide",
    ),
    "a difference is a sum": (
        "layer_norm",
        {"replace": [["stablehlo.subtract", "stablehlo.add"]]},
        "stablehlo.subtract",
    ),
    "a product is of the transpose": (
        "matmul",
        {"replace": [["contracting_dims = [1] x [0]", "contracting_dims = [0] x [0]"]]},
        "stablehlo.dot_general",
    ),
    "flags of XLA that do not see NaN": ("layers.py:program", {}, "stablehlo.compare"),
    "a mutated body": (f"{REPOSITORY}/docs/swapped.py:program", {}, ""),
}


def script_codes(folder: Path, rule: dict[str, Any], flags: str, right: str) -> list[int]:
    """Exit codes of the script with the wrong compiler and with the right one."""
    wrong: str | Path = right
    if rule:
        wrong = wrong_python(Path(tempfile.mkdtemp(dir=folder)), right, **rule)
    cpus = "--xla_force_host_platform_device_count=8"
    return [
        subprocess.run(
            [str(python), "show.py"],
            cwd=folder / "bisect",
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{own} {cpus}"},
            capture_output=True,
            check=False,
        ).returncode
        for python, own in ((wrong, flags), (right, ""))
    ]


def measure(name: str, pythons: Sequence[str]) -> dict[str, Any]:
    """Cut one of the cases down, and run its script in both ways."""
    program, rule, operation = CASES[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "layers.py").write_text(next(blocks(REPOSITORY / "docs/bisect.md")).code)
        python = wrong_python(folder / "wrong", **rule) if rule else Path(sys.executable)
        bad = [f"python={python}"] if rule else [FAST] if operation else ["platform=cpu"]
        settings = environment(PYTHONPATH=str(REPOSITORY), XLA_FLAGS="")
        command = [sys.executable, "-m", "pyreactant", "bisect", program, "--json", "--size", "16"]
        start = time.monotonic()
        ran = subprocess.run(
            [*command, "--each", "10m", "--bad", *bad],
            cwd=folder,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - start
        if ran.returncode:
            return {"case": name, "found": False, "seconds": seconds, "error": ran.stderr[-500:]}
        result = json.loads(ran.stdout)
        flags = FAST.partition("=")[2] if not rule and operation else ""
        codes = [script_codes(folder, rule, flags, one) for one in pythons]
        operations = result.get("operations") or []
        wanted = operation in operations if operation else result["cause"] == "program"
        return {
            "case": name,
            "found": wanted,
            "seconds": round(seconds, 1),
            "operations": len(operations) if operation else None,
            "passes": result.get("first_wrong") or result.get("passes"),
            "smallest": result["smallest"],
            "script": all(wrong and (not right or not operation) for wrong, right in codes),
            "codes": codes,
        }


def main() -> None:
    """Print a line of JSON for each case, and the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", action="append")
    parser.add_argument("cases", nargs="*", default=[*CASES])
    given = parser.parse_args()
    pythons = given.python or [environment_of(version) for version in VERSIONS]
    rows = []
    for name in given.cases:
        rows.append(measure(name, pythons))
        print(json.dumps(rows[-1]), flush=True)
    left = [row["operations"] for row in rows if row.get("operations")]
    summary = {
        "found": sum(row["found"] for row in rows),
        "scripts": sum(bool(row.get("script")) for row in rows),
        "of": len(rows),
        "median operations": statistics.median(left) if left else None,
        "median seconds": statistics.median(row["seconds"] for row in rows),
        "most seconds": max(row["seconds"] for row in rows),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
