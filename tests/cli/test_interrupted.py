"""Ctrl-C in `preflight` and `plan`, and while a command ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pyreactant as pr
from pyreactant.cli.app import app
from tests import harness
from tests.harness import environment
from tests.pages.samples import preflight

SCRIPT = Path(sys.executable).with_name("pyreactant")
RUN = "import os, signal, sys; import pyreactant.cli.app as m; sys.argv[1:] = ['topology', 'v6e-4']"


@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("m.flush_output = lambda: os.kill(os.getpid(), signal.SIGINT)", 130),
        ("import atexit; atexit.register(os.kill, os.getpid(), signal.SIGINT)", 0),
    ],
    ids=["before all is written", "after it"],
)
def test_while_the_process_ends(when: str, code: int) -> None:
    argv = [sys.executable, "-c", f"{RUN}; {when}; m.main()"]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "KeyboardInterrupt" not in ran.stderr


BUILDING = """
import typer.main

def get_command(*arguments):
    signal.raise_signal(signal.SIGINT)

typer.main.get_command = get_command
m.main()
"""


def test_while_typer_builds_the_command() -> None:
    argv = [sys.executable, "-c", RUN + BUILDING]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (130, "interrupted\n")


# Python imports it before all else. Ctrl-C arrives while a module of the command line loads.
EARLY = """
import os, signal, sys

def hook(event, arguments):
    if event == "import" and arguments[0] == os.environ["AT"]:
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
"""


@pytest.mark.parametrize("module", ["pyreactant.arrays.process_runtime", "pyreactant.cli.app"])
@pytest.mark.parametrize("start", [["-m", "pyreactant"], [str(SCRIPT)]], ids=["-m", "script"])
def test_before_the_command_line_is_loaded(start: list[str], module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    ran = harness.run(
        [sys.executable, *start, "--version"], env=environment(PYTHONPATH=path, AT=module)
    )
    assert (ran.returncode, ran.stderr) == (130, "interrupted\n")


def test_an_interrupt_while_the_library_loads_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    ran = harness.run(
        [sys.executable, "-c", "import pyreactant"],
        env=environment(PYTHONPATH=path, AT="pyreactant.arrays.process_runtime"),
    )
    assert ran.returncode == -signal.SIGINT
    assert ran.stderr.endswith("\nKeyboardInterrupt\n")


# Ctrl-C arrives while a compiled module loads; the line that is printed is of a later one of JAX.
LOADING = """
import os, signal, sys
import pyreactant.cli.app as m

def hook(event, arguments):
    if event == "import" and arguments[0] == module:
        os.kill(os.getpid(), signal.SIGINT)
    if event == "import" and arguments[0] == "jax._src.api":
        print("went on", flush=True)

module = sys.argv.pop(1)
sys.addaudithook(hook)
m.main()
"""


@pytest.mark.parametrize(
    ("module", "line", "printed"),
    [
        ("jaxlib._jax", "matmul", "went on\n"),
        ("asyncio", "checkpoints verify step", ""),  # tensorstore's compiled module imports it
    ],
)
def test_while_a_compiled_module_is_loaded(
    module: str, line: str, printed: str, tmp_path: Path
) -> None:
    """An interrupt in its start crashed the process, or became "install it again"."""
    pr.save(tmp_path / "step", {"x": np.ones(3)})
    argv = [sys.executable, "-c", LOADING, module, *line.split()]
    ran = harness.run(argv, env=environment(), cwd=tmp_path, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, printed, "interrupted\n")


HELD = """
import os, signal, subprocess, sys
from pyreactant.base.process import hold_interrupts_in

hold_interrupts_in("own")
try:
    import own
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("held until the end")
"""
OWN = """
import os, signal, subprocess, sys

os.kill(os.getpid(), signal.SIGINT)
shown = "print([line for line in open('/proc/self/status') if line.startswith('SigBlk')][0])"
subprocess.run([sys.executable, "-c", shown], check=True)
"""


@pytest.mark.parametrize("end", ["", "raise ImportError('install it again')"])
def test_while_a_package_is_loaded(end: str, tmp_path: Path) -> None:
    """Also if it fails; a child of it has no blocked signal."""
    (tmp_path / "own.py").write_text(f"{OWN}\n{end}\n")
    argv = [sys.executable, "-c", HELD]
    ran = harness.run(argv, env=environment(PYTHONPATH=str(tmp_path)), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    blocked, *rest = ran.stdout.split("\n", 1)
    assert int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1 == 0
    assert rest == ["\nheld until the end\n"]


IGNORED = """
import gc, signal, time
from pyreactant.base.process import repeat_ignored_interrupts

repeat_ignored_interrupts()
gc.callbacks.append(lambda *_: gc.callbacks.clear() or signal.raise_signal(signal.SIGINT))
try:
    gc.collect()
    for _ in range(2000):  # a signal just before a sleep does not end that sleep
        time.sleep(0.1)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_in_a_callback_of_the_garbage_collector() -> None:
    argv = [sys.executable, "-c", IGNORED]
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted\n", "")


def interrupted(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_before_the_first_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyreactant.fit.plan.plan.plan", interrupted)
    done = CliRunner().invoke(app, ["plan", "--topology", "v6e-4", "--size", "64"])
    assert done.exit_code == 130
    assert "interrupted: compilations that finished are kept in " in done.stderr
    done = CliRunner().invoke(app, ["plan", "--platform", "cpu", "--size", "64"])
    assert done.exit_code == 130
    assert done.stderr == "interrupted: nothing is kept\n"


def test_one_of_two_programs_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = [preflight()]
    monkeypatch.setattr(
        "pyreactant.fit.preflight.preflight.preflight",
        lambda *a, **b: finished.pop() if finished else interrupted(),
    )
    done = CliRunner().invoke(app, ["preflight", "--topology", "v6e-4", "--size", "64", "--diff"])
    assert done.exit_code == 130
    assert "preflight of " in done.stdout
    assert "interrupted: compilations that finished are kept in " in done.stderr
