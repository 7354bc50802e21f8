"""JAX's one function that compiles: what the guard sees of it, what is counted and kept."""

import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import compiler

from pyreactant.arrays.runtimes.guard.operation import Operation
from pyreactant.arrays.runtimes.jax import compilations as of_jax
from pyreactant.process import compilations, progress
from pyreactant.process.events import Compiled

SHARDED = """module @jit_step {
  func.func public @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    return %a : tensor<8xf32>
  }
}
"""


def other(program: Any, backend: Any) -> Any:
    return program


def devices(*processes: int) -> np.ndarray:
    return np.array([SimpleNamespace(process_index=i, device_kind="cpu") for i in processes])


class Program:
    """A compiled program; those without text cannot be serialized."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def serialize(self) -> bytes:
        if self.text is None:
            raise NotImplementedError("this plugin cannot")
        return self.text.encode()


class Backend:
    platform = "cpu"

    def deserialize_executable(self, text: bytes, *_: Any) -> Program:
        if text == b"of another build":
            raise ValueError("wrong version of XLA")
        return Program(text.decode())


class FakeCompiler(ModuleType):
    """JAX's module, as far as it is used."""

    def __init__(self) -> None:
        super().__init__("compiler")
        self.compiled: list[str] = []
        self.listeners: list[Any] = []
        self.of_jax = False
        self.config = SimpleNamespace(
            enable_compilation_cache=SimpleNamespace(value=True),
            enable_pgle=SimpleNamespace(value=False),
        )
        self.lib = SimpleNamespace(version_str="1.2.3")
        self.monitoring = SimpleNamespace(register_event_listener=self.listeners.append)
        self.compilation_cache = SimpleNamespace(get_cache_key=self.key)

        def compile_or_get_cached(
            backend: Any,
            computation: Any,
            devices: Any,
            compile_options: Any,
            host_callbacks: Any,
            executable_devices: Any,
            pgle_profiler: Any = None,
        ) -> Any:
            self.compiled.append(computation)
            if self.of_jax:
                self.listeners[0]("/jax/compilation_cache/cache_hits")
            return Program(None if computation == "unserializable" else computation)

        self.compile_or_get_cached: Any = compile_or_get_cached

    @staticmethod
    def key(computation: Any, *_: Any) -> str:
        if computation == "without a key":
            raise RuntimeError("no key")
        return f"key of {computation}"

    def compile(self, text: str, *processes: int, callbacks: Any = ()) -> str | None:
        on = devices(*(processes or (0,)))
        program = self.compile_or_get_cached(Backend(), text, on, None, callbacks, None)
        return program.text


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilations, "counts", Compiled(0, 0.0, 0, 0.0))
    monkeypatch.setattr(compilations, "before", None)
    monkeypatch.setattr(compilations, "_root", None)
    monkeypatch.setattr(compilations, "_caches", {})
    monkeypatch.setattr(compilations, "_thread", threading.local())
    monkeypatch.delenv("PYREACTANT_COMPILE_CACHE", raising=False)


@pytest.fixture
def fake() -> FakeCompiler:
    return FakeCompiler()


def start(fake: FakeCompiler, folder: Path | None = None) -> None:
    """As a new process: nothing is counted, and the function is wrapped."""
    compilations.counts = Compiled(0, 0.0, 0, 0.0)
    compilations._caches.clear()
    if folder is not None:
        compilations.use_cache(folder)
    compilations.install(fake)


def count() -> tuple[int, int]:
    return compilations.counts.compiled, compilations.counts.loaded


# What the guard sees.


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, fake: FakeCompiler) -> list[Operation]:
    operations: list[Operation] = []
    monkeypatch.setattr(progress, "compiled", operations.append)
    monkeypatch.setattr(of_jax, "compiler", fake)
    of_jax.install(None, several=True)
    return operations


def test_this_version_of_jax_is_known() -> None:
    assert of_jax.is_known(), jax.__version__
    assert compilations.is_known(compiler)
    assert callable(compiler.monitoring.register_event_listener)
    assert isinstance(compiler.lib.version_str, str)
    assert compiler.config.enable_compilation_cache.value in (True, False)
    assert compiler.config.enable_pgle.value in (True, False)


def test_programs_of_several_processes(fake: FakeCompiler, seen: list[Operation]) -> None:
    for module in (SHARDED, SHARDED.replace("step", "other"), SHARDED.replace("8", "4")):
        assert fake.compile(module, 0, 1) == module
    assert [operation.what for operation in seen] == ["jit_step", "jit_other", "jit_step"]
    assert seen[0].digest == seen[1].digest != seen[2].digest
    assert seen[0].line.startswith("test_compilations.py:")


