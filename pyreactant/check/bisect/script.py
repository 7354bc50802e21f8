"""The script that shows what is wrong, without pyreactant, and the text of a bug report."""

import inspect
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.dtypes import wide
from ...base.files import write_text
from . import worker
from .child import Outcome
from .judge import Module, save_arrays
from .way import Way

SCRIPT = "show.py"

_INSIDE = 16
"""Lines of a module that a script itself contains; a longer one is a file beside it."""

_ON_ONE_DEVICE = """\
import jax
from jax._src.lib import _jax, xla_client

jax.config.update("jax_enable_x64", True)
devices = tuple(jax.devices()[:1])
settings = xla_client.CompileOptions()
program = devices[0].client.compile_and_load(MODULE, _jax.DeviceList(devices), settings)
placed = [jax.device_put(x, devices[0]) for x in inputs]
results = program.execute_sharded(placed).disassemble_into_single_device_arrays()
got = np.asarray(results[{output}][0])[{element}]
"""


@dataclass(frozen=True, slots=True)
class Wrong:
    """The element that a script looks at.

    Attributes:
        output: Number of the result.
        allowed: How far a right result may be off.
    """

    output: int
    element: tuple[int, ...]
    got: Any
    wanted: Any
    allowed: float


def worst(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], allowed: Sequence[Any]) -> Wrong:
    """The element that is farthest from what is right, in units of what is allowed.

    Args:
        allowed: For each result how far its elements may be off.
    """
    found: list[tuple[float, Wrong]] = []
    for number, (one, right, limit) in enumerate(zip(got, wanted, allowed, strict=True)):
        if not one.size:
            continue
        limits = np.broadcast_to(np.asarray(limit, float), one.shape)
        with np.errstate(all="ignore"):
            a, b = wide(one), wide(right)
            off = np.abs(a - b) / np.maximum(limits, np.finfo(float).tiny)
            off = np.where(
                (a == b) | (np.isnan(a) & np.isnan(b)), 0, np.nan_to_num(off, nan=np.inf)
            )
        at = tuple(map(int, np.unravel_index(int(np.argmax(off)), one.shape)))
        own = Wrong(number, at, a[at].item(), b[at].item(), float(limits[at]))
        found.append((float(off[at]), own))
    return max(found, key=lambda pair: pair[0])[1]


def command_of(way: Way, name: str) -> str:
    """The command that runs a script in a way."""
    settings = [f"{key}={shlex.quote(value)}" for key, value in way.variables.items()]
    return " ".join([*settings, "python", name])


def write_script(
    folder: Path,
    module: Module,
    makers: Sequence[str],
    wrong: Wrong | None,
    bad: Way,
    outcome: Outcome,
) -> Path:
    """Write `show.py` into a folder, and beside it what is too long for a script.

    It ends with 0 if the element is right, and with 1 if it is wrong; a module that crashes the
    process, or is refused, does so there.

    Args:
        makers: How each input is made; "" for one that goes to a file.
        wrong: The element; None for a module that does not run.
    """
    path = folder / SCRIPT
    lines = [f'"""A module that is {_WHAT[outcome]}. Run: {command_of(bad, path.name)}"""', ""]
    lines += ["import numpy as np", ""]
    text = module.text.strip()
    if len(text.splitlines()) > _INSIDE:
        write_text(text + "\n", folder / "module.mlir")
        lines += ['MODULE = open("module.mlir").read()']
    else:
        lines += [f'MODULE = r"""{text}"""']
    if not all(makers) or len(makers) < len(module.inputs):
        save_arrays(folder / "inputs.npz", module.inputs)
        lines += ['kept = np.load("inputs.npz")']
    lines += ["inputs = []"]
    for number, array in enumerate(module.inputs):
        maker = makers[number] if number < len(makers) else ""
        extended = array.dtype.kind == "V"
        lines += ["import ml_dtypes"] if extended and not number else []
        view = f".view(ml_dtypes.{array.dtype.name})" if extended else ""
        kept = f'kept["arr_{number}"]{view}'
        lines += [f"inputs.append({maker or kept})"]
    where = wrong or Wrong(0, (), None, None, 0.0)
    if module.partitions > 1:
        shapes = [list(aval["shape"]) for aval in module.results]
        lines += ["", *_source_of("run_module"), ""]
        lines += [f"results = run_module(MODULE, inputs, {shapes}, {module.partitions})"]
        lines += [f"got = results[{where.output}][{where.element}]"]
    else:
        lines += _ON_ONE_DEVICE.format(output=where.output, element=where.element).splitlines()
    if wrong is None:
        lines += ['print("it ran")']
    else:
        wanted = repr(wrong.wanted).replace("nan", "np.nan").replace("inf", "np.inf")
        lines += [
            f"wanted, allowed = {wanted}, {wrong.allowed:.3g}",
            f'print(f"element {list(where.element)}: got {{got}}, right is {{wanted}}")',
            "number = got.astype(complex) if got.dtype.kind == 'c' else float(got)",
            "same = number == wanted or (number != number and wanted != wanted)",
            "raise SystemExit(0 if same or abs(number - wanted) <= allowed else 1)",
        ]
    write_text("\n".join(lines) + "\n", path)
    return path


_WHAT = {
    Outcome.RAN: "computed wrongly",
    Outcome.CRASH: "compiled or run until the process crashes",
    Outcome.HANG: "compiled or run without an end",
    Outcome.INVALID: "refused",
}


def _source_of(name: str) -> list[str]:
    """The lines of a function of `worker`, without its blank ones."""
    source = inspect.getsource(getattr(worker, name))
    return [line for line in source.splitlines() if line.strip()]
