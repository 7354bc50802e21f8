"""GPUs and TPUs, counted from the kernel's files; each machine is a folder of such files."""

from pathlib import Path

import pytest

from pyreactant.arrays.backend import StartOptions
from pyreactant.arrays.runtimes.reactant import setup as reactant
from pyreactant.base import facts
from pyreactant.process.group import ProcessGroup
from pyreactant.runs.supervisor import RunOptions
from pyreactant.runs.supervisor.options import device_settings


def make(root: Path, *devices: str) -> None:
    """Create device files; they are empty, because nobody opens them."""
    for device in devices:
        path = root / "dev" / device
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def make_nodes(root: Path, sockets: int, gpus: int) -> None:
    """Create the nodes of AMD's driver: CPU sockets first, then GPUs, as the kernel does."""
    for number in range(sockets + gpus):
        node = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        cores, simds = (64, 0) if number < sockets else (0, 1216)
        (node / "gpu_id").write_text(f"{number * 1000 if simds else 0}\n")
        (node / "properties").write_text(
            f"cpu_cores_count {cores}\nsimd_count {simds}\nmem_banks_count 1\nsimd_per_cu 4\n"
        )


def make_pci(root: Path, *devices: tuple[str, str]) -> None:
    """Create devices on the PCI bus, given vendor and class."""
    for number, (vendor, kind) in enumerate(devices):
        device = root / "sys/bus/pci/devices" / f"0000:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")


@pytest.mark.parametrize(("sockets", "gpus"), [(1, 0), (2, 0), (2, 1), (2, 8)])
def test_a_cpu_socket_is_no_gpu(tmp_path: Path, sockets: int, gpus: int) -> None:
    make(tmp_path, "kfd")
    make_nodes(tmp_path, sockets, gpus)
    assert facts.amd_gpus(tmp_path) == gpus
    assert facts.gpus(tmp_path) == gpus
    assert facts.has_accelerator(tmp_path) == (gpus > 0)


def test_every_user_of_the_count_sees_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "kfd")
    make_nodes(tmp_path, sockets=2, gpus=2)
    count = facts.amd_gpus
    monkeypatch.setattr(facts, "nvidia_gpus", lambda root: 0)
    monkeypatch.setattr(facts, "amd_gpus", lambda root: count(tmp_path))
    for name in facts.VISIBLE_GPUS:
        monkeypatch.delenv(name, raising=False)
    assert reactant.local_gpus(ProcessGroup(), StartOptions()) == (0, 1)
    settings = device_settings(RunOptions(["-m", "this"], processes=2), ProcessGroup(), 2)
    assert [s["PYREACTANT_LOCAL_DEVICE_IDS"] for s in settings] == ["0", "1"]


def test_nodes_without_the_device_file(tmp_path: Path) -> None:
    """A container shows all nodes of the machine, but has device files only for its own GPUs."""
    make_nodes(tmp_path, sockets=1, gpus=4)
    assert facts.gpus(tmp_path) == 0


def test_a_node_that_cannot_be_read(tmp_path: Path) -> None:
    make(tmp_path, "kfd")
    make_nodes(tmp_path, sockets=1, gpus=2)
    hidden = tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties"
    hidden.unlink()
    hidden.mkdir()
    assert facts.amd_gpus(tmp_path) == 1


def test_nvidia_gpus(tmp_path: Path) -> None:
    make(tmp_path, "nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1")
    assert facts.nvidia_gpus(tmp_path) == 2
    assert facts.gpus(tmp_path) == 2
    assert facts.nvidia_gpus_of_driver(tmp_path) == 0
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information").touch()
    assert facts.nvidia_gpus_of_driver(tmp_path) == 1


def test_tpus_are_not_taken_for_network_cards(tmp_path: Path) -> None:
    make_pci(
        tmp_path,
        ("0x1ae0", "0x020000"),  # Google's network card
        ("0x1ae0", "0x010802"),  # Google's disk
        ("0x10de", "0x030200"),
        ("0x1ae0", "0xff0000"),
        ("0x1ae0", "0x120000"),
        ("0x1ae0", "nothing"),
    )
    assert facts.tpu_chips(tmp_path) == 2
    assert facts.tpu_chips(tmp_path / "nowhere") == 0


@pytest.mark.parametrize("device", ["accel0", "accel/accel0", "vfio/0"])
def test_a_tpu_needs_its_device_file(tmp_path: Path, device: str) -> None:
    make_pci(tmp_path, ("0x1ae0", "0x120000"))
    assert not facts.has_accelerator(tmp_path)
    make(tmp_path, device)
    assert facts.has_accelerator(tmp_path)
    assert facts.gpus(tmp_path) == 0


def test_device_files_of_something_else(tmp_path: Path) -> None:
    make(tmp_path, "accel0", "vfio/vfio", "vfio/7")
    assert not facts.has_accelerator(tmp_path)
