"""The start of Julia in a Python process: its settings and its failures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness import environment
from tests.julia.alone import alone, project
from tests.julia.place import STAND_IN, command, stand_in

pytestmark = pytest.mark.julia

DEVICES = "import pyreactant as p; print(len(p.devices()))"
# After a change, or with another preference, Julia precompiles its packages.
COMPILES = 600


def test_nothing_of_jax_and_no_warning() -> None:
    """Reactant's Python extension would import jax and tensorflow, each with another XLA."""
    ran = alone(
        "import sys, pyreactant as p\n"
        "print(p.backend_name(), [n for n in sys.modules if n.startswith(('jax', 'tensorfl'))\n"
        "      and sys.modules[n] is not None])"
    )
    assert ran.stdout == "reactant []\n", ran.stderr
    assert "Failed to import" not in ran.stderr
    assert ran.stderr == ""


def test_nothing_is_lost_that_a_pipe_cannot_take_at_once() -> None:
    """Julia makes pipes return at once, whereupon Python loses what does not fit."""
    code = (
        "import os, sys, pyreactant as p; p.devices(); print('x' * 2**20)\n"
        "print([os.get_blocking(stream) for stream in range(3)])"
    )
    ran = alone(code, PYTHONUNBUFFERED="1")
    assert ran.stdout == "x" * 2**20 + "\n[True, True, True]\n", ran.stderr + ran.stdout[2**15 :]


@pytest.mark.parametrize(
    ("code", "settings", "expected"),
    [
        (DEVICES, {}, "8"),
        (DEVICES, {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, "5"),
        (
            "import os, pyreactant as p; p.initialize(num_cpu_devices=3)\n"
            "print(len(p.devices()), 'XLA_FLAGS' in os.environ)",
            {"XLA_FLAGS": ""},
            "3 False",
        ),
    ],
)
def test_number_of_devices(code: str, settings: dict[str, str], expected: str) -> None:
    ran = alone(code, **settings)
    assert ran.stdout.strip() == expected, ran.stderr


@pytest.mark.parametrize(
    ("code", "settings", "message"),
    [
        (
            "import pyreactant as p; p.devices(); p.shutdown(); p.devices()",
            {},
            "was shut down; a process has one runtime for its whole life",
        ),
        (
            DEVICES,
            {"JULIA_LOAD_PATH": ""},
            "must have the package Reactant; run: pyreactant setup",
        ),
    ],
)
def test_starts_that_fail(code: str, settings: dict[str, str], message: str) -> None:
    ran = alone(code, **settings)
    assert ran.returncode == 1
    assert message in ran.stderr.splitlines()[-1], ran.stderr


def test_a_project_without_packages(tmp_path: Path) -> None:
    (tmp_path / "Project.toml").write_text("[deps]\n")
    ran = alone(DEVICES, PYTHON_JULIACALL_PROJECT=str(tmp_path))
    assert "Package PythonCall not found" in ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert "RequirementError: Julia did not start (" in last
    assert last.endswith("; run: pyreactant setup")
    assert [file.name for file in tmp_path.iterdir()] == ["Project.toml"]


@pytest.mark.parametrize(
    ("requested", "gpu", "message"),
    [
        ("platform='gpu'", "", "RequirementError: platform 'gpu' could not be started: AssertionE"),
        ("platform='gpu'", "fails", "platform 'gpu' could not be started: Failed to initialize"),
        ("", "fails", "client: cuda: CUDA_ERROR_NO_DEVICE; Reactant would run on cpu; see pyreac"),
    ],
)
def test_platform_that_falls_back_in_silence(requested: str, gpu: str, message: str) -> None:
    """If a GPU does not start, Reactant only logs it and continues on the CPU."""
    ran = alone(f"import pyreactant as p; p.initialize({requested})", STANDIN_REACTANT_GPU=gpu)
    assert ran.returncode == 1
    assert message in ran.stderr, ran.stderr


def test_path_with_spaces_and_unicode(tmp_path: Path) -> None:
    folder = project(tmp_path / "ein Projekt, ü")
    assert alone(DEVICES, PYTHON_JULIACALL_PROJECT=str(folder)).stdout.strip() == "8"


@pytest.mark.timeout(COMPILES + 60)
def test_julia_program_under_the_supervisor(tmp_path: Path) -> None:
    """Its processes find each other by the supervisor's variables, and none loads Python."""
    program = tmp_path / "program.jl"
    program.write_text(
        "using PyReactant, Reactant\n"
        'python = any(id -> id.name == "PythonCall", keys(Base.loaded_modules))\n'
        "println((PyReactant.initialize()..., length(PyReactant.devices()), python))\n"
    )
    place = stand_in()
    # Julia looks for what the stand-in needs in places before it only.
    place["JULIA_LOAD_PATH"] = f":{place['PYTHON_JULIACALL_PROJECT']}:{STAND_IN}"
    argv = [sys.executable, "-m", "pyreactant", "run", "--processes", "2", "--platform", "cpu"]
    argv += ["--devices-per-process", "2", "--all-output", "--out", str(tmp_path / "out"), "--"]
    argv += command(str(program))
    settings = environment(**place)
    ran = subprocess.run(argv, env=settings, capture_output=True, text=True, timeout=COMPILES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = sorted(ran.stdout.splitlines())
    assert said == ["[0] (2, 0, 4, false)", "[1] (2, 1, 4, false)"], ran.stdout + ran.stderr


@pytest.mark.timeout(COMPILES + 60)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "RequirementError: Reactant must be loaded with xla_runtime IFRT, its preference is"),
        (
            "num_processes=2, process_index=0, coordinator_address='localhost:9'",
            "xla_runtime must be IFRT in a run of 2 processes, got PJRT",
        ),
    ],
)
def test_pjrt(arguments: str, message: str, tmp_path: Path) -> None:
    """Reactant itself only warns about several processes, and loses the order of a mesh."""
    folder = project(tmp_path / "pjrt", runtime="PJRT")
    code = f"import pyreactant as p; p.initialize({arguments})"
    ran = alone(code, COMPILES, PYTHON_JULIACALL_PROJECT=str(folder))
    assert message in ran.stderr.splitlines()[-1], ran.stderr


