"""Ask the compiler, or the cache of its answers; and what its refusals mean."""

import re
from collections.abc import Mapping
from typing import Any

from .._errors import InvalidArgumentError, PyReactantError, RequirementError
from . import _cache
from ._compile import compile_in_child
from ._preflight_request import environment
from ._stablehlo import unknown_custom_calls
from ._topology import Topology

TIMEOUT = 600.0
"""Seconds that a compilation may take."""

Answer = dict[str, Any]

_FORM = 1
"""Of answers, as they lie in the cache: to be counted up with every change of their keys."""


def ask(
    question: Mapping[str, Any],
    topology: Topology,
    found: Mapping[str, str],
    *,
    cache: bool,
    timeout: float,
) -> tuple[Answer, bool]:
    """The compiler's answer, and whether it was known.

    Args:
        question: For `_compile_child`. With "ask" the program's own text is what the answer is
            kept under, and it is lowered to know it: a name does not say what a function that
            may be edited computes.
        topology: For what.
        found: Versions.
        cache: Whether to look it up and keep it.
        timeout: Seconds.
    """
    context = {"versions": dict(found), "environment": environment(), "form": _FORM}
    by_text = bool(question.get("ask"))
    key = "" if by_text else _cache.key_of({**question, **context})
    hits: list[Answer] = []

    def known(digest: str) -> Answer | None:
        nonlocal key
        shown = {k: question[k] for k in ("kind", "topology", "arguments", "out_shardings")}
        key = _cache.key_of({**shown, **context, "lowered": digest})
        hit = _cache.read(key)
        if hit is not None:
            hits.append(hit)
        return hit

    if cache and not by_text:
        hit = _cache.read(key)
        if hit is not None:
            return hit, True
    said = compile_in_child(question, topology.accelerator_type, timeout, known)
    if hits:
        return hits[0], True
    answer = said["answer"] if "answer" in said else _refused(said, question.get("text", ""))
    if cache:
        _cache.write(key, answer)
    return answer, False


def _refused(said: Mapping[str, Any], text: str) -> Answer:
    """What a failed answer means: an answer too where the program is too large, else an error."""
    step, message = said["failed"], said["message"]
    if step == "compile" and message.startswith("RESOURCE_EXHAUSTED"):
        return {
            "refusal": message,
            "compile_seconds": said["seconds"],
            "compiler_bytes": said["compiler_bytes"],
        }
    where = f" (at {said['where']})" if said["where"] else ""
    if said["ours"]:
        raise InvalidArgumentError(message)
    if said["dynamic"]:
        raise InvalidArgumentError(
            "the program has dynamic shapes, which depend on the values of its arguments; a TPU "
            "program's shapes are fixed: use size= or jnp.where, or make the value static"
            f"{where}: {message.splitlines()[0]}"
        )
    if step == "lower":
        raise InvalidArgumentError(
            f"JAX cannot trace the program: {said['type']}{where}: {message}"
        )
    if step == "parse":
        raise InvalidArgumentError(f"the StableHLO module does not parse: {message}")
    if step == "topology":
        raise RequirementError(f"libtpu knows no such slice: {message}")
    if said["type"] in ("AttributeError", "TypeError", "ImportError"):
        raise RequirementError(
            f"this jax has not the private interface that compiles StableHLO here: {message}; it "
            "was seen with jax 0.10.2 and 0.12.0.1"
        )
    if lacking := re.search(r"Custom emitter for (\S+) not found", message):
        names = sorted({lacking[1], *unknown_custom_calls(text)})
        raise InvalidArgumentError(
            f"the program has custom calls that libtpu does not know: {', '.join(names)}; kernels "
            "of CPUs and GPUs do not exist on TPUs: write that part in other operations"
        )
    raise PyReactantError(f"XLA cannot compile the program: {message}")
