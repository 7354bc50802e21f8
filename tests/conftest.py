"""One runtime per process: --backend says which one this pytest process runs."""

import atexit
import faulthandler
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy; two workers share the machine
# Hundreds of processes import pyreactant, and each would compile it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import hypothesis
import pytest

import pyreactant as pr
from tests import harness
from tests.julia import place

# What tests and their processes record about runs and jobs is not the user's.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="pyreactant-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# A shell's & ignores SIGINT and SIGQUIT, nohup SIGHUP, and what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)

# Examples may take long on a busy machine, which says nothing about the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

MARKERS = {
    "only(name)": "what only one runtime does; skipped with another --backend",
    "julia": "needs a real Julia: PYREACTANT_TEST_JULIA and PYREACTANT_TEST_JULIA_PROJECT",
    "slow": "takes long; `make test` leaves it out, `make test-all` and CI run it",
    "reactant": "needs real Reactant: PYREACTANT_TEST_REACTANT=1 after pyreactant setup, or "
    "--reactant real-sources",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        default="jax",
        choices=("jax", "reactant"),
        help="runtime under test in this process; reactant is Reactant's stand-in where "
        "PYREACTANT_TEST_JULIA is set, else the real one",
    )
    parser.addoption(
        "--reactant",
        default="stand-in",
        choices=("stand-in", "real-sources"),
        help="with --backend reactant and PYREACTANT_TEST_JULIA: the stand-in for Reactant's API, "
        "or Reactant's own sources over the library PYREACTANT_TEST_XLA_LIBRARY",
    )
    parser.addoption(
        "--plugin",
        metavar="FILE",
        help="a PJRT plugin for CPUs (.so): tests/backend runs on its XLA in place of jaxlib's",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    harness.backend = config.getoption("--backend")
    place.real_sources = config.getoption("--reactant") == "real-sources"
    if place.real_sources and (why := place.absent()):
        raise pytest.UsageError(f"--reactant real-sources: {why}")
    if harness.backend == "reactant":
        harness.patience = 10 if place.real_sources else 2
        # Julia uses SIGSEGV in ordinary life, of which Python's handler makes a crash.
        faulthandler.disable()
        if place.absent() is None:
            os.environ.update(place.settings())


IMPORTS_JAX = ("test_as_jax.py", "test_networks.py")
"""They call JAX itself: Julia refuses to start in a process that has imported jax."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Under Julia, leave out what cannot be imported beside it."""
    return True if harness.backend == "reactant" and collection_path.name in IMPORTS_JAX else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let Julia compile before the time of a test runs."""
    asked = any(item.get_closest_marker("julia") for item in session.items)
    asked |= harness.backend == "reactant" and bool(session.items)
    if asked and not session.config.option.collectonly and place.absent() is None:
        place.compile_packages()


def pytest_runtest_setup(item: pytest.Item) -> None:
    only = item.get_closest_marker("only")
    if only and harness.backend not in only.args:
        pytest.skip(f"it is about {only.args[0]}; --backend is {harness.backend}")
    if item.get_closest_marker("julia") and (why := place.absent()):
        pytest.skip(why)
    real = place.real_sources or os.environ.get("PYREACTANT_TEST_REACTANT")
    if item.get_closest_marker("reactant") and not real:
        pytest.skip("real Reactant is not said to be here (PYREACTANT_TEST_REACTANT=1)")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """JAX in this process is started by `backend` alone: every later test needs its devices."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    if harness.backend == "jax" and bridge is not None and bridge._backends:
        found = bridge.device_count()
        assert found == 8, f"this process has {found} devices: the test must use `backend`"


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The runtime, started with eight CPU devices."""
    name: str = request.config.getoption("--backend")
    plugin: str | None = request.config.getoption("--plugin")
    if plugin is not None:
        import jax

        os.environ.update(harness.on_plugin(plugin, tmp_path_factory.mktemp("plugin"), devices=8))
        jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
        pr.initialize(name)
        return name
    with pytest.MonkeyPatch.context() as patch:
        # XLA reads this once, when it starts; processes that tests start have nothing of it.
        patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {harness.QUICK_COMPILING}")
        pr.initialize(name, platform="cpu", num_cpu_devices=8)
    return name


@pytest.fixture
def python_callbacks(request: pytest.FixtureRequest) -> None:
    """A plugin's XLA has no handler for the Python callbacks of jaxlib."""
    if request.config.getoption("--plugin") is not None:
        pytest.skip("Python callbacks are jaxlib's; --plugin runs on another XLA")


@pytest.fixture(scope="module")
def named_julia() -> Iterator[None]:
    """Processes that are started find the Julia of the tests, and the stand-in for Reactant."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.stand_in().items():
            patch.setenv(name, value)
        yield
