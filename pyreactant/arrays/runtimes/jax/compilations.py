"""What JAX compiles for the program itself, by `jax.jit` for instance, as the guard sees it.

JAX compiles in one private function. Only programs over devices of several processes are seen, at
their first call; one whose arrays are whole on every device needs no other process.
"""

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax._src import compiler

from ....process import progress
from ..guard.operation import jitting

_FOLDER = str(Path(jax.__file__).parent)
_PARAMETERS = ["backend", "computation", "devices"]
_compile: Any = getattr(compiler, "compile_or_get_cached", None)

_SHARDED = re.compile(r'\{"|devices=\[')
"""A sharding in StableHLO that names an axis of a mesh, by Shardy or GSPMD."""


def is_known() -> bool:
    """Whether this version of JAX compiles in the function that is known here."""
    return callable(_compile) and [*inspect.signature(_compile).parameters][:3] == _PARAMETERS


def install() -> None:
    """Let the guard see what JAX compiles; nothing happens if this version of JAX is not known."""
    if is_known():
        compiler.compile_or_get_cached = _seen(_compile)


def _seen(compile_: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_)
    def compile_or_get_cached(
        backend: Any, computation: Any, devices: Any, *rest: Any, **named: Any
    ) -> Any:
        if progress.compiled is not None and _spans_processes(devices):
            text = str(computation)
            if _SHARDED.search(text):
                operation = jitting(text, _FOLDER)
                if operation is not None:
                    progress.compiled(operation)
        return compile_(backend, computation, devices, *rest, **named)

    return compile_or_get_cached


def _spans_processes(devices: Any) -> bool:
    return len({device.process_index for device in devices.flat}) > 1
