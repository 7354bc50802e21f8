"""Two finished runs of `pyreactant matmul`: do their products and placements agree?"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._dtypes import as_dtype
from ._errors import FileError
from ._source import open_npy
from ._tolerance import product_tolerance

_SAME = ("program", "operands", "m", "k", "n", "dtype", "precision", "mesh", "specs")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether two products agree, and a sentence on it."""

    passed: bool
    text: str


def compare_products(first: Path, second: Path) -> Comparison:
    """Compare FIRST.npy and FIRST.json, as --out and --report wrote them, with SECOND's.

    Each run has checked its own product against an oracle; this looks whether both ran the
    same problem, put the same block on each device, and agree in Frobenius norm. Two products
    within ``r |x| |y|`` of the exact one differ by at most twice that, and for the operands
    that the command makes ``|x| |y| <= 2 sqrt(k) |xy|`` with much to spare.

    Raises:
        FileError: A file is missing or is not what it should be.
    """
    one, two = _report(first), _report(second)
    differ = [key for key in _SAME if one.get(key) != two.get(key)]
    if differ:
        asked = "; ".join(f"{key}: {one.get(key)} and {two.get(key)}" for key in differ)
        return Comparison(False, f"they ran different problems ({asked})")
    for a, b in zip(one["devices"], two["devices"], strict=False):
        if (a["position"], a["process_index"], a["block"]) != (
            b["position"], b["process_index"], b["block"]
        ):  # fmt: skip
            return Comparison(
                False,
                f"placement differs: device {a['position']} of process {a['process_index']} holds "
                f"{a['block']}, and device {b['position']} of process {b['process_index']} "
                f"{b['block']}",
            )
    return _values(first, second, one)


def _values(first: Path, second: Path, report: dict[str, Any]) -> Comparison:
    dtype, k = as_dtype(report["dtype"]), int(report["k"])
    x, y = (_product(path, report["dtype"]) for path in (first, second))
    tolerance = product_tolerance(
        dtype, k, report["platform"], report["precision"], len(report["devices"]), random=True
    )
    wide = np.complex128 if dtype.kind == "c" else np.float64
    squares, largest, norm = 0.0, 0.0, 0.0
    for a, b in zip(x, y, strict=True):  # by rows, so that large products need little memory
        difference = np.abs(a.astype(wide) - b.astype(wide))
        squares += float(np.sum(difference**2))
        largest = max(largest, float(difference.max(initial=0.0)))
        norm += float(np.sum(np.abs(a.astype(wide)) ** 2))
    found = math.sqrt(squares / norm) if norm else math.sqrt(squares)
    allowed = 4 * tolerance.relative * math.sqrt(k)
    passed = found <= allowed  # false for NaN
    text = (
        f"{'agree' if passed else 'DIFFER'}: relative difference {found:.2e}, allowed "
        f"{allowed:.2e}; largest {largest:.2e}; the same blocks on {len(report['devices'])} devices"
    )
    return Comparison(passed, text)


def _report(run: Path) -> dict[str, Any]:
    path = run.with_name(run.name + ".json")
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or not found["devices"]:
            raise KeyError("devices")
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError):
        raise FileError(f"{path} is not a report of pyreactant matmul") from None
    return found


def _product(run: Path, dtype: str) -> np.ndarray:
    source = open_npy(run.with_name(run.name + ".npy"), dtype)
    return source.read(tuple(slice(0, n) for n in source.shape))
