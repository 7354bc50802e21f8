"""What libtpu answered when it was asked for the last time, so that tests need not compile.

An answer belongs to the versions of libtpu and jax, which name its file, and to the request with
the digest of its module, which JAX lowers here each time. If either differs, libtpu compiles.
After such a change, PYREACTANT_RECORD=1 with tests/tpu writes what was compiled into the file.
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

from pyreactant.tpu import _request
from pyreactant.tpu._compiler import cache
from tests import processes
from tests.harness import REPOSITORY, environment

FOLDER = Path(__file__).parent / "recorded"

Answer = dict[str, Any]
Known = Callable[[str], Answer | None]


def file() -> Path:
    """Where the answers of these versions are."""
    return FOLDER / f"libtpu-{version('libtpu')}-jax-{version('jax')}.json.gz"


@functools.cache
def read() -> dict[str, Answer]:
    """All answers of these versions."""
    try:
        return dict(json.loads(gzip.decompress(file().read_bytes())))
    except FileNotFoundError:
        return {}


def digest_of(request: Mapping[str, Any]) -> str | None:
    """Of the module that is compiled; None where there is none."""
    if request["kind"] == "stablehlo":
        return cache.key_of({"text": request["text"]})
    ran = processes.run(
        [sys.executable, "-m", "tests.tpu.lowered"],
        imported=processes.WITH_JAX,
        env=environment(),
        input=json.dumps({"request": request, "path": sys.path}),
    )
    found: str | None = json.loads(ran.stdout)["digest"] if ran.returncode == 0 else None
    return found


class Recorded:
    """In place of `ask.compile_in_child`: the recorded answer, or else the compiler's."""

    def __init__(self, compile_in_child: Callable[..., Answer]) -> None:
        self.compile = compile_in_child

    def __call__(
        self, request: Mapping[str, Any], accelerator_type: str, timeout: float, known: Known
    ) -> Answer:
        if _request.environment():  # options of XLA and libtpu
            return self.compile(request, accelerator_type, timeout, known)
        digest = digest_of(request)
        if digest is None:
            return self.compile(request, accelerator_type, timeout, known)
        question = {name: value for name, value in request.items() if name != "ask"}
        key = cache.key_of({**question, "lowered": digest})
        answer = read().get(key)
        if answer is None:
            said = self.compile(request, accelerator_type, timeout, known)
            if said and os.environ.get("PYREACTANT_RECORD"):
                _add(key, said)
            return said
        if request.get("ask"):
            known(digest)  # under which the answer is kept
        return answer


def _add(key: str, said: Answer) -> None:
    """Keep an answer of the compiler; one worker alone records."""
    answers = {**read(), key: said}
    file().parent.mkdir(exist_ok=True)
    text = json.dumps(dict(sorted(answers.items()))).replace(f"{REPOSITORY}{os.sep}", "")
    file().write_bytes(gzip.compress(text.encode(), mtime=0))
    read.cache_clear()
