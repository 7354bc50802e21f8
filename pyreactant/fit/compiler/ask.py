"""The compiler's answer, from the cache or a child process; its failures become errors.

The cache has one file per question, written atomically.
"""

import gzip
import hashlib
import importlib.metadata
import json
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...base.child import TPU, Activity, ask_child, import_path, without
from ...base.errors import InvalidArgumentError, PyReactantError, RequirementError
from ...base.facts import package_version, required, satisfies
from ...base.files import cache_folder, check_home, replacing
from ...base.slices.topology import Topology
from ...base.words import is_too_large, unknown_call


def child_environment(accelerator_type: str) -> dict[str, str]:
    """The child's environment: without this machine's TPU, so that libtpu looks for none.

    Args:
        accelerator_type: Accelerator type of the slice, such as "v6e-16".
    """
    return {
        **without(*TPU),
        "PYTHONPATH": import_path(current_folder=True),
        "JAX_PLATFORMS": "cpu",
        "TPU_ACCELERATOR_TYPE": accelerator_type,
        "TPU_SKIP_MDS_QUERY": "1",  # do not query Google's metadata server
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "TPU_LOG_DIR": "disabled",
        "TPU_MIN_LOG_LEVEL": "3",  # libtpu 0.0.50 then writes to the temporary folder instead
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it uses no chip, so it needs no lock
    }


def compile_in_child(
    request: Mapping[str, Any],
    accelerator_type: str,
    timeout: float,
    cached_answer: Callable[[Any], dict[str, Any] | None],
) -> dict[str, Any]:
    """A child process's answer to a request; see `compile_child`.

    Args:
        request: The request, as plain data.
        accelerator_type: Accelerator type of the slice, such as "v6e-16".
        timeout: Seconds until the child is killed.
        cached_answer: Called before the child compiles, with the digest of the lowered program or
            the description of the module; returns the answer if it is known. An exception ends the
            child.

    Raises:
        ChildLostError: The child was killed, or ended without an answer.
        DeadlineError: The child did not answer in time.
    """
    return ask_child(
        "pyreactant.fit.compiler.compile_child",
        child_environment(accelerator_type),
        request,
        timeout=timeout,
        activity=Activity(f"compiling for {accelerator_type}", "compiles", "libtpu"),
        cached_answer=cached_answer,
    )


TIMEOUT = 600.0
"""Seconds that a compilation may take."""

Answer = dict[str, Any]


def environment() -> dict[str, str]:
    """The variables that change what JAX and libtpu compile."""
    ours = ("JAX_", "XLA_", "LIBTPU_")
    ignored = ("JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR")
    return {k: v for k, v in os.environ.items() if k.startswith(ours) and k not in ignored}


_CACHE_VERSION = 2
"""Version of the cached answers; increment it whenever their keys change."""


def ask(
    question: Mapping[str, Any],
    topology: Topology,
    installed: Mapping[str, str],
    *,
    cache: bool,
    timeout: float,
    check: Callable[[Mapping[str, Any]], object] = lambda description: None,
) -> tuple[Answer, bool]:
    """The compiler's answer, and whether it came from the cache.

    Args:
        question: The request for `compile_child`. With "show_digest" the child lowers the program
            first and the digest of its text is part of the cache's key: the function may have been
            edited since.
        topology: The slice.
        installed: Versions of the packages that compile.
        cache: Whether to use and update the cache.
        timeout: Seconds for the child.
        check: Called with the description of a StableHLO module before libtpu is loaded; an
            exception ends the child. The answer has the description as "module".
    """
    context = {"versions": dict(installed), "environment": environment(), "form": _CACHE_VERSION}
    by_text = bool(question.get("show_digest"))
    key = "" if by_text else key_of({**question, **context})
    hits: list[Answer] = []
    module: dict[str, Any] = {}

    def cached_answer(shown: Any) -> Answer | None:
        nonlocal key
        if question["kind"] == "stablehlo":
            module.update(shown)
            check(module)
            return None
        parts = {k: question[k] for k in ("kind", "topology", "arguments", "out_shardings")}
        key = key_of({**parts, **context, "lowered": shown})
        hit = read_answer(key)
        if hit is not None:
            hits.append(hit)
        return hit

    if cache and not by_text:
        hit = read_answer(key)
        if hit is not None:
            return hit, True
    reply = compile_in_child(question, topology.accelerator_type, timeout, cached_answer)
    if hits:
        return hits[0], True
    answer = reply["answer"] if "answer" in reply else _refusal(reply)
    if module:
        answer = {**answer, "module": module}
    if cache:
        write_answer(key, answer)
    return answer, False


