"""Recorded answers of libtpu, so that tests need not compile.

An answer belongs to the versions of libtpu and jax, which name its file, and to the request with
the digest of its module, which JAX lowers each time. If either differs, libtpu compiles. After such
a change, PYREACTANT_RECORD=1 with tests/tpu and tests/test_readme.py (without -n) writes the new
answers into the file.
"""

import functools
import gzip
import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyreactant.fit.compiler import ask
from tests import harness
from tests.harness import REPOSITORY, environment

FOLDER = Path(__file__).parent / "recorded"

Answer = dict[str, Any]
Show = Callable[[Any], Answer | None]
"""Called with what the child shows: the digest of a lowered program, or a module's description."""


def file() -> Path:
    """The file with the answers of these versions."""
    return FOLDER / f"libtpu-{version('libtpu')}-jax-{version('jax')}.json.gz"


def without_flags(**settings: str) -> dict[str, str]:
    """The environment of a command that finds recorded answers: they hold without flags of XLA."""
    kept = environment(**settings)
    del kept["XLA_FLAGS"]
    return kept


@functools.cache
def read() -> dict[str, Answer]:
    """All answers of these versions."""
    try:
        return dict(json.loads(gzip.decompress(file().read_bytes())))
    except FileNotFoundError:
        return {}


def digest_of(request: Mapping[str, Any]) -> str | None:
    """The digest of the module to compile; None if it cannot be lowered."""
    if request["kind"] == "stablehlo":
        return ask.key_of({"text": request["text"]})
    ran = harness.run(
        [sys.executable, "-m", "tests.tpu.lowered"],
        env=environment(),
        input=json.dumps({"request": request, "path": sys.path}),
    )
    found: str | None = json.loads(ran.stdout)["digest"] if ran.returncode == 0 else None
    return found


class Recorded:
    """Stands for `ask.compile_in_child`: the recorded answer, otherwise the compiler's."""

    def __init__(self, compile_in_child: Callable[..., Answer]) -> None:
        self.compile = compile_in_child

    def __call__(
        self, request: Mapping[str, Any], accelerator_type: str, timeout: float, show: Show
    ) -> Answer:
        digest = None if ask.environment() else digest_of(request)
        if digest is None:  # with options of XLA or libtpu, or without a module
            return self.compile(request, accelerator_type, timeout, show)
        question = {name: value for name, value in request.items() if name != "show_digest"}
        key = ask.key_of({**question, "lowered": digest})
        kept = read().get(key)
        if kept is None:
            return self._compile(key, request, accelerator_type, timeout, show)
        if request["kind"] == "stablehlo":
            if kept["shown"] is not None:  # a module that does not parse has no description
                show(kept["shown"])
        elif request["show_digest"]:
            show(digest)  # part of the key under which the answer is kept
        return dict(kept["reply"])

    def _compile(
        self,
        key: str,
        request: Mapping[str, Any],
        accelerator_type: str,
        timeout: float,
        show: Show,
    ) -> Answer:
        shown: list[Any] = []

        def noted(value: Any) -> Answer | None:
            shown.append(value)
            return show(value)

        reply = self.compile(request, accelerator_type, timeout, noted)
        if reply and os.environ.get("PYREACTANT_RECORD"):
            _add(key, {"reply": reply, "shown": shown[0] if shown else None})
        return reply


def _add(key: str, answer: Answer) -> None:
    """Record an answer of the compiler; only one worker may record."""
    answers = {**read(), key: answer}
    file().parent.mkdir(exist_ok=True)
    text = json.dumps(dict(sorted(answers.items()))).replace(f"{REPOSITORY}{os.sep}", "")
    file().write_bytes(gzip.compress(text.encode(), mtime=0))
    read.cache_clear()
