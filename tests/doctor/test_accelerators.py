"""NVIDIA's driver, GPUs, TPUs and the processes that use them; nvidia-smi is a stand-in."""

from pathlib import Path

import pytest

from pyreactant.doctor import accelerators
from tests.doctor.machines import (
    H100,
    executable,
    jax_packages,
    machine,
    nvidia_driver,
    nvidia_smi,
    package,
    process,
    tpu_chips,
)


def test_no_driver(tmp_path: Path) -> None:
    assert accelerators.driver(machine(tmp_path)).found == "no NVIDIA driver"
    assert accelerators.users(machine(tmp_path)).status == "pass"


def test_a_driver_without_nvidia_smi(tmp_path: Path) -> None:
    nvidia_driver(tmp_path, 2)
    found = accelerators.driver(machine(tmp_path))
    assert found.status == "warn"
    assert found.found == "580.95.05 with 2 GPUs, but nvidia-smi is not on PATH"


def test_gpus(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, H100 + H100.replace("0, ", "1, ", 1))
    found = accelerators.driver(machine(tmp_path))
    assert (found.status, found.found) == ("pass", "580.95.05, 2 x NVIDIA H100 80GB HBM3")
    assert accelerators.users(machine(tmp_path)).found == "no process uses a GPU"


@pytest.mark.parametrize(
    ("output", "mend"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "sudo reboot"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running.",
            "sudo modprobe nvidia",
        ),
    ],
)
def test_a_broken_driver(tmp_path: Path, output: str, mend: str) -> None:
    executable(tmp_path, "nvidia-smi", f'echo "{output}"; exit 9')
    found = accelerators.driver(machine(tmp_path))
    assert (found.status, found.mend) == ("fail", mend)
    assert output[:60] in found.found
    assert accelerators.users(machine(tmp_path)).status == "warn"


@pytest.mark.parametrize(
    ("driver", "cuda", "status"),
    [
        ("580.65.06", "13", "pass"),
        ("575.57.08", "13", "fail"),
        ("575.57.08", "12", "pass"),
        ("470.256.02", "12", "fail"),
    ],
)
def test_the_driver_against_the_plugin(tmp_path: Path, driver: str, cuda: str, status: str) -> None:
    jax_packages(tmp_path)
    package(tmp_path, f"jax-cuda{cuda}-plugin", "0.10.2")
    nvidia_smi(tmp_path, H100.replace("580.95.05", driver))
    found = accelerators.driver(machine(tmp_path))
    assert found.status == status, found
    if status == "fail":
        assert f"JAX's plugin for CUDA {cuda} is installed" in found.found
        assert found.mend


def test_a_prohibited_gpu(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, H100.replace("Default", "Prohibited"))
    found = accelerators.driver(machine(tmp_path))
    assert (found.status, found.mend) == ("fail", "sudo nvidia-smi -c DEFAULT")


def test_who_uses_the_gpus(tmp_path: Path) -> None:
    apps = "".join(f"{4242 + n}, /opt/conda/bin/python, 61000\n" for n in range(6))
    nvidia_smi(tmp_path, H100, apps)
    found = accelerators.users(machine(tmp_path))
    assert found.status == "warn"
    assert "process 4242 (python, 61000 MiB)" in found.found
    assert "and 2 more" in found.found
    assert "admits no other process" not in found.found


def test_an_exclusive_gpu_in_use(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, H100.replace("Default", "Exclusive_Process"), "7, julia, 100\n")
    assert "and admits no other process" in accelerators.users(machine(tmp_path)).found


def test_users_that_cannot_be_seen(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, H100.replace(" 4,", " 61000,"))
    found = accelerators.users(machine(tmp_path))
    assert found.status == "warn"
    assert "not visible here use memory: GPU 0 61000 MiB" in found.found


def test_a_driver_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path, "nvidia-smi", "sleep 30")
    here = machine(tmp_path)
    assert here.run([str(here.which("nvidia-smi")), "-L"], 0.3).code is None
    run = type(here).run
    monkeypatch.setattr(type(here), "run", lambda self, argv, seconds=0: run(self, argv, 0.2))
    found = accelerators.driver(here)
    assert found.status == "fail"
    assert "did not answer" in found.found


def test_no_tpu(tmp_path: Path) -> None:
    tpu_chips(tmp_path, 0)  # Google's network card is not a TPU
    assert accelerators.tpu(machine(tmp_path)).found == "no TPU"


@pytest.mark.parametrize("device", ["/dev/accel0", "/dev/vfio/0"])
def test_who_holds_a_tpu(tmp_path: Path, device: str) -> None:
    tpu_chips(tmp_path, 4)
    process(tmp_path, 77, "bash", "/dev/null")
    assert accelerators.tpu(machine(tmp_path)).status == "pass"
    process(tmp_path, 4711, "python3", device)
    found = accelerators.tpu(machine(tmp_path))
    assert found.status == "warn"
    assert "4 chips, in use by process 4711 (python3)" in found.found
    assert found.mend == "kill 4711"
