"""Ask the compiler, or the cache of its answers; and what its refusals mean."""

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._errors import InvalidArgumentError, PyReactantError, RequirementError
from ..._system.child import Activity, ask_child
from ..._system.environment import TPU, import_path, without
from ..._system.facts import package_version
from ..._system.versions import required, satisfies
from ..._version import __version__
from .._hlo.stablehlo import unknown_custom_calls
from .._request import environment
from .._topology import Topology
from .cache import key_of, read, write


def child_environment(accelerator_type: str) -> dict[str, str]:
    """This environment, but for what says which TPU is here: none is to be looked for.

    Args:
        accelerator_type: Such as "v6e-16".
    """
    return {
        **without(*TPU),
        "PYTHONPATH": import_path(current_folder=True),
        "JAX_PLATFORMS": "cpu",
        "TPU_ACCELERATOR_TYPE": accelerator_type,
        "TPU_SKIP_MDS_QUERY": "1",  # else it asks the metadata server of Google's cloud
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "TPU_LOG_DIR": "disabled",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it uses no chip, so nothing needs to be locked
    }


def compile_in_child(
    request: Mapping[str, Any],
    accelerator_type: str,
    timeout: float,
    known: Callable[[Any], dict[str, Any] | None],
) -> dict[str, Any]:
    """What a child process answers to a request; see `compile_child`.

    Args:
        request: Plain data.
        accelerator_type: Of the topology.
        timeout: Seconds until the child is killed.
        known: Given what the child shows before it compiles, the digest of the lowered program or
            the description of the module: the answer where there is one already. What it raises
            ends the child.

    Raises:
        ChildLostError: It was killed, or ended itself.
        DeadlineError: It did not answer in time.
    """
    return ask_child(
        "pyreactant.tpu._compiler.compile_child",
        child_environment(accelerator_type),
        request,
        timeout=timeout,
        activity=Activity(f"compiling for {accelerator_type}", "compiles", "libtpu"),
        cached_answer=known,
    )


TIMEOUT = 600.0
"""Seconds that a compilation may take."""

Answer = dict[str, Any]

_FORM = 2
"""Of answers, as they lie in the cache: to be counted up with every change of their keys."""


def ask(
    question: Mapping[str, Any],
    topology: Topology,
    found: Mapping[str, str],
    *,
    cache: bool,
    timeout: float,
    check: Callable[[Mapping[str, Any]], object] = lambda description: None,
) -> tuple[Answer, bool]:
    """The compiler's answer, and whether it was known.

    Args:
        question: For `compile_child`. With "ask" the program's own text is what the answer is
            kept under, and it is lowered to know it: a name does not say what a function that
            may be edited computes.
        topology: For what.
        found: Versions.
        cache: Whether to look it up and keep it.
        timeout: Seconds.
        check: Given the description of a StableHLO module before the compiler is loaded; what it
            raises ends the question. The answer has the description as "module".
    """
    context = {"versions": dict(found), "environment": environment(), "form": _FORM}
    by_text = bool(question.get("ask"))
    key = "" if by_text else key_of({**question, **context})
    hits: list[Answer] = []
    module: dict[str, Any] = {}

    def known(digest: Any) -> Answer | None:
        nonlocal key
        if question["kind"] == "stablehlo":
            module.update(digest)
            check(module)
            return None
        shown = {k: question[k] for k in ("kind", "topology", "arguments", "out_shardings")}
        key = key_of({**shown, **context, "lowered": digest})
        hit = read(key)
        if hit is not None:
            hits.append(hit)
        return hit

    if cache and not by_text:
        hit = read(key)
        if hit is not None:
            return hit, True
    said = compile_in_child(question, topology.accelerator_type, timeout, known)
    if hits:
        return hits[0], True
    calls = module.get("custom_calls", ())
    answer = said["answer"] if "answer" in said else _refused(said, calls)
    if module:
        answer = {**answer, "module": module}
    if cache:
        write(key, answer)
    return answer, False


def _refused(said: Mapping[str, Any], custom_calls: Sequence[str]) -> Answer:
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
    if step == "topology":
        raise RequirementError(f"libtpu knows no such slice: {message}")
    if said["type"] in ("AttributeError", "TypeError", "ImportError", "ModuleNotFoundError"):
        raise RequirementError(
            f"this jax has not the private interface that compiles StableHLO here: {message}; it "
            "was seen with jax 0.10.2 and 0.12.0.1"
        )
    if step == "parse":
        raise InvalidArgumentError(f"the StableHLO module does not parse: {message}")
    if lacking := re.search(r"Custom emitter for (\S+) not found", message):
        names = sorted({lacking[1], *unknown_custom_calls(custom_calls)})
        raise InvalidArgumentError(
            f"the program has custom calls that libtpu does not know: {', '.join(names)}; kernels "
            "of CPUs and GPUs do not exist on TPUs: write that part in other operations"
        )
    raise PyReactantError(f"XLA cannot compile the program: {message}")


def versions() -> dict[str, str]:
    """Versions of pyreactant, jax, jaxlib and libtpu.

    Raises:
        RequirementError: jax or libtpu is missing, or libtpu is not the one that jax wants.
    """
    found = {"pyreactant": __version__}
    for package in ("jax", "jaxlib"):
        version = package_version(package)
        if version is None:
            raise RequirementError(
                f"preflight compiles with {package}, which is not installed; "
                "python -m pip install 'pyreactant[tpu]'"
            )
        found[package] = version
    found["libtpu"] = _checked_libtpu(found["jax"])
    return found


def _checked_libtpu(jax: str) -> str:
    wanted, got = _wanted_libtpu(), package_version("libtpu")
    pip = f"python -m pip install 'libtpu{wanted}'"
    if got is None:
        raise RequirementError(
            f"preflight compiles with libtpu, which needs no TPU for that: jax {jax} wants "
            f"libtpu{wanted}, and none is installed; {pip}"
        )
    if not satisfies(got, wanted):
        raise RequirementError(
            f"jax {jax} and libtpu {got} do not belong together: this jax wants libtpu{wanted}; "
            f"{pip}"
        )
    return got


def _wanted_libtpu() -> str:
    """The spec that jax's extra "tpu" requires, such as "==0.0.50.*"; "" if it requires none."""
    return required(importlib.metadata.requires("jax") or (), "libtpu", "tpu")
