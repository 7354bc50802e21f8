"""Completion of values: what each shell is offered, without NumPy and JAX."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyreactant.arrays.dtypes import NAMES
from pyreactant.base.slices.topology import topologies
from pyreactant.check.programs import CASES
from pyreactant.cli import complete
from tests.cli.tree import LEAVES
from tests.harness import environment

IMPORTED = """
import sys
sys.argv = ["pyreactant"]
from pyreactant.cli.app import app
try:
    app(prog_name="pyreactant")
except SystemExit:
    pass
slow = {"numpy", "jax", "ml_dtypes", "pydantic"} & sys.modules.keys()
assert not slow, slow
"""


def offered(line: str, shell: str = "fish", **settings: str) -> list[str]:
    """What a shell gets for a line, by the protocol of typer's scripts."""
    words = line.split(" ")
    asked = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    asked |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    env = environment(**asked, _PYREACTANT_COMPLETE=f"complete_{shell}", **settings)
    argv = [sys.executable, "-c", IMPORTED]
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    return [text for text in ran.stdout.splitlines() if text]


LINES = {
    "matmul --platform ": ["cpu", "gpu", "tpu"],
    "matmul --dtype bf": ["bfloat16"],
    "preflight soft": ["softmax"],
    "crosscheck fft matv": ["matvec"],
    "plan --topology v6e-1": ["v6e-1", "v6e-16", "v6e-128"],
    "topology v6e-6": ["v6e-64"],
    "run --topology v6e-6": ["v6e-64"],
    "run --on ": ["local", "slurm", "tpu", "ray", "kubernetes"],
    "crosscheck --backends a": ["auto"],
    "tpu ssh --reach g": ["gcloud"],
    "prefs set xla": ["xla_runtime"],
    "matmul --dtype= --platform c": ["cpu"],
    "jobs status 20261": [],
}


@pytest.mark.parametrize("line", LINES)
def test_values(line: str, tmp_path: Path) -> None:
    assert offered(f"pyreactant {line}", XDG_STATE_HOME=str(tmp_path)) == LINES[line]


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_jobs_in_each_shell(shell: str, tmp_path: Path) -> None:
    """The latest first, so that a new job is offered where there are hundreds."""
    ids = [f"20261122-2045{n:02}-3f9a" for n in range(60)]
    for name in ids:
        (tmp_path / "pyreactant" / "jobs" / name).mkdir(parents=True)
    state = {"XDG_STATE_HOME": str(tmp_path)}
    latest = offered("pyreactant jobs logs ", shell, **state)
    assert len(latest) == complete.MOST
    assert ids[-1] in latest[0]
    (first,) = offered(f"pyreactant jobs logs {ids[0]}", shell, **state)
    assert ids[0] in first, "what was typed counts before the number is cut"


def installed(shell: str, folder: Path) -> dict[str, str]:
    """An environment with the command, for a shell that is on this machine."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    tool = folder / "pyreactant"
    tool.write_text(f"#!{sys.executable}\nfrom pyreactant.cli import main\nmain()\n")
    tool.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return environment(PATH=path, HOME=str(folder), ZDOTDIR=str(folder))


LINE = ". ~/.bash_completions/pyreactant.sh"
FILES = {
    "bash": [".bash_completions/pyreactant.sh", ".bashrc"],
    "zsh": [".zfunc/_pyreactant", ".zshrc"],
    "fish": [".config/fish/completions/pyreactant.fish"],
}


def typed(shell: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A line that is typed in a shell; `folder` has the command, and is the home folder."""
    line = " ".join(["pyreactant", *words])
    argv = [shell, "-c", f"{line}; exit $status" if shell == "fish" else f"{line}; exit $?"]
    env = installed(shell, folder)
    return subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("shell", FILES)
