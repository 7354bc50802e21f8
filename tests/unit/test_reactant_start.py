"""Reactant's start, without Julia: its failures, and how it prepares the process."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.backend import StartOptions
from pyreactant.arrays.dtypes import EXTENDED, NAMES, as_dtype
from pyreactant.arrays.runtimes.reactant.backend import as_bits
from pyreactant.arrays.runtimes.reactant.lower import check_static
from pyreactant.arrays.runtimes.reactant.setup import (
    check_libtpu,
    check_started,
    local_gpus,
    make_devices,
)
from pyreactant.base import facts
from pyreactant.julia.place import LIBRARY, REACTANT, describe_libtpu, is_pinned
from pyreactant.process.group import ProcessGroup
from tests.harness import REPOSITORY, environment

# A juliacall that prints its settings instead of starting Julia.
JULIACALL = """
import os, sys
for name, value in sorted(os.environ.items()):
    if name.startswith(("PYTHON_JULIACALL", "JULIA_")) or "proxy" in name.lower():
        print(name, value)
print("blocked", [name for name, module in sys.modules.items() if module is None])
raise Exception("PythonCall.jl did not start properly")
"""
NEVER_SET_UP = "from pyreactant.julia import place as j; j.pointers = lambda: ()\n"
START = "import pyreactant as p; p.initialize('reactant')"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a juliacall, and a Julia whose path has blanks and non-ASCII letters."""
    folder = tmp_path / "with a space, ü"
    (folder / "project").mkdir(parents=True)
    (folder / "juliacall.py").write_text(JULIACALL)
    _julia(folder, "julia version 1.12.6")
    return folder


def _julia(folder: Path, says: str) -> None:
    julia = folder / "julia"
    julia.write_text(f"#!/bin/sh\necho '{says}'\n")
    julia.chmod(0o755)


def _run(folder: Path, code: str = START, **settings: str) -> subprocess.CompletedProcess[str]:
    place = {
        "PYTHON_JULIACALL_EXE": str(folder / "julia"),
        "PYTHON_JULIACALL_PROJECT": str(folder / "project"),
    }
    variables = environment(**place | settings)
    variables["PYTHONPATH"] = f"{folder}{os.pathsep}{variables['PYTHONPATH']}"
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=60)


def _last(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 1, ran.stderr
    return ran.stderr.splitlines()[-1]


def test_environment_of_julia(folder: Path) -> None:
    ran = _run(folder, http_proxy="http://p:1", NO_PROXY="x", JULIA_NUM_THREADS="4")
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert said["PYTHON_JULIACALL_EXE"] == str(folder / "julia")
    assert said["PYTHON_JULIACALL_PROJECT"] == str(folder / "project")
    assert said["PYTHON_JULIACALL_THREADS"] == "1"
    assert said["PYTHON_JULIACALL_HANDLE_SIGNALS"] == "no"
    assert said["PYTHON_JULIACALL_STARTUP_FILE"] == "no"
    assert said["JULIA_PKG_OFFLINE"] == "true"
    assert said["JULIA_CONDAPKG_BACKEND"] == "Null"
    assert not [name for name in said if "proxy" in name.lower()]
    assert {"jax", "jaxlib", "tensorflow"} <= set(eval(said["blocked"]))
    assert "Julia did not start" in _last(ran)
    assert "PythonCall.jl did not start properly; run: pyreactant setup" in _last(ran)


def test_threads_that_are_asked_for_need_julias_signals(folder: Path) -> None:
    ran = _run(folder, PYTHON_JULIACALL_THREADS="2")
    assert "PYTHON_JULIACALL_THREADS 2" in ran.stdout
    assert "PYTHON_JULIACALL_HANDLE_SIGNALS yes" in ran.stdout


def test_depot_of_the_setup_is_used(folder: Path) -> None:
    code = (
        "from pathlib import Path; from pyreactant.arrays.runtimes.reactant import julia as j\n"
        "j.find_place = lambda: j.Place(Path('julia').absolute(), Path('.'), 's', 'a depot')\n"
    )
    ran = _run(folder, f"import os; os.chdir({str(folder)!r}); {code}{START}")
    assert "JULIA_DEPOT_PATH a depot" in ran.stdout


@pytest.mark.parametrize(
    ("code", "settings", "message"),
    [
        (
            f"import jax; {START}",
            {},
            "StateError: Reactant cannot run in a process that has imported jax and jaxlib: two "
            "copies of XLA in one process crash; start it in another process, in which pyreactant "
            "is imported first (pyreactant run --backend reactant -- ...)",
        ),
        (
            START,
            {"LD_PRELOAD": "libm.so.6"},
            "RequirementError: Julia must be started without LD_PRELOAD, which is 'libm.so.6' "
            "and replaces its functions; run it again as: LD_PRELOAD= ",
        ),
        (
            f"import threading as t; h = t.Thread(target=lambda: exec({START!r})); h.start()\n"
            "h.join(); raise SystemExit(1)",
            {},
            "StateError: Julia must be called from the main thread, this is 'Thread-1",
        ),
        (
            "import pyreactant as p; p.initialize('reactant', num_cpu_devices=4)",
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"},
            "StateError: num_cpu_devices=4 was requested, but XLA_FLAGS sets "
            "xla_force_host_platform_device_count too; keep one of them",
        ),
        (
            f"{NEVER_SET_UP}{START}",
            {"PYTHON_JULIACALL_EXE": "", "PYTHON_JULIACALL_PROJECT": ""},
            "RequirementError: Julia must be set up for ",
        ),
        (
            START,
            {"PYTHON_JULIACALL_PROJECT": ""},
            "InvalidArgumentError: PYTHON_JULIACALL_EXE and PYTHON_JULIACALL_PROJECT must be set",
        ),
        (
            f"import sys; sys.modules['juliacall'] = None; {START}",
            {},
            "install it with: python -m pip install 'pyreactant[reactant]'",
        ),
    ],
)
def test_starts_that_fail(folder: Path, code: str, settings: dict[str, str], message: str) -> None:
    ran = _run(folder, code, **settings)
    assert message in _last(ran) or message in ran.stderr, ran.stderr


def test_line_to_run_again_is_whole(folder: Path) -> None:
    """A shell accepts the line; the program's arguments have the quotes that they need."""
    script = folder / "my script.py"
    script.write_text(START)
    variables = environment(LD_PRELOAD="libm.so.6")
    argv = [sys.executable, "-X", "utf8", str(script), "it's"]
    ran = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=60)
    line = ran.stderr.splitlines()[-1].partition("run it again as: ")[2]
    script.write_text("import os, sys; print(repr(os.environ['LD_PRELOAD']), sys.argv[1:])")
    again = subprocess.run(
        ["sh", "-c", line], env=variables, capture_output=True, text=True, timeout=60
    )
    assert again.stdout == "'' [\"it's\"]\n"


