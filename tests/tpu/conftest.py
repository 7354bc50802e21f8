"""What the preflight's tests share: libtpu, and one cache, so that nothing is compiled twice."""

import importlib.util
import os
from pathlib import Path

import pytest

from pyreactant.fit.compiler import ask
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

    monkeypatch.setattr(ask, "compile_in_child", started)
    _any_version(monkeypatch)


@pytest.fixture
def no_libtpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A test whose mistake must be found before libtpu is loaded: loading it is another error."""
    (tmp_path / "libtpu.py").write_text('raise RuntimeError("libtpu was loaded")')
    monkeypatch.syspath_prepend(tmp_path)  # the child has it from here
    _any_version(monkeypatch)


def _any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "package_version", lambda package: "0")
    monkeypatch.setattr(ask, "_wanted_libtpu", lambda: "")
