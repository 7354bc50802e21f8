"""`pyreactant setup` and `pyreactant prefs` on the command line."""

import json
import os
import pty
import re
import subprocess
import tomllib
from pathlib import Path

from tests.harness import REPOSITORY
from tests.setup.conftest import Here


def command(here: Here, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [here.python, "-P", "-m", "pyreactant", *arguments],
        env=here.environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_setup(here: Here) -> None:
    first = command(here, "setup")
    assert first.returncode == 0, first.stderr
    lines = first.stdout.splitlines()
    assert lines[0] == "set up"
    assert lines[1].split() == ["Julia", "1.11.5", here.julia]
    shown = [line for line in first.stderr.splitlines() if not line.startswith("pyreactant: ")]
    assert shown == [], "what Julia prints goes to the log"
    again = command(here, "setup")
    assert again.stdout.startswith("nothing to do: set up on 20")
    assert again.stderr == ""
    as_json = command(here, "setup", "--json", "--gpu", "cuda", "--gpu-version", "13.1")
    record = json.loads(as_json.stdout)
    assert record["preferences"]["gpu_version"] == "13.1"
    assert record["ran"] == ["preferences", "resolve", "precompile", "record"]


def test_the_session_in_the_docs(here: Here) -> None:
    """docs/julia.md shows the printed output, except for paths."""
    text = (REPOSITORY / "docs" / "julia.md").read_text()
    [session] = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    install, typed, *shown = session.splitlines()
    metadata = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert install == f"$ pip install '{metadata['name']}[reactant]'"
    assert "reactant" in metadata["optional-dependencies"]
    program, *arguments = typed.removeprefix("$ ").split()
    assert program in metadata["scripts"]
    ran = command(here, *arguments)
    printed = ran.stdout
    for path, name in (
        (here.julia, "/home/me/.julia/juliaup/julia-1.11.5/bin/julia"),
        (str(here.prefix), "/home/me/env"),
    ):
        printed = printed.replace(path, name)
    assert printed.splitlines() == shown


def test_the_last_lines_of_the_log(here: Here) -> None:
    failed = command(here, "setup", STAND_IN_FAIL="network")
    assert failed.returncode == 3
    assert failed.stdout == ""
    error = failed.stderr[failed.stderr.index("error: ") :]
    assert error.startswith("error: installing Julia and its packages needs the network")
    assert "Could not resolve host" in error
    assert "Traceback" not in error.split("the last lines of")[0]


def test_on_a_terminal(here: Here) -> None:
    """The progress line shows each step and Julia's output; the result alone stays."""
    terminal, program_end = pty.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as shown:
        setup = subprocess.Popen(
            [here.python, "-P", "-m", "pyreactant", "setup"],
            env=here.environment(STAND_IN_DELAY="2", TERM="xterm", COLUMNS="200"),
            stdin=subprocess.DEVNULL,
            stdout=program_end,
            stderr=program_end,
        )
        os.close(program_end)
        text = b""
        try:
            while part := shown.read(1 << 16):
                text += part
        except OSError:  # Linux raises this when the other end is closed
            pass
        assert setup.wait(60) == 0, text.decode()
    output = text.decode()
    assert "Pkg.precompile()" in output
    assert output.index("Julia and its packages, 2 of 5:") < output.index("Pkg.precompile()")
    last = output.rpartition("Pkg.precompile()")[2]
    assert last.index("\x1b[2K") < last.index("set up\r\n  Julia"), "the line goes at the end"


def test_prefs(here: Here) -> None:
    none = command(here, "prefs", "show")
    assert none.returncode == 3
    assert "run: pyreactant setup" in none.stderr
    command(here, "setup")
    local = here.project / "LocalPreferences.toml"
    done = command(here, "prefs", "set", "gpu", "none")
    assert done.stdout == f"gpu is none in {local}; to compile Reactant for it: pyreactant setup\n"
    shown = command(here, "prefs", "show", REACTANT_GPU="cuda").stdout.splitlines()
    assert shown[0].split() == ["xla_runtime", "IFRT", str(local)]
    assert shown[1].split() == ["gpu", "none", str(local)]
    assert shown[2] == "  REACTANT_GPU=cuda overrides it"
    assert shown[3] == "gpu_version  not set"
    as_json = json.loads(command(here, "prefs", "show", "--json").stdout)
    assert as_json["gpu"] == {"value": "none", "file": str(local)}
    undone = command(here, "prefs", "unset", "xla_runtime")
    # juliapkg adds it to the project too.
    assert f"and is still IFRT because of {here.project / 'Project.toml'};" in undone.stdout
    assert "xla_runtime" not in tomllib.loads(local.read_text()).get("Reactant", {})
    wrong = command(here, "prefs", "set", "xla_runtime", "TFRT")
    assert wrong.returncode == 2
    assert wrong.stderr == "error: xla_runtime must be PJRT or IFRT, got 'TFRT'\n"


def test_prefs_of_another_project(here: Here) -> None:
    project = Path(here.folder, "mine")
    project.mkdir()
    done = command(here, "prefs", "set", "xla_runtime", "PJRT", "--project", str(project))
    assert done.returncode == 0, done.stderr
    assert tomllib.loads((project / "LocalPreferences.toml").read_text()) == {
        "Reactant": {"xla_runtime": "PJRT"}
    }
