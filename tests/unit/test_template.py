"""A process that a template forks ends as one that Python starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
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
