"""A process that a template forks ends as one that Python starts."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes, quick
from tests.harness import environment

ENDS = {
    "returns": "print('out'); print('err', file=sys.stderr)",
    "code": "sys.exit(3)",
    "negative code": "sys.exit(-1)",
    "large code": "sys.exit(256)",
    "no code": "sys.exit()",
    "text": "sys.exit('a reason')",
    "exception": "raise ValueError('wrong')",
    "Ctrl-C": "raise KeyboardInterrupt",
    "at once": "print('lost' * 9, end=''); os._exit(5)",
    "by a signal": "os.kill(os.getpid(), 9)",
    "not flushed": "print('x' * 100000, end='')",
    "a thread works on": "threading.Timer(0.2, print, ['late']).start(); sys.exit(4)",
    "a daemon": "threading.Thread(target=time.sleep, args=[60], daemon=True).start()",
    "functions of atexit": "atexit.register(print, 'first'); atexit.register(print, 'then')",
    "a function of atexit raises": "atexit.register(int, 'no number'); sys.exit(2)",
    "a function of atexit ends it": "atexit.register(os._exit, 9); sys.exit(2)",
    "no standard output": "sys.stdout.close()",
    "a full disk": "sys.stdout = open('/dev/full', 'w'); print('lost')",
}


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS)
def test_a_fork_ends_as_python_does(program: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import atexit, os, sys, threading, time\n{program}\n")
    argv, env = [sys.executable, "program.py"], environment()
    anew = subprocess.run(argv, capture_output=True, env=env, cwd=tmp_path, text=True, timeout=60)
    forked = processes.run(argv, env=env, cwd=tmp_path)
    assert (forked.returncode, forked.stdout) == (anew.returncode, anew.stdout)
    assert forked.stderr.splitlines()[-1:] == anew.stderr.splitlines()[-1:]  # not the same frames


def test_a_fork_finds_modules_imported(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; print('numpy' in sys.modules)"]
    assert processes.run(argv, env=environment(), cwd=tmp_path).stdout == "True\n"


SHOWN = """
import json, os, sys, jax

index = os.environ["PYREACTANT_PROCESS_INDEX"]
with open("/proc/self/cmdline") as file:
    forked = "tests.template" in file.read()
found = [
    forked, os.getppid(), os.getsid(0) == os.getpid(), sys.argv, sys.path[:3], os.getcwd(),
    jax.config.jax_platforms, jax.config.jax_num_cpu_devices, jax.config.jax_enable_x64,
    jax.config.jax_enable_preemption_service, sys.modules["__main__"].__file__,
]
with open(f"{sys.argv[1]}-{index}", "w") as file:
    json.dump(found, file)
"""


@pytest.mark.anew
def test_programs_of_a_supervisor_are_its_children_as_forks_too(tmp_path: Path) -> None:
    """They find what they find when Python starts them."""
    (tmp_path / "shown.py").write_text(SHOWN)
    path = f"{tmp_path / 'hidden'}:{processes.REPOSITORY}"
    argv = [sys.executable, "-m", "pyreactant", "run", "--quiet", "-n", "2", "--platform", "cpu"]
    found = []
    for quick_too in ({}, {quick.VARIABLE: "1"}):
        env = environment(PYTHONPATH=path, JAX_ENABLE_X64="1", **quick_too)
        whole = [*argv, "--devices-per-process", "3", "--", "shown.py", "found"]
        with processes.Popen(
            whole, imported=processes.WITH_JAX, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL
        ) as run:
            assert run.wait(100) == 0
        rows = [json.loads((tmp_path / f"found-{index}").read_text()) for index in range(2)]
        assert [(row.pop(0), row.pop(0)) for row in rows] == [(bool(quick_too), run.pid)] * 2
        found.append(rows)
    assert found[0] == found[1]


@pytest.mark.anew
def test_a_quick_process_forks_what_it_starts() -> None:
    code = "import subprocess, sys; print(subprocess.Popen.__module__)"
    for quick_too, module in (({}, "subprocess"), ({quick.VARIABLE: "1"}, "tests.quick")):
        ran = processes.run([sys.executable, "-c", code], env=environment(**quick_too))
        assert ran.stdout == f"{module}\n"


@pytest.fixture
def own_templates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Templates that no other test uses, in a folder whose name is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix=f"own-templates-{os.getpid()}-") as folder:
        monkeypatch.setenv(processes.SHARED, folder)
        yield


def test_a_process_that_nobody_waits_for_without_its_connection() -> None:
    """The garbage collector closes the connection first; Python keeps such a process for later."""
    process = processes.Popen([sys.executable, "-c", "pass"], env=environment())
    assert process._status is not None
    process._status.close()
    subprocess._active.append(process)
    assert subprocess.run(["true"]).returncode == 0
    assert process.returncode == 0


@pytest.mark.usefixtures("own_templates")
def test_a_template_that_ends_before_its_forks_is_told_once() -> None:
    """Each new process polls those that nobody waits for any more."""
    modules = ("json",)
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    process = processes.Popen(argv, imported=modules, env=environment(), **pipes)
    template = processes.template(modules).process
    template.kill()
    template.wait()
    # The fork has the template's end of the connection, too, until it has closed what it inherits.
    assert process._status
    assert select.select([process._status], [], [], 60)[0]
    # As Python polls a process that no variable has any more.
    with pytest.raises(RuntimeError, match="has ended before its forks"):
        process._internal_poll(_deadstate=sys.maxsize)
    assert process._internal_poll(_deadstate=sys.maxsize) == -signal.SIGKILL
    assert process.stdin
    process.stdin.close()
    del processes._templates[modules]