def test_installed_in(shell: str, tmp_path: Path) -> None:
    """The files that it names; what the user has in them stays, also the second time."""
    for name in FILES[shell][1:]:
        (tmp_path / "there").write_bytes(b"mine\xff\r\nlast")
        (tmp_path / name).symlink_to("there")
    for _ in range(2):
        ran = typed(shell, tmp_path, "--install-completion")
        assert (ran.returncode, ran.stderr) == (0, "")
    shown = typed(shell, tmp_path, "--show-completion").stdout
    script, *startup = (tmp_path / name for name in FILES[shell])
    assert script.read_text() == shown
    assert f"the completion of {shell} is in {script}" in ran.stdout
    for path in startup:
        assert path.is_symlink()
        assert f"{path} loads it: " in ran.stdout
        line = ran.stdout.partition(" loads it: ")[2].splitlines()[0]
        assert path.read_bytes() == f"mine\udcff\r\nlast\n{line}\n".encode(errors="surrogateescape")


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_in_a_shell_without_completion(option: str, tmp_path: Path) -> None:
    if shutil.which("dash") is None:
        pytest.skip("there is no dash")
    ran = typed("dash", tmp_path, option)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {option} must be typed in bash, zsh or fish, got 'dash';")
    ran = typed("bash", tmp_path, option, "tcsh")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {option} takes no value, got 'tcsh'; type it alone")
    assert [path.name for path in tmp_path.iterdir()] == ["pyreactant"]


# Root without the right to pass over permissions, as every other user.
AS_USER = "setpriv --bounding-set=-dac_override,-dac_read_search " if not os.geteuid() else ""


@pytest.mark.parametrize("what", ["read-only", "not there", "pipe"])
def test_installed_where_it_cannot_be(what: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = [f"HOME={home} {AS_USER}pyreactant --install-completion"]
    if what != "not there":
        home.mkdir()
        (home / ".bash_completions").mkdir()
        if what == "pipe":
            os.mkfifo(home / ".bashrc")
        else:
            (home / ".bashrc").write_text("mine")
            home.chmod(0o555)
    ran = typed("bash", tmp_path, ";", *words)
    if home.exists():
        home.chmod(0o755)
    assert ran.returncode == 2, ran.stderr
    message = ran.stderr.rpartition("error: ")[2]
    wanted = {
        "read-only": f"{home}/.bashrc: cannot be written (Permission denied)",
        "not there": "cannot be written (the home folder",
        "pipe": f"{home}/.bashrc: must be a file; load completion elsewhere by: {LINE}",
    }
    assert wanted[what] in message
    assert home.exists() == (what != "not there")
    assert what != "read-only" or (home / ".bashrc").read_text() == "mine"


SLICES = [s.name for s in topologies() if s.name.startswith("v5p-6")]
SCRIPTS = {
    "bash": """
source <(_PYREACTANT_COMPLETE=source_bash pyreactant)
COMP_WORDS=(pyreactant topology v5p-6) COMP_CWORD=2
_pyreactant_completion pyreactant
echo "${COMPREPLY[@]}"
""",
    "fish": """
_PYREACTANT_COMPLETE=source_fish pyreactant | source
complete -C "pyreactant topology v5p-6"
""",
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_command_of(shell: str, tmp_path: Path) -> None:
    """As a user has it: typer's script, in a shell."""
    argv = [shell, "-c", SCRIPTS[shell]]
    env = installed(shell, tmp_path)
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert sorted(ran.stdout.split()) == sorted(SLICES)


def test_a_key_of_zsh(tmp_path: Path) -> None:
    """Its completion needs a terminal, on which Tab is typed."""
    env = installed("zsh", tmp_path)
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit; compinit -u\n"
        'eval "$(_PYREACTANT_COMPLETE=source_zsh pyreactant)"\nPROMPT=ready\n'
    )
    terminal, side = pty.openpty()
    argv = ["zsh", "-i"]
    with subprocess.Popen(
        argv, env=env, stdin=side, stdout=side, stderr=side, start_new_session=True
    ) as shell:
        os.close(side)
        try:
            read_until(terminal, "ready")
            os.write(terminal, b"pyreactant matmul --dtype bf\t")
            read_until(terminal, "bfloat16")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    os.close(terminal)


def read_until(terminal: int, wanted: str) -> None:
    """Read a terminal until a text is there."""
    text, end = "", time.monotonic() + 300
    while wanted not in text:
        assert time.monotonic() < end, text
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 65536).decode(errors="replace")


def test_the_names_are_those_of_the_package() -> None:
    """They are written twice, because the modules that have them need NumPy."""
    assert complete.PROGRAMS.split() == list(CASES)
    assert complete.DTYPES.split() == list(NAMES)


def test_each_argument_of_a_kind_is_offered() -> None:
    """An option that is named anew would otherwise have no values."""
    for name, command in LEAVES.items():
        for parameter in command.params:
            if parameter.opts[0] in ("--topology", "--platform", "--dtype", "--on", "--backend"):
                assert "shell_complete" in vars(parameter), (name, parameter.opts)
