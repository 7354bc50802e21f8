"""Recorded answers are libtpu's own, and are of use only as long as nothing has changed."""

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.sharding import Aval
from pyreactant.base.slices.generations import GENERATIONS
from pyreactant.base.slices.topology import topologies
from pyreactant.fit.compiler import ask
from pyreactant.fit.preflight.preflight import preflight
from tests.tpu import recorded
from tests.tpu.recorded import Recorded

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("generation", GENERATIONS)
def test_libtpu_still_says_the_same(
    generation: str, real_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One real compilation for each generation, of a product over several devices."""
    several = [t for t in topologies() if t.generation == generation and t.devices > 1]
    kind = min(several, key=lambda found: found.devices).name
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")  # nothing is read from there
    real = preflight("matmul", topology=kind, size=256, dtype="bfloat16", cache=False)
    assert real.fits
    assert real.collectives
    if not recorded.read():
        return  # nothing is recorded for these versions, so libtpu would compile the same again
    monkeypatch.setattr(ask, "compile_in_child", Recorded(ask.compile_in_child))
    again = preflight("matmul", topology=kind, size=256, dtype="bfloat16", cache=False)
    assert again.collectives == real.collectives
    assert again.bytes_per_device == real.bytes_per_device
    assert again.seconds == real.seconds
    assert _without_places(again.hlo) == _without_places(real.hlo)


def _without_places(hlo: str) -> str:
    """HLO without the tables of files and lines, which are of this copy of the repository."""
    return re.sub(r"^\d+ .*\n|, metadata=\{[^}]*\}", "", hlo, flags=re.MULTILINE)


class Compiler:
    """Answers every request, and counts them."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []

    def __call__(self, request: Mapping[str, Any], *rest: object) -> dict[str, Any]:
        self.requests.append(request)
        return {
            "failed": "compile",
            "own_error": True,
            "where": "",
            "message": "this is no compiler",
        }


def test_what_has_changed_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's module, the versions of libtpu and jax, and options of XLA's."""
    monkeypatch.setattr(recorded, "FOLDER", tmp_path / "recorded")
    recorded.read.cache_clear()
    monkeypatch.setenv("PYREACTANT_RECORD", "1")
    monkeypatch.syspath_prepend(tmp_path)
    compiler = Compiler()
    monkeypatch.setattr(ask, "compile_in_child", Recorded(compiler))
    x = Aval((64, 64), np.dtype("float32"), pr.NamedSharding(pr.Mesh((2, 2), ("x", "y")), ("x",)))
    program = tmp_path / "changing_program.py"

    def compilations() -> int:
        before = len(compiler.requests)
        with pytest.raises(pr.InvalidArgumentError, match="this is no compiler"):
            preflight("changing_program:f", x, topology="v6e-4", cache=False)
        return len(compiler.requests) - before

    program.write_text("def f(x):\n    return x + x\n")
    assert [compilations(), compilations()] == [1, 0]
    program.write_text("def f(x):\n    return x * x + x\n")
    assert [compilations(), compilations()] == [1, 0]
    with monkeypatch.context() as patch:
        patch.setenv("LIBTPU_INIT_ARGS", "--xla_a=1")
        assert [compilations(), compilations()] == [1, 1]
    real = importlib.metadata.version
    for package in ("libtpu", "jax"):
        with monkeypatch.context() as patch:
            # Only recorded.py asks for versions in this way.
            patch.setattr(
                recorded, "version", lambda name, p=package: real(name) + (name == p) * ".9"
            )
            recorded.read.cache_clear()
            assert [compilations(), compilations()] == [1, 0]
        recorded.read.cache_clear()
    assert compilations() == 0
    recorded.read.cache_clear()
