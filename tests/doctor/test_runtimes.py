"""Child processes of the runtimes: every outcome is a row, and no process remains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyreactant.doctor import Diagnosis, diagnose
from pyreactant.doctor.check import Check, Machine
from pyreactant.doctor.runtimes import child_environment
from tests import harness
from tests.doctor.machines import (
    answering,
    interpreter,
    jax_packages,
    julia,
    julia_project,
    machine,
    nvidia_driver,
    package,
    process,
    settled,
    tpu_chips,
)
from tests.harness import environment, until

ON_CPU = {"platform": "cpu", "kinds": ["cpu"], "devices": 8, "xla_runtime": None, "seconds": 1.2}


def row(diagnosis: Diagnosis, name: str) -> Check:
    return next(check for check in diagnosis.checks if check.name == name)


def with_jax(folder: Path, python: str, **facts: object) -> Machine:
    jax_packages(folder)
    package(folder, "numpy", "2.4.0")
    return machine(folder, python=python, **facts)


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_started(tmp_path: Path) -> None:
    here = with_jax(tmp_path, answering(tmp_path, json.dumps(ON_CPU)))
    found = diagnose("jax", machine=here)
    devices = row(found, "JAX devices")
    assert devices.to_dict() == {
        "name": "JAX devices",
        "group": "runtimes",
        "status": "pass",
        "required": True,
        "found": "cpu, 8 devices, started in 1.2 s",
        "mend": "",
    }
    assert row(found, "usable runtime").found == "JAX"
    assert row(found, "Reactant devices").found == "not started: only JAX is requested"


def test_guard_that_does_not_see_jit(tmp_path: Path) -> None:
    here = with_jax(tmp_path, answering(tmp_path, json.dumps({**ON_CPU, "sees_jit": False})))
    devices = row(diagnose("jax", machine=here), "JAX devices")
    assert devices.status == "warn"
    assert devices.found.endswith(
        "; in this version the guard does not see what jax.jit compiles, and "
        "PYREACTANT_COMPILE_CACHE has no effect"
    )
    assert devices.mend.endswith("pip install -U pyreactant")


def test_too_late(tmp_path: Path) -> None:
    """The doctor ends a late child and its descendants, even if they ignore signals."""
    pids_file = tmp_path / "pids"
    script = f"""echo Precompiling >&2; trap '' TERM
        sleep 1000 & echo $! $$ > {pids_file}; wait"""
    environ = {"HTTPS_PROXY": "http://proxy:1"}
    here = with_jax(tmp_path, interpreter(tmp_path, script), environ=environ)
    found = diagnose("jax", timeout=0.5, machine=here)
    devices = row(found, "JAX devices")
    assert (devices.status, found.exit_code) == ("fail", 3)
    assert devices.found == (
        "did not start within 0.5 s and was ended; HTTPS_PROXY may be why; its last output: "
        "Precompiling"
    )
    assert devices.mend == "pyreactant doctor --backend jax --timeout 2.5"
    pids = [int(pid) for pid in pids_file.read_text().split()]
    until(lambda: not any(map(alive, pids)))


def test_too_late_on_a_slice(tmp_path: Path) -> None:
    tpu_chips(tmp_path, 4)
    here = with_jax(tmp_path, interpreter(tmp_path, "exec sleep 60"))
    devices = row(diagnose("jax", timeout=0.2, machine=here), "JAX devices")
    assert "waits for the processes of the others" in devices.found


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("kill -ABRT $$", "the process that starts it was killed by signal 6"),
        ("echo hello; echo '[1]'", "the process that starts it ended with code 0"),
        ("echo gone >&2; exit 7", "the process that starts it ended with code 7: gone"),
        (
            "printf 'F1121 19:10:29.744415   142 tpu.cc:23] chips have no mesh\\nmore' >&2; exit 1",
            "the process that starts it ended with code 1: chips have no mesh",
        ),
    ],
)
def test_lost(tmp_path: Path, script: str, found: str) -> None:
    here = with_jax(tmp_path, interpreter(tmp_path, script))
    diagnosis = diagnose(machine=here)
    devices = row(diagnosis, "JAX devices")
    assert (devices.status, devices.required, devices.found) == ("fail", False, found)
    usable = row(diagnosis, "usable runtime")
    assert (usable.status, usable.required, diagnosis.exit_code) == ("fail", True, 3)


def test_no_interpreter(tmp_path: Path) -> None:
    here = with_jax(tmp_path, str(tmp_path / "no python"))
    devices = row(diagnose("jax", machine=here), "JAX devices")
    assert devices.status == "fail"
    assert "cannot be started" in devices.found


@pytest.mark.parametrize("how", ["error", "lost", "on the CPU"])
def test_a_tpu_in_use(tmp_path: Path, how: str) -> None:
    # libtpu's message (jax-ml/jax#22070); without a requested platform, JAX falls back to the CPU.
    answer = "ABORTED: The TPU is already in use by process with pid 4711. Not attempting to load"
    script = {
        "error": f"echo '{json.dumps({'error': answer})}'",
        "lost": f"echo '{answer}' >&2; exit 1",
        "on the CPU": f"echo \"Unable to initialize backend 'tpu': {answer}\" >&2; "
        f"echo '{json.dumps(ON_CPU)}'",
    }[how]
    tpu_chips(tmp_path, 4)
    process(tmp_path, 4711, "python3", "/dev/accel0")
    diagnosis = diagnose("jax", machine=with_jax(tmp_path, interpreter(tmp_path, script)))
    devices = row(diagnosis, "JAX devices")
    assert (devices.status, devices.mend) == ("warn", "kill 4711")
    assert devices.found == "the accelerator is in use by process 4711 (python3)"
    assert diagnosis.exit_code == 0  # nothing is missing


@pytest.mark.parametrize("seen", [True, False])
def test_a_tpu_in_use_by_somebody(tmp_path: Path, seen: bool) -> None:
    answer = "TPU initialization failed: open(/dev/vfio/0): Device or resource busy"
    tpu_chips(tmp_path, 4)
    if seen:
        process(tmp_path, 4711, "python3", "/dev/vfio/0")
    here = with_jax(tmp_path, answering(tmp_path, json.dumps({"error": f"UNKNOWN: {answer}"})))
    devices = row(diagnose("jax", machine=here), "JAX devices")
    assert devices.status == "warn"
    if seen:
        assert devices.found == "the accelerator is in use by process 4711 (python3)"
    else:
        assert devices.found == f"the accelerator is busy: UNKNOWN: {answer}"
        assert devices.mend == "sudo lsof -w /dev/accel* /dev/vfio/*"


def test_a_busy_gpu(tmp_path: Path) -> None:
    nvidia_driver(tmp_path, 1)
    answer = {"error": "INTERNAL: CUDA_ERROR_OUT_OF_MEMORY: out of memory"}
    here = with_jax(tmp_path, answering(tmp_path, json.dumps(answer)))
    devices = row(diagnose(machine=here), "JAX devices")
    assert (devices.status, devices.mend) == ("warn", "nvidia-smi")
    assert devices.found.startswith("the accelerator is busy: INTERNAL: CUDA_ERROR_OUT_OF_MEMORY")


def test_a_refusal_and_its_own_advice(tmp_path: Path) -> None:
    error = "backend 'jax' needs the package x; install it with: python -m pip install x"
    answer = {"error": error, "command": "python -m pip install x"}
    here = with_jax(tmp_path, answering(tmp_path, json.dumps(answer)))
    devices = row(diagnose("jax", machine=here), "JAX devices")
    assert (devices.status, devices.mend) == ("fail", "python -m pip install x")
    assert devices.found == error


def test_a_preloaded_library(tmp_path: Path) -> None:
    package(tmp_path, "juliacall", "0.9.37")
    project = julia_project(tmp_path, {"Reactant": "0.2.280"})
    answer = {"error": "Julia must be started without LD_PRELOAD, which is 'x'"}
    here = machine(
        tmp_path,
        python=answering(tmp_path, json.dumps(answer)),
        environ={**settled(julia(tmp_path), project), "LD_PRELOAD": "x"},
    )
    devices = row(diagnose("reactant", machine=here), "Reactant devices")
    assert (devices.status, devices.mend) == ("fail", "unset LD_PRELOAD")


def test_a_gpu_that_is_not_used(tmp_path: Path) -> None:
    nvidia_driver(tmp_path, 4)
    log = "Unable to initialize backend 'cuda': no supported devices found"
    script = f"echo \"{log}\" >&2; echo '{json.dumps(ON_CPU)}'"
    here = with_jax(tmp_path, interpreter(tmp_path, script))
    diagnosis = diagnose("jax", machine=here)
    devices = row(diagnosis, "JAX devices")
    assert devices.status == "warn"
    assert "without this machine's 4 GPUs (no supported devices found)" in devices.found
    assert devices.mend.endswith("install 'jax[cuda13]'")
    reported = Machine(
        **{**_fields(here), "environ": {**here.environ, "PYREACTANT_PLATFORM": "cpu"}}
    )
    assert row(diagnose("jax", machine=reported), "JAX devices").status == "pass"


def _fields(here: Machine) -> dict[str, object]:
    return {name: getattr(here, name) for name in Machine.__slots__ if name != "results"}


def test_reactant_is_started_where_it_is_asked_for(tmp_path: Path) -> None:
    package(tmp_path, "juliacall", "0.9.37")
    versions = {"Reactant": "0.2.280", "Reactant_jll": "0.0.250+0"}
    project = julia_project(tmp_path, versions, '[Reactant]\nxla_runtime = "IFRT"\n')
    answer = {**ON_CPU, "devices": 1, "xla_runtime": "IFRT"}
    here = machine(
        tmp_path,
        python=answering(tmp_path, json.dumps(answer)),
        environ=settled(julia(tmp_path), project),
    )
    reported = diagnose("reactant", machine=here)
    assert row(reported, "Reactant devices").found == "cpu, 1 device, started in 1.2 s"
    assert row(reported, "XLA runtime").found == "IFRT, by preference; loaded: IFRT"
    assert [check.name for check in reported.missing] == ["numpy"]
    anyhow = diagnose(machine=here)
    assert "not started because it takes long" in row(anyhow, "Reactant devices").found
    assert row(anyhow, "XLA runtime").found == "IFRT, by preference"
    usable = row(anyhow, "usable runtime")
    assert (usable.status, usable.mend) == ("warn", "pyreactant doctor --backend reactant")


def test_one_after_the_other(tmp_path: Path) -> None:
    """Only one process at a time can use a TPU."""
    package(tmp_path, "juliacall", "0.9.37")
    project = julia_project(tmp_path, {"Reactant": "0.2.280"})
    script = f"echo begin >> {tmp_path}/order; sleep 0.2; echo end >> {tmp_path}/order"
    here = with_jax(
        tmp_path, interpreter(tmp_path, script), environ=settled(julia(tmp_path), project)
    )
    diagnose(deep=True, machine=here)
    assert (tmp_path / "order").read_text().split() == ["begin", "end"] * 2


def test_the_childs_environment(tmp_path: Path) -> None:
    environ = {
        "SLURM_JOB_ID": "9",
        "OMPI_COMM_WORLD_SIZE": "4",
        "PYREACTANT_NUM_PROCESSES": "4",
        "PYREACTANT_PLATFORM": "cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "JAX_PLATFORMS": "cpu",
    }
    kept = child_environment(machine(tmp_path, environ=environ))
    assert not [n for n in kept if n.startswith(("SLURM_", "OMPI_"))]
    assert "PYREACTANT_NUM_PROCESSES" not in kept
    assert kept["PYREACTANT_PLATFORM"] == kept["JAX_PLATFORMS"] == "cpu"
    # The doctor does not allocate memory on a GPU that others use.
    assert kept["XLA_PYTHON_CLIENT_PREALLOCATE"] == kept["XLA_REACTANT_GPU_PREALLOCATE"] == "false"


def test_the_real_jax_and_none_of_it_here(tmp_path: Path) -> None:
    code = (
        "import json, sys; from pyreactant.doctor import diagnose; found = diagnose('jax');"
        "print(json.dumps([found.to_dict(), sorted(sys.modules)]))"
    )
    settings = environment(PYREACTANT_NUM_CPU_DEVICES="3", SLURM_JOB_ID="9", SLURM_NTASKS="4")
    ran = harness.run([sys.executable, "-c", code], env=settings, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found, modules = json.loads(ran.stdout)
    devices = next(check for check in found["checks"] if check["name"] == "JAX devices")
    assert devices["status"] == "pass", devices
    assert devices["found"].startswith("cpu, 3 devices, started in")
    assert not {"jax", "jaxlib", "juliacall"} & set(modules)


def test_a_flag_that_the_real_xla_does_not_know() -> None:
    flags = "--xla_nonsense=1 --xla_cpu_enable_fast_math=false"
    here = Machine(environ=environment(XLA_FLAGS=flags))
    devices = row(diagnose("jax", machine=here), "JAX devices")
    assert devices.status == "fail"
    assert devices.found.endswith("XLA_FLAGS has unknown flags: --xla_nonsense=1")
    assert devices.mend == "export XLA_FLAGS=--xla_cpu_enable_fast_math=false"


def test_a_killed_doctor_leaves_nothing(tmp_path: Path) -> None:
    """A real doctor with a real child, in which a stand-in for jax hangs during its import."""
    (tmp_path / "jax").mkdir()
    hangs = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
    (tmp_path / "jax" / "__init__.py").write_text(f"{hangs}time.sleep(60)\n")
    settings = environment()
    settings["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{settings['PYTHONPATH']}"
    doctor = subprocess.Popen(
        [sys.executable, "-c", "from pyreactant.doctor import diagnose; diagnose('jax')"],
        env=settings,
        cwd=tmp_path,
        start_new_session=True,
    )
    pid = tmp_path / "pid"
    child = int(until(lambda: pid.exists() and pid.read_text()))
    doctor.kill()
    doctor.wait()
    until(lambda: not alive(child))
