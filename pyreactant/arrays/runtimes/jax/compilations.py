"""What JAX compiles for the program itself, by `jax.jit` for instance, as the guard sees it.

Only programs over devices of several processes are seen, at their first call; one whose arrays are
whole on every device needs no other process.
"""

import re
from pathlib import Path
from typing import Any

import jax
from jax._src import compiler

from ....process import compilations, progress
from ..guard.operation import jitting

_FOLDER = str(Path(jax.__file__).parent)

_SHARDED = re.compile(r'\{"|devices=\[')
"""A sharding in StableHLO that names an axis of a mesh, by Shardy or GSPMD."""


def is_known() -> bool:
    """Whether this version of JAX compiles in the function that is known."""
    return compilations.is_known(compiler)


def install(cache: str | None, *, several: bool) -> None:
    """See what JAX compiles; of a version of JAX that is not known nothing is seen.

    Args:
        cache: The folder of compiled programs; None for none.
        several: Whether there are other processes, so that the guard must see it.
    """
    if cache is not None:
        compilations.use_cache(cache)
    compilations.install(compiler)
    if several:
        compilations.before = _tell_guard


def _tell_guard(computation: Any, devices: Any) -> None:
    if progress.compiled is not None and _spans_processes(devices):
        text = str(computation)
        if _SHARDED.search(text):
            operation = jitting(text, _FOLDER)
            if operation is not None:
                progress.compiled(operation)


def _spans_processes(devices: Any) -> bool:
    return len({device.process_index for device in devices.flat}) > 1
