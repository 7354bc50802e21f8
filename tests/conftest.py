"""One runtime per process: --backend says which one this pytest process runs."""

import atexit
import faulthandler
import gc
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy; two workers share the machine
# Hundreds of processes import pyreactant, which each would compile anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import hypothesis
import pytest

import pyreactant as pr
from tests import harness, processes, quick, slow
from tests.julia import place
from tests.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - a hook

# What tests and their processes record about runs and jobs is not the user's.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="pyreactant-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
processes.share()  # one set of templates for all workers
processes.take_longer_turns()
os.environ[quick.VARIABLE] = "1"  # what the processes of tests start is forked, too
NEW_PROCESS = processes.Popen.__base__
subprocess.Popen = quick.Popen  # type: ignore[assignment, misc]
quick.forked = False  # a worker is a fork, but what it starts may outlive it

# Examples may take long on a busy machine, which says nothing about the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

MARKERS = {
    "anew": "is about how a process starts: what its processes start is not forked",
    "only(name)": "what only one runtime does; skipped with another --backend",
    "julia": "needs a real Julia: PYREACTANT_TEST_JULIA and PYREACTANT_TEST_JULIA_PROJECT",
    "reactant": "needs real Reactant: PYREACTANT_TEST_REACTANT=1 after pyreactant setup, or "
    "--reactant real-sources",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        slow.OPTION,
        action="store_true",
        help="also run the tests that tests/slow.py lists",
    )
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
        processes.always_anew = True  # Julia wants the process's threads and signals to itself
        # Julia uses SIGSEGV in ordinary life, of which Python's handler makes a crash.
        faulthandler.disable()
        if place.absent() is None:
            os.environ.update(place.settings())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests are made, and stay: looking for garbage among them takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.set_threshold(50_000, 20, 50)  # as in forks: JAX's caches grow, and stay
        gc.freeze()
        atexit.register(gc.freeze)  # Python's end then looks at no object


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile tests that are new once, before each worker compiles them all."""
    if not getattr(session.config.option, "numprocesses", None):
        return
    suffix = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    asked = [Path(word.partition("::")[0]) for word in session.config.args]
    files = [
        file for path in asked for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    ]
    if not all((file.parent / "__pycache__" / f"{file.stem}.{suffix}").exists() for file in files):
        argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", *session.config.args]
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)  # the workers tell what fails


def pytest_keyboard_interrupt() -> None:
    """Tell the workers of Ctrl-C, which a terminal sends to its own session only."""
    for worker in quick.workers:
        worker.send_signal(signal.SIGINT)


IMPORTS_JAX = "test_as_jax.py"
"""Calls JAX itself: Julia refuses to start in a process that has imported jax."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Under Julia, leave out what cannot be imported beside it."""
    return True if harness.backend == "reactant" and collection_path.name == IMPORTS_JAX else None


# The longest begin first; the last of these compute, the others wait most of their time.
LONG = (
    "tests/ray/test_jobs_on_ray.py",
    "tests/ray/",  # JaxTrainer leaves an actor that is busy as long as the cluster runs
    "tests/gcloud/test_run.py",
    "tests/slurm/test_main.py",
    "tests/slurm/test_steps.py",
    "tests/setup/test_kill.py",
    "tests/slurm/test_cluster.py",
    "tests/jobs/test_laws.py",
    "tests/jobs/test_tpu.py",
    "tests/tpu/test_recorded.py",
    "tests/crosscheck/test_mutants.py",
    "tests/programs/test_bodies.py",
)

# Most of their time is waiting, so the others run meanwhile.
WAITING = (
    "tests/gcloud/",
    "tests/examples/",
    "tests/unit/test_reactant_meeting.py",
    "tests/multiprocess/",
    "tests/unit/test_scheduling.py",
    "tests/unit/test_template.py",
    "tests/unit/test_strangers.py",
    "tests/unit/test_reactant_guard.py",
    "tests/unit/test_reactant_start.py",
    "tests/launch/",
)

# Their tests share nothing that is expensive, so each may run on any worker.
SPREAD = (
    "tests/cli/",
    "tests/crosscheck/test_cli_crosscheck.py",
    "tests/doctor/test_command.py",
    "tests/doctor/test_deep.py",
    "tests/gcloud/test_faithful.py",
    "tests/gcloud/test_goldens.py",
    "tests/jobs/test_commands.py",
    "tests/launch/",
    "tests/multiprocess/",
    "tests/setup/",
    "tests/test_readme.py",
    "tests/unit/test_reactant_meeting.py",
)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is left out."""
    if config.getoption(slow.OPTION):
        return None
    return f"without the slow tests, which tests/slow.py lists: {slow.OPTION} runs them, too"


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests. With several workers: a file's tests on one, the longest first.

    The tests of `SPREAD` run on any worker. All of tests/ray/ is one group, because it shares a
    cluster. Tests that wait are spread evenly over those that compute.
    """
    slow.leave_out(config, items)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        path = item.nodeid.partition("::")[0]
        if not path.startswith(SPREAD):
            group = "tests/ray" if path.startswith("tests/ray/") else path
            item.add_marker(pytest.mark.xdist_group(group))

    paths = list(dict.fromkeys(item.nodeid.partition("::")[0] for item in items))
    folders = [[path for path in paths if path.startswith(start)] for start in WAITING]
    waiting = [path for row in itertools.zip_longest(*folders) for path in row if path]
    computing = [path for path in paths if not path.startswith(WAITING)]
    place = {path: n / len(computing) for n, path in enumerate(computing)}
    # At the very end nothing else would run while they wait.
    place |= {path: 0.8 * n / len(waiting) for n, path in enumerate(waiting)}
    for start in reversed(LONG):
        first = min(place.values(), default=0) - 1
        place |= {path: first for path in paths if path.startswith(start)}
    items.sort(key=lambda item: place[item.nodeid.partition("::")[0]])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show a test by the name under which it can be run again: xdist appends its group."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # xdist looks tests up by their names there
    report.nodeid = re.sub(r"@tests/[\w/]+(\.py)?$", "", report.nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Check that xdist has read the groups; let Julia compile before the time of a test runs."""
    if "PYTEST_XDIST_WORKER" in os.environ and session.config.getoption("loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(
                    "this pytest loses the groups of pytest-xdist, so each worker would repeat "
                    "the shared runs: install the versions that pyproject.toml names"
                )
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


@pytest.fixture(autouse=True)
def _anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test with the marker and its processes start are new Pythons."""
    if request.node.get_closest_marker("anew"):
        monkeypatch.delenv(quick.VARIABLE)
        monkeypatch.setattr(subprocess, "Popen", NEW_PROCESS)


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