def _refusal(failure: Mapping[str, Any]) -> Answer:
    """The answer if the program is too large for the slice; any other failure raises an error."""
    step, message = failure["failed"], failure["message"]
    if step == "compile" and is_too_large(message):
        return {
            "refusal": message,
            "compile_seconds": failure["seconds"],
            "compiler_bytes": failure["compiler_bytes"],
        }
    where = f" (at {failure['where']})" if failure["where"] else ""
    if failure["own_error"]:
        raise InvalidArgumentError(message)
    if failure["dynamic"]:
        raise InvalidArgumentError(
            "the program has dynamic shapes, which depend on the values of its arguments; a TPU "
            "program must have fixed shapes: use size= or jnp.where, or make the value static"
            f"{where}: {message.splitlines()[0]}"
        )
    if step == "lower":
        raise InvalidArgumentError(
            f"JAX cannot trace the program: {failure['type']}{where}: {message}"
        )
    if step == "topology":
        raise RequirementError(f"libtpu does not know this slice: {message}")
    if failure["type"] in ("AttributeError", "TypeError", "ImportError", "ModuleNotFoundError"):
        raise RequirementError(
            f"this version of jax lacks the private interface needed to compile StableHLO: "
            f"{message}; jax 0.10.2 and 0.12.0.1 have it"
        )
    if step == "parse":
        raise InvalidArgumentError(f"the StableHLO module does not parse: {message}")
    if lacking := unknown_call(message):
        raise InvalidArgumentError(
            f"the program has a custom call that libtpu does not know: {lacking}; kernels for CPUs "
            "and GPUs do not run on TPUs: write that part with other operations"
        )
    raise PyReactantError(f"XLA cannot compile the program: {message}")


def versions() -> dict[str, str]:
    """Versions of pyreactant, jax, jaxlib and libtpu.

    Raises:
        RequirementError: jax or libtpu is missing, or libtpu does not match jax.
    """
    installed = {"pyreactant": __version__}
    for package in ("jax", "jaxlib"):
        version = package_version(package)
        if version is None:
            raise RequirementError(
                f"preflight compiles with {package}, which is not installed; run: "
                "python -m pip install 'pyreactant[tpu]'"
            )
        installed[package] = version
    installed["libtpu"] = _checked_libtpu(installed["jax"])
    return installed


def _checked_libtpu(jax: str) -> str:
    wanted, got = _wanted_libtpu(), package_version("libtpu")
    pip = f"python -m pip install 'libtpu{wanted}'"
    if got is None:
        raise RequirementError(
            f"preflight compiles with libtpu (no TPU is needed): jax {jax} requires "
            f"libtpu{wanted}, which is not installed; run: {pip}"
        )
    if not satisfies(got, wanted):
        raise RequirementError(f"jax {jax} requires libtpu{wanted}, got libtpu {got}; run: {pip}")
    return got


def _wanted_libtpu() -> str:
    """The version that jax's extra "tpu" requires, such as "==0.0.50.*"; "" for any."""
    return required(importlib.metadata.requires("jax") or (), "libtpu", "tpu")


LIMIT = 512 * 2**20
"""Bytes that the cache may hold; above them the least recently used entries are removed."""


def answers_folder() -> Path:
    """The folder of the cache, in the user's cache folder."""
    return cache_folder() / "preflight"


def key_of(question: Mapping[str, Any]) -> str:
    """A digest of everything that an answer depends on."""
    text = json.dumps(question, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_answer(key: str) -> dict[str, Any] | None:
    """The entry, or None; a damaged entry is removed."""
    path = _path(key)
    try:
        entry = json.loads(gzip.decompress(path.read_bytes()))
        if entry["key"] != key:
            raise ValueError(key)
        os.utime(path)  # mark it as used
        return dict(entry["answer"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError, KeyError, TypeError):
        _remove(path)
    except OSError as error:
        _warn("read", error)
    return None


def write_answer(key: str, answer: Mapping[str, Any]) -> None:
    """Store an answer; a failure is only a warning."""
    path = _path(key)
    try:
        check_home(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": key, "answer": answer})
        with replacing(path) as partial:
            partial.write_bytes(gzip.compress(text.encode(), compresslevel=3))
        _prune(path.parent)
    except OSError as error:
        _warn("written", error)


def _path(key: str) -> Path:
    return answers_folder() / f"{key}.json.gz"


def _prune(entries: Path) -> None:
    """Remove the least recently used entries until the cache is within its limit."""
    oldest = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in entries.glob("*.json.gz"))
    size = sum(bytes_ for _, bytes_, _ in oldest)
    for _, bytes_, path in oldest:
        if size <= LIMIT:
            break
        _remove(path)
        size -= bytes_


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _warn("changed", error)


def _warn(what: str, error: OSError) -> None:
    warnings.warn(
        f"the preflight cache cannot be {what} ({error.strerror}: {answers_folder()}), so the "
        "answer is not stored; set XDG_CACHE_HOME to another folder, or disable the cache with "
        "cache=False (--no-cache)",
        RuntimeWarning,
        stacklevel=2,
    )