@pytest.mark.parametrize("version", ["1.9.4", "1.6.7", "0.7.0"])
def test_julia_that_is_too_old(folder: Path, version: str) -> None:
    _julia(folder, f"julia version {version}")
    said = _last(_run(folder))
    assert f"RequirementError: Julia must be 1.10.3 or newer, got {version}: " in said
    assert said.endswith("; run: pyreactant setup")


@pytest.mark.parametrize("says", ["", "python 3.12.1"])
def test_what_is_no_julia(folder: Path, says: str) -> None:
    _julia(folder, says)
    said = _last(_run(folder))
    assert f"must be Julia, but --version gives {says + chr(10)!r}; run: pyreactant setup" in said


def test_a_depot_that_cannot_be_written(folder: Path) -> None:
    """Julia then says which of its folders it could not make, and nothing of what to do."""
    said = _last(_run(folder, JULIA_DEPOT_PATH="/proc/none/depot:/elsewhere"))
    assert "properly; Julia compiles into /proc/none/depot, which cannot be written (" in said
    assert "): set JULIA_DEPOT_PATH to a folder that can, or compile on a machine where" in said


# A juliacall whose Julia cannot load what it was asked for; `located` is where Reactant is.
NOT_LOADED = """
class JuliaError(Exception):
    pass

class Base:
    LOAD_PATH = Symbol = identify_package = push_b = lambda *parts: "named"
    located = {located!r}

    def require(*parts):
        raise JuliaError("InitError: could not load library libReactantExtra.so")

    def locate_package(package):
        return Base.located

Main = None
"""


@pytest.mark.parametrize(
    ("located", "message"),
    [
        (None, "must have the package Reactant; run: pyreactant setup"),
        ("/there", "); run: pyreactant setup. Julia's error: InitError: could not load library"),
    ],
)
def test_what_cannot_be_loaded(folder: Path, located: str | None, message: str) -> None:
    (folder / "juliacall.py").write_text(NOT_LOADED.format(located=located))
    assert message in _last(_run(folder))


# A juliacall whose Julia has another version of Reactant.
OTHER_VERSION = """
from types import SimpleNamespace as _Names

class JuliaError(Exception):
    pass

class Base:
    LOAD_PATH = Symbol = None
    push_b = Symbol = lambda *parts: None
    require = lambda *parts: _Names(
        load=lambda: _Names(versions=lambda: [("Reactant", "0.2.281")], runtime=lambda: "PJRT")
    )

Main = None
"""