@pytest.mark.parametrize(
    ("module", "processes"),
    [(SHARDED, (1, 1)), (SHARDED.replace('{"x"}', "{}"), (0, 1))],
    ids=["one process", "nothing sharded"],
)
def test_programs_of_one_process(
    fake: FakeCompiler, seen: list[Operation], module: str, processes: tuple[int, ...]
) -> None:
    assert fake.compile(module, *processes) == module
    assert seen == []


@pytest.mark.parametrize("function", [other, None, 3])
def test_other_version_of_jax(
    fake: FakeCompiler, tmp_path: Path, capfd: pytest.CaptureFixture[str], function: Any
) -> None:
    fake.compile_or_get_cached = function
    assert not compilations.is_known(fake)
    compilations.install(fake)
    assert fake.compile_or_get_cached is function
    assert capfd.readouterr().err == ""
    start(fake, tmp_path)
    why = "off: this version of JAX compiles in another function"
    assert fake.compile_or_get_cached is function
    assert compilations.counts.cache == why
    assert capfd.readouterr().err == f"pyreactant: the compile cache is {why}\n"


# What is counted.


def test_compilations_are_counted_once(fake: FakeCompiler) -> None:
    start(fake)
    wrapped = fake.compile_or_get_cached
    compilations.install(fake)
    assert fake.compile_or_get_cached is wrapped
    fake.compile("a")
    assert count() == (1, 0)
    assert compilations.counts.compile_seconds > 0 == compilations.counts.load_seconds
    assert compilations.counts.cache == ""
    fake.of_jax = True  # its own persistent cache has it
    fake.compile("b")
    assert count() == (1, 1)


# What is kept.


def test_the_next_start_compiles_nothing(fake: FakeCompiler, tmp_path: Path) -> None:
    start(fake, tmp_path / "cache")
    assert [fake.compile(text) for text in "ab"] == ["a", "b"]
    assert count() == (2, 0)
    start(fake)
    assert [fake.compile(text) for text in "ba"] == ["b", "a"]
    assert count() == (0, 2)
    assert fake.compiled == ["a", "b"]
    assert compilations.counts.cache.startswith(f"{tmp_path}/cache/jax-1.2.3-cpu-")


def test_the_variable_names_the_folder(
    fake: FakeCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYREACTANT_COMPILE_CACHE", "from the variable")
    start(fake)
    fake.compile("a")
    assert [path.name for path in tmp_path.iterdir()] == ["from the variable"]
    start(fake, tmp_path / "from the argument")
    fake.compile("a")
    assert (tmp_path / "from the argument").is_dir()


def test_programs_that_are_not_kept(fake: FakeCompiler, tmp_path: Path) -> None:
    """Those with callbacks, and all where the program switches caching off."""
    start(fake, tmp_path)
    for _ in range(2):
        fake.compile("a", callbacks=[print])
    fake.config.enable_pgle.value = True
    fake.compile("b")
    fake.config.enable_pgle.value, fake.config.enable_compilation_cache.value = False, False
    fake.compile("c")
    assert count() == (4, 0)
    assert [*tmp_path.iterdir()] == []


def test_a_program_of_another_build_is_dropped(
    fake: FakeCompiler, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start(fake, tmp_path)
    fake.compile("of another build")
    start(fake)
    assert fake.compile("of another build") == "of another build"
    assert count() == (1, 0)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("pyreactant: an entry of the compile cache is dropped, and its program")
    assert line.endswith("(ValueError: wrong version of XLA)")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("without a key", "off: JAX gives no key for a program (RuntimeError: no key)"),
        (
            "unserializable",
            "off: a program cannot be kept (NotImplementedError: this plugin cannot)",
        ),
    ],
)
def test_a_cache_that_cannot_be_used_is_off(
    fake: FakeCompiler, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    start(fake, tmp_path)
    fake.compile(text)
    fake.compile("a")
    assert count() == (2, 0)
    assert compilations.counts.cache == why
    assert capfd.readouterr().err == f"pyreactant: the compile cache is {why}\n"


def test_a_folder_that_cannot_be_made(
    fake: FakeCompiler, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    start(fake, tmp_path / "file")
    assert [fake.compile(text) for text in "ab"] == ["a", "b"]
    assert compilations.counts.cache.startswith(f"off: {tmp_path}/file/jax-1.2.3-cpu-")
    assert len(capfd.readouterr().err.splitlines()) == 1
