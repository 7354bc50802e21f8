"""What the preflight's tests share: libtpu, and one cache, so that nothing is compiled twice."""

import importlib.util
import os
from pathlib import Path

import pytest

from pyreactant.tpu._compiler import ask
from tests.harness import require
from tests.tpu.recorded import Recorded


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the whole session, and for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "preflight-cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def real_compiler(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """libtpu is here, and answers are kept for the session's other tests."""
    require(importlib.util.find_spec("libtpu"), "libtpu, which compiles for TPUs without one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    return shared_cache


@pytest.fixture
def compiler(real_compiler: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, but what libtpu answered to the same module earlier is not asked again."""
    monkeypatch.setattr(ask, "compile_in_child", Recorded(ask.compile_in_child))
    return real_compiler


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test whose mistake must be found before a compiler is started."""

    def started(*arguments: object, **options: object) -> None:
        pytest.fail("a compiler was started")

    monkeypatch.setattr("pyreactant.tpu._compiler.ask.compile_in_child", started)
    monkeypatch.setattr("pyreactant.tpu._compiler.ask._version", lambda package: "0")
    monkeypatch.setattr("pyreactant.tpu._compiler.ask._wanted_libtpu", lambda: None)
