"""The TPU chips of this machine, and who holds them: a chip belongs to one process."""

import re
from collections.abc import Iterator

from ..process_group._metadata import tpu_chips
from ._check import Found
from ._machine import Machine

_DEVICE = re.compile(r"/dev/(accel\d+|vfio/\d+)$")


def tpu(machine: Machine) -> Found:
    """Chips, and the processes that hold them, as far as this user may see."""
    chips = tpu_chips(str(machine.file("/sys/bus/pci/devices")))
    if not chips:
        return Found("pass", "no TPU is here")
    held = holders(machine)
    if held:
        names = ", ".join(f"process {pid} ({process_name(machine, pid)})" for pid in held)
        text = f"{chips} chips, in use by {names}; a TPU belongs to one process at a time"
        return Found("warn", text, f"kill {' '.join(map(str, held))}")
    return Found("pass", f"{chips} chips, held by no process that this user may see")


def process_name(machine: Machine, pid: int) -> str:
    """What a process is called; its arguments, which may hold secrets, are not shown."""
    try:
        return machine.file(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another user or machine"


def holders(machine: Machine) -> list[int]:
    """The processes that hold a TPU, as far as this user may see."""
    return sorted(set(_holders(machine)))


def _holders(machine: Machine) -> Iterator[int]:
    for process in machine.file("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if _DEVICE.search(str(descriptor.readlink())):
                    yield int(process.name)
        except OSError:  # it has ended, or is another user's
            continue
