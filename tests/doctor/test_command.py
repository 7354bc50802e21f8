"""`pyreactant doctor`, as users start it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import harness
from tests.doctor.machines import H100, executable, nvidia_smi
from tests.doctor.test_runtimes import alive
from tests.harness import environment, quiet

DOCTOR = [sys.executable, "-m", "pyreactant", "doctor"]
NOT_STARTED = "--timeout=0.05"  # for tests that do not depend on the runtime


def doctor(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return harness.run(
        [*DOCTOR, *arguments],
        env=environment(**settings),
        cwd=folder,
        timeout=120,
    )


def test_for_people(tmp_path: Path) -> None:
    ran = doctor(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")][:8] == [
        "installation",
        "JAX",
        "Reactant",
        "accelerators",
        "runtimes",
        "settings",
        "machine",
        "launch",
    ]
    commands = [line for line in lines if line.startswith("        fix: ")]
    assert all(len(line) <= 80 for line in lines if line not in commands)
    assert "  pass  usable runtime    JAX" in lines
    assert lines[-1].endswith(" s")
    assert quiet(ran.stderr)
    assert not list(tmp_path.iterdir())


def test_as_json(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "--json", "--backend", "jax")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["schema"], found["exit_code"], found["missing"]) == (1, 0, [])


# Hide a setup of this environment, if there is one.
NOT_SETTLED = {
    "PYTHON_JULIACALL_EXE": "/nowhere/julia",
    "PYTHON_JULIACALL_PROJECT": "/nowhere/project",
}


def test_reactant_is_missing(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "--backend", "reactant", **NOT_SETTLED)
    assert ran.returncode == 3, ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("required and missing: ")
    assert "Julia project" in ran.stdout.splitlines()[-1]
    assert "fix: unset PYTHON_JULIACALL_EXE PYTHON_JULIACALL_PROJECT" in ran.stdout
    as_json = doctor(tmp_path, "--json", "--backend", "reactant", **NOT_SETTLED)
    assert as_json.returncode == 3
    assert json.loads(as_json.stdout)["exit_code"] == 3


@pytest.mark.parametrize("arguments", [("--backend", "torch"), ("--timeout", "0"), ("--nonsense",)])
def test_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = doctor(tmp_path, *arguments)
    assert ran.returncode == 2
    assert arguments[0].lstrip("-") in ran.stderr
    assert ran.stdout == ""


def test_a_runtime_that_hangs(tmp_path: Path) -> None:
    ran = doctor(tmp_path, "--backend", "jax", NOT_STARTED)
    assert ran.returncode == 3
    assert "FAIL  JAX devices       did not start within 0.05 s and was ended" in ran.stdout
    assert "required and missing: JAX devices" in ran.stdout


def test_no_secret_is_printed(tmp_path: Path) -> None:
    """The output has no secret, even if a command such as this nvidia-smi prints one."""
    executable(tmp_path, "nvidia-smi", "echo using $http_proxy and $WANDB_API_KEY; exit 9")
    ran = doctor(
        tmp_path,
        NOT_STARTED,
        PATH=f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}",
        http_proxy="http://user:pa55word@proxy:3128",
        WANDB_API_KEY="0123456789abcdef",
    )
    shown = ran.stdout + ran.stderr
    assert "nvidia-smi fails: using (hidden) and (hidden)" in " ".join(shown.split())
    assert "pa55word" not in shown
    assert "0123456789abcdef" not in shown
    assert "warn  proxies           http_proxy set" in shown


def test_gpus_of_a_stand_in(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, H100, "4242, /usr/bin/julia, 61000\n")
    path = f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"
    ran = doctor(tmp_path, NOT_STARTED, PATH=path)
    assert "pass  NVIDIA driver     580.95.05, 1 x NVIDIA H100 80GB HBM3" in ran.stdout
    assert "in use by process 4242 (julia, 61000 MiB)" in ran.stdout


def test_the_real_limit_of_open_files(tmp_path: Path) -> None:
    command = f"ulimit -n 256; exec {sys.executable} -m pyreactant doctor {NOT_STARTED}"
    ran = subprocess.run(
        ["bash", "-c", command], env=environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert "warn  open files        at most 256 at once" in ran.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_from_outside(tmp_path: Path, number: int) -> None:
    """The doctor ends its children first; a stand-in for jax hangs during its import."""
    (tmp_path / "jax").mkdir()
    hangs = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
    (tmp_path / "jax" / "__init__.py").write_text(f"{hangs}time.sleep(60)\n")
    settings = environment()
    settings["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{settings['PYTHONPATH']}"
    process = subprocess.Popen(DOCTOR, env=settings, cwd=tmp_path, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 30
    written = tmp_path / "pid"
    while not (written.exists() and written.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[signal.Signals(number)]
    assert not alive(int(written.read_text()))
