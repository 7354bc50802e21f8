"""What the guard sees of JAX's compilations."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import compiler

from pyreactant.arrays.runtimes.guard.operation import Operation
from pyreactant.arrays.runtimes.jax import compilations
from pyreactant.process import progress

SHARDED = """module @jit_step {
  func.func public @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    return %a : tensor<8xf32>
  }
}
"""


def other(program: Any, backend: Any) -> Any:
    return program


def devices(*processes: int) -> np.ndarray:
    return np.array([SimpleNamespace(process_index=index) for index in processes])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    operations: list[Operation] = []
    monkeypatch.setattr(progress, "compiled", operations.append)
    monkeypatch.setattr(compilations, "_compile", lambda backend, computation, devices: computation)
    monkeypatch.setattr(compiler, "compile_or_get_cached", None)
    compilations.install()
    return operations


def test_this_version_of_jax_is_known() -> None:
    assert compilations.is_known(), jax.__version__


def test_programs_of_several_processes(seen: list[Operation]) -> None:
    for module in (SHARDED, SHARDED.replace("step", "other"), SHARDED.replace("8", "4")):
        assert compiler.compile_or_get_cached("cpu", module, devices(0, 1)) == module
    assert [operation.what for operation in seen] == ["jit_step", "jit_other", "jit_step"]
    assert seen[0].digest == seen[1].digest != seen[2].digest
    assert seen[0].line.startswith("test_compilations.py:")


@pytest.mark.parametrize(
    ("module", "processes"),
    [(SHARDED, (1, 1)), (SHARDED.replace('{"x"}', "{}"), (0, 1))],
    ids=["one process", "nothing sharded"],
)
def test_programs_of_one_process(
    seen: list[Operation], module: str, processes: tuple[int, ...]
) -> None:
    assert compiler.compile_or_get_cached("cpu", module, devices(*processes)) == module
    assert seen == []


@pytest.mark.parametrize("function", [other, None])
def test_other_version_of_jax(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    monkeypatch.setattr(compilations, "_compile", function)
    monkeypatch.setattr(compiler, "compile_or_get_cached", function)
    assert not compilations.is_known()
    compilations.install()
    assert compiler.compile_or_get_cached is function