def test_another_version_of_reactant(folder: Path) -> None:
    """Each process refuses it unless the setup of the project accepted any version."""
    (folder / "juliacall.py").write_text(OTHER_VERSION)
    said = _last(_run(folder))
    assert said.startswith(
        "pyreactant.base.errors.RequirementError: Reactant must be 0.2.280, because pyreactant "
        "uses "
    )
    assert f"{folder / 'project'} has 0.2.281; run: pyreactant setup (with network), or" in said
    record = folder / "project" / "pyreactant" / "setup.json"
    record.parent.mkdir()
    record.write_text('{"any_version": true}')
    assert "this process loaded Reactant with PJRT" in _last(_run(folder))
    record.write_text("[]")
    assert "setup.json, which `pyreactant setup` wrote, is damaged" in _last(_run(folder))


def test_the_version_is_the_same_everywhere() -> None:
    requirements = json.loads((REPOSITORY / "pyreactant" / "juliapkg.json").read_text())
    assert requirements["packages"]["Reactant"]["version"] == f"={REACTANT}"
    julia = tomllib.loads((REPOSITORY / "julia" / "Project.toml").read_text())
    assert julia["compat"]["Reactant"] == f"={REACTANT}"
    stand_in = REPOSITORY / "julia" / "test" / "Reactant" / "Project.toml"
    version = tomllib.loads(stand_in.read_text())["version"]
    assert version == f"{REACTANT}+standin"
    assert is_pinned(version)
    assert not is_pinned(f"{REACTANT}1")


def test_libtpu_is_there_before_the_devices_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(LIBRARY, raising=False)
    monkeypatch.delenv("REACTANT_FORCE_TPU_INIT", raising=False)
    check_libtpu(StartOptions(platform="tpu"), None)  # no TPU: Reactant says so
    monkeypatch.setenv("REACTANT_FORCE_TPU_INIT", "1")
    check_libtpu(StartOptions(platform="cpu"), None)
    for platform in (None, "tpu"):
        with pytest.raises(pr.RequirementError, match="run: pyreactant setup --tpu"):
            check_libtpu(StartOptions(platform=platform), None)
    package = tmp_path / "libtpu"
    package.mkdir()
    library = package / "libtpu.so"
    with pytest.raises(pr.RequirementError, match=f"libtpu must be at {library}"):
        check_libtpu(StartOptions(), str(library))
    library.touch()
    check_libtpu(StartOptions(), str(library))
    assert describe_libtpu({}) == "0.0.45.dev20260728 (downloaded by Reactant)"
    assert describe_libtpu({LIBRARY: str(library)}) == f"unknown ({LIBRARY}={library})"
    metadata = tmp_path / "libtpu-0.0.45.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: libtpu\nVersion: 0.0.45\n")
    assert describe_libtpu({LIBRARY: str(library)}) == (
        "0.0.45 (PyPI; Reactant 0.2.280 names the build 0.0.45.dev20260728)"
    )