@pytest.mark.timeout(COMPILES + 60)
def test_reactant_that_was_loaded_with_another_preference() -> None:
    ran = alone(
        "import sys; sys.modules['jax'] = sys.modules['tensorflow'] = None\n"
        "import juliacall\n"
        "juliacall.Base.require(juliacall.Main, juliacall.Base.Symbol('Reactant'))\n"
        "import pyreactant as p; p.initialize()",
        COMPILES,
    )
    last = ran.stderr.splitlines()[-1]
    assert "StateError: Reactant's preference xla_runtime is IFRT" in last, ran.stderr
    assert "loaded Reactant with PJRT; start a new process" in last


def test_two_threads() -> None:
    ran = alone(
        "import pyreactant as p, numpy as n\n"
        "c = p.matmul_sharded(); print(float(n.asarray(c).sum()))",
        PYTHON_JULIACALL_THREADS="2",
    )
    assert ran.stdout.strip() == "562304.0", ran.stderr


def test_ctrl_c_between_and_during_calls() -> None:
    """It raises KeyboardInterrupt at the end of the call, and the process continues."""
    code = (
        "import os, signal, time, threading, numpy as n, pyreactant as p\n"
        "from pyreactant.arrays.runtimes.reactant import julia as _julia\n"
        "p.devices()\n"
        "import juliacall\n"
        "for seconds in (0.0, 1.5):\n"
        "    kill = lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGINT))\n"
        "    threading.Thread(target=kill).start()\n"
        "    began = time.monotonic()\n"
        "    try:\n"
        "        if seconds: _julia.call(juliacall.Libc.systemsleep, seconds)\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', time.monotonic() - began < 30)\n"
        "print(float(n.asarray(p.matmul_sharded()).sum()))\n"
    )
    ran = alone(code.replace("juliacall.Libc", "juliacall.Base.Libc"))
    assert ran.stdout.splitlines() == ["interrupted True"] * 2 + ["562304.0"], ran.stderr


def test_ctrl_c_while_waiting_for_the_others(tmp_path: Path) -> None:
    code = (
        "import pyreactant as p; print('waiting', flush=True)\n"
        "p.initialize(num_processes=2, process_index=0, coordinator_address='127.0.0.1:{}')"
    )
    from tests.harness import free_port

    process = subprocess.Popen(
        [sys.executable, "-c", code.format(free_port())],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.PIPE,
        env=environment(**{"PYREACTANT_BACKEND": "reactant", **stand_in()}),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(2)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(20) != 0
        assert process.stderr is not None
        assert "KeyboardInterrupt" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()
