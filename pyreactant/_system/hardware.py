"""GPUs and TPUs of this machine, counted from the kernel's files: no runtime is started.

Every function takes the root of the file system, so that a test can imitate a machine.
"""

from pathlib import Path

ROOT = Path("/")

_GOOGLE = "0x1ae0"
_NETWORK_AND_DISKS = (1, 2)  # PCI classes


def gpus(root: Path = ROOT) -> int:
    """GPUs that this process can use: NVIDIA's, otherwise AMD's."""
    return nvidia_gpus(root) or amd_gpus(root)


def nvidia_gpus(root: Path = ROOT) -> int:
    """NVIDIA GPUs that have a device file; a container has files of its own GPUs only."""
    return sum(1 for _ in root.glob("dev/nvidia[0-9]*"))


def nvidia_gpus_of_driver(root: Path = ROOT) -> int:
    """NVIDIA GPUs that the driver lists, including those that this process cannot use."""
    return sum(1 for _ in root.glob("proc/driver/nvidia/gpus/*/information"))


def amd_gpus(root: Path = ROOT) -> int:
    """AMD GPUs, by the nodes of AMD's driver.

    Every CPU socket is a node too, without SIMD units.
    """
    if not (root / "dev/kfd").exists():
        return 0
    found = 0
    for properties in root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"):
        try:
            lines = properties.read_text().splitlines()
        except OSError:  # the driver refuses to show GPUs that this process must not use
            continue
        found += any(line.startswith("simd_count ") and line.split()[1] != "0" for line in lines)
    return found


def tpu_chips(root: Path = ROOT) -> int:
    """TPU chips on the PCI bus.

    They are Google's devices other than network cards and disks, which every virtual machine on
    Google Cloud has (PCI ID repository).
    """
    found = 0
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        try:
            if vendor.read_text().strip() == _GOOGLE:
                kind = int(vendor.with_name("class").read_text(), 16) >> 16
                found += kind not in _NETWORK_AND_DISKS
        except (OSError, ValueError):  # the device was removed, or hides its class
            continue
    return found


def has_accelerator(root: Path = ROOT) -> bool:
    """Whether this process can use a GPU or a TPU."""
    files = ("accel[0-9]*", "accel/accel[0-9]*", "vfio/[0-9]*")
    has_file = any(any((root / "dev").glob(name)) for name in files)
    return gpus(root) > 0 or (has_file and tpu_chips(root) > 0)