def test_stack_overflow_names_the_program() -> None:
    """Julia's handlers are off, so that only Python can say what was running."""
    code = (
        "import ctypes, faulthandler, os\n"
        "from pyreactant.arrays.runtimes.reactant.julia import call_program\n"
        "os.environ['PYTHON_JULIACALL_HANDLE_SIGNALS'] = 'no'\n"
        "print(call_program('p', sum, [1, 2]), faulthandler.is_enabled(), flush=True)\n"
        "call_program('endless', ctypes.string_at, 0)\n"
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.stdout == "3 False\n"
    assert ran.returncode == -signal.SIGSEGV
    assert "Julia traces program 'endless': does its function call itself without" in ran.stderr


def test_usable_backends(folder: Path) -> None:
    """Usable backends are listed without starting them."""
    code = (
        "from pyreactant.check.request import choose_backends\nprint(*choose_backends('auto')[0])"
    )
    loaded = "import sys; print('jax' in sys.modules, 'juliacall' in sys.modules)"
    assert _run(folder, f"{code}\n{loaded}").stdout == "jax reactant\nFalse False\n"
    nothing = {"PYTHON_JULIACALL_EXE": "", "PYTHON_JULIACALL_PROJECT": ""}
    assert _run(folder, NEVER_SET_UP + code, **nothing).stdout == "jax\n"
    (folder / "juliacall.py").unlink()
    assert _run(folder, f"import sys; sys.modules['juliacall'] = None\n{code}").stdout == "jax\n"


def test_jax_cannot_follow(folder: Path) -> None:
    """After Reactant has started, the process cannot import jax."""
    code = (
        f"try:\n    {START}\nexcept p.RequirementError:\n    pass\n"
        "import importlib.util as u\nprint(u.find_spec('jax'))\nimport jax"
    )
    ran = _run(folder, code)
    assert ran.stdout.splitlines()[-1] == "None"
    assert "import of jax halted" in _last(ran)


def test_options_in_xla_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert StartOptions().cpu_devices(1) == 8
    assert StartOptions().cpu_devices(2) is None
    assert StartOptions(num_cpu_devices=3).cpu_devices(2) == 3
    monkeypatch.setenv("XLA_FLAGS", "--a=b --xla_force_host_platform_device_count=5")
    assert StartOptions().cpu_devices(1) is None
    with pytest.raises(pr.StateError, match="num_cpu_devices=3 was requested, but XLA_FLAGS sets"):
        StartOptions(num_cpu_devices=3).cpu_devices(2)


def test_gpus_are_always_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a list Reactant asks the launcher itself; an empty list means no GPU."""
    for name in facts.VISIBLE_GPUS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    nothing_said, own = ProcessGroup(2, 1, "h:1"), ProcessGroup(2, 1, "h:1", (3,))
    assert local_gpus(nothing_said, StartOptions(platform="cpu")) == ()
    assert local_gpus(own, StartOptions(platform="tpu")) == ()
    assert local_gpus(nothing_said, StartOptions()) == (0, 1)
    assert local_gpus(own, StartOptions(platform="gpu")) == (3,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local_gpus(nothing_said, StartOptions()) == ()


def test_devices_by_process_and_id() -> None:
    rows = [(i, "cpu", "k") for i in (2049, 0, 2048, 1)]
    found = make_devices(rows, [[1, 0], [2048, 2049]])
    assert [(d.position, d.process_index, d.id) for d in found] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 2048),
        (3, 1, 2049),
    ]
    for owned in ([[0, 1], [2048]], [[0, 1], [1, 2048, 2049]], [[0, 1, 2048, 2049, 7]]):
        with pytest.raises(pr.RendezvousError, match="must together be Reactant's devices"):
            make_devices(rows, owned)


@pytest.mark.parametrize(
    ("group", "options", "kind", "message"),
    [
        (
            ProcessGroup(),
            {"platform": "gpu"},
            pr.RequirementError,
            "Reactant has: cpu; run on a",
        ),
        (ProcessGroup(), {"num_cpu_devices": 4}, pr.StateError, "num_cpu_devices requests 4 dev"),
        (ProcessGroup(2, 0, "h:1"), {}, pr.RendezvousError, r"has devices of processes \[0\]"),
    ],
)
def test_what_started_is_not_what_was_asked_for(
    group: ProcessGroup, options: dict[str, object], kind: type[Exception], message: str
) -> None:
    devices = make_devices([(i, "cpu", "k") for i in range(2)], [[0, 1]])
    with pytest.raises(kind, match=message):
        check_started(group, StartOptions(**options), devices)
    check_started(ProcessGroup(), StartOptions(platform="cpu", num_cpu_devices=2), devices)


@pytest.mark.parametrize("name", NAMES)
def test_bits_cross_as_they_are(name: str) -> None:
    """juliacall does not know the dtypes of ml_dtypes, so their bits cross as integers."""
    dtype = as_dtype(name)
    bits = np.arange(256, dtype=np.uint8).repeat(dtype.itemsize)
    if name == "bool":
        bits = bits % 2
    x = bits.view(dtype).reshape(4, -1)
    for array in (x, x[::-1], x.T, x[:, ::3], x[:1, :1].reshape(())):
        crossed = as_bits(array)
        assert crossed.dtype.name == (name if name not in EXTENDED else f"uint{8 * dtype.itemsize}")
        assert crossed.strides == array.strides
        assert crossed.view(dtype).tobytes() == array.tobytes()
        assert np.shares_memory(crossed, array)


@pytest.mark.parametrize("value", [1, 2.5, True, "text", None, (1, ("a", None))])
def test_static_values_that_reach_julia(value: object) -> None:
    check_static(pr.Program("p"), {"value": value})


@pytest.mark.parametrize("value", [np.float32(1), b"x", frozenset(), (1, b"x"), 2**70, -(2**64)])
def test_static_values_that_do_not(value: object) -> None:
    with pytest.raises(pr.InvalidArgumentError, match="static argument 'value' must be a number"):
        check_static(pr.Program("p"), {"value": value})
