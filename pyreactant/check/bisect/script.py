"""The script that shows what is wrong, without pyreactant."""

import inspect
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.dtypes import wide
from ...base.files import write_text
from . import worker
from .judge import Module
from .way import Way

SCRIPT = "show.py"

_INSIDE = 16
"""Lines of a module, and elements of an input, that a script itself contains."""

_DEVICE = """\
from jax._src.lib import _jax, xla_client

jax.config.update("jax_enable_x64", True)
device = jax.devices()[0]
settings = xla_client.CompileOptions()
"""

_LAPACK = """\
solve = jax.jit(jax.numpy.linalg.cholesky).trace(np.eye(1))
solve.lower(lowering_platforms=("cpu",))  # loads LAPACK
"""

_ON_ONE_DEVICE = """\
program = device.client.compile_and_load(MODULE, _jax.DeviceList((device,)), settings)
ran = program.execute_sharded([jax.device_put(x, device) for x in inputs])
results = [x[0] for x in ran.disassemble_into_single_device_arrays()]
"""

_VERDICT = """\
got, right, allowed = np.asarray(results[{output}])[{element}], {right}, {allowed:.3g}
print(f"element {element}: got {{got}}, right is {{right}}")
number = got.item() if got.dtype.kind in "iubc" else float(got)
same = number == right or (number != number and right != right)
if not (same or abs(number - right) <= allowed):
    raise SystemExit(1)
"""


def _literal(value: Any) -> str:
    return repr(value).replace("nan", "np.nan").replace("inf", "np.inf")


def worst(
    got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], allowed: Sequence[Any]
) -> dict[str, Any]:
    """The element that is farthest from what is right, in units of what is allowed."""
    farthest: dict[str, Any] = {"off": -1.0}
    for number, (one, right, limit) in enumerate(zip(got, wanted, allowed, strict=True)):
        limits = np.broadcast_to(np.asarray(limit, float), one.shape)
        a, b = wide(one), wide(right)
        with np.errstate(all="ignore"):
            off = np.abs(a - b) / np.maximum(limits, np.finfo(float).tiny)
        off = np.where(one == right, 0, np.maximum(np.nan_to_num(off, nan=np.inf), 1))
        off = np.where(np.isnan(a) & np.isnan(b), 0, off)  # and 64-bit integers differ exactly
        at = tuple(map(int, np.unravel_index(int(np.argmax(off)), one.shape))) if one.size else ()
        if one.size and off[at] > farthest["off"]:
            a, b = (one, right) if one.dtype.kind in "iub" else (a, b)
            values = {"off": float(off[at]), "got": a[at].item(), "right": b[at].item()}
            farthest = {"output": number, "element": at, "allowed": float(limits[at]), **values}
    return farthest


def command_of(way: Way, devices: int) -> str:
    """The command that runs the script in a way."""
    variables = way.variables
    if devices > 1 and variables["JAX_PLATFORMS"] == "cpu":
        count = f"--xla_force_host_platform_device_count={devices}"
        variables["XLA_FLAGS"] = f"{variables.get('XLA_FLAGS', '')} {count}".strip()
    settings = [f"{key}={shlex.quote(value)}" for key, value in variables.items()]
    return " ".join([*settings, "python", SCRIPT])


def write_script(
    folder: Path, module: Module, wrong: dict[str, Any] | None, bad: Way, attempts: int
) -> None:
    """Write the script into a folder, and beside it what is too long for it.

    It ends with 0 if the element is right, and with 1 if it is wrong.

    Args:
        wrong: The element, as `worst` gives it; None for a module that does not run.
        attempts: How often it runs, as a failure that comes and goes needs.
    """
    lines = [
        f'"""Run: {command_of(bad, module.partitions)}"""',
        "",
        "import jax",
        "import ml_dtypes",
    ]
    lines += ["import numpy as np", ""]
    text = module.text.strip()
    if len(text.splitlines()) > _INSIDE:
        write_text(text + "\n", folder / "module.mlir")
        lines.append('MODULE = open("module.mlir").read()')
    else:
        lines.append(f'MODULE = r"""{text}"""')
    worker.save_arrays(folder / "inputs.npz", module.inputs)
    lines.append("inputs = []")
    for number, array in enumerate(module.inputs):
        name = array.dtype.name
        if array.size <= _INSIDE and array.dtype.kind in "fiub":
            lines.append(f"inputs.append(np.array({_literal(array.tolist())}, {name!r}))")
        else:
            view = "" if array.dtype.isbuiltin == 1 else f".view(ml_dtypes.{name})"
            lines.append(f'inputs.append(np.load("inputs.npz")["{number}_{name}"]{view})')
    if module.partitions > 1:
        source = inspect.getsource(worker.run_module).replace("Sequence[Any]", "list")
        shapes = [list(aval["shape"]) for aval in module.results]
        lines += ["from typing import Any", *filter(str.strip, source.splitlines())]
        body = [f"results = run_module(MODULE, inputs, {shapes}, {module.partitions})"]
    else:
        lines += _DEVICE.splitlines()
        lines += _LAPACK.splitlines() if "lapack" in text else []
        body = _ON_ONE_DEVICE.splitlines()
    if wrong is None:
        body.append('print("it ran")')
    else:
        right = _literal(wrong["right"])
        output, element, allowed = wrong["output"], wrong["element"], wrong["allowed"]
        verdict = _VERDICT.format(output=output, element=element, right=right, allowed=allowed)
        body += verdict.splitlines()
    if attempts > 1:
        body = [f"for _ in range({attempts}):", *(f"    {line}" for line in body)]
    write_text("\n".join(lines + body) + "\n", folder / SCRIPT)
