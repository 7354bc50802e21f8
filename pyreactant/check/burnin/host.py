"""What a machine says of itself: memory, disk, NUMA nodes, counters of its GPUs, other tools.

Counters come from NVML by nvidia-ml-py, which is optional. Without it, and without the right to
read a counter, that counter is not tested.
"""

import contextlib
import os
import platform
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...base.child import output_of
from ...base.counted import counted
from ...base.facts import ROOT, available_memory

TOOL = ("dcgmi", "diag", "-r", "1")
"""The checker of NVIDIA's data centre GPU manager, at its shortest level."""

_TOOL_LIMIT, _LINES = 120.0, 12
"""Seconds that it has, and lines of it that are quoted."""


def resources(root: Path = ROOT) -> dict[str, int]:
    """NUMA nodes, and bytes that are free in memory and on the disk of this folder."""
    nodes = len([*root.glob("sys/devices/system/node/node[0-9]*")])
    return {
        "NUMA nodes": nodes or 1,
        "free memory": available_memory() or 0,
        "free disk": shutil.disk_usage(Path.cwd()).free,
    }


def processor() -> str:
    """Model of the processor, by which results of CPU devices can differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def segments() -> tuple[int, int]:
    """Segments that this process's TCP connections sent so far, and how many of them were lost.

    A segment that is sent again although it had arrived, because a busy host confirms it late, is
    not lost: the other end says so (duplicate SACK, RFC 2883). Both are 0 where nobody counts.
    """
    sent = lost = 0
    for info in _tcp_infos():
        again, duplicates = (_number(info, at) for at in (_TOTAL_RETRANS, _DSACK_DUPS))
        sent += _number(info, _DATA_SEGS_OUT)
        lost += max(0, again - duplicates)
    return sent, lost


_TOTAL_RETRANS, _DATA_SEGS_OUT, _DSACK_DUPS, _TCP_INFO_BYTES = 100, 156, 216, 220
"""Places in `struct tcp_info` of linux/tcp.h, and its size with the last; since Linux 4.19."""


def _tcp_infos() -> Iterator[bytes]:
    """What Linux tells of each TCP connection of this process, the runtime's too."""
    for path in Path("/proc/self/fd").glob("*"):
        # One that is closed meanwhile, or is no connection, is not told of.
        with contextlib.suppress(OSError):
            if not str(path.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as each:
                info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            if len(info) == _TCP_INFO_BYTES:
                yield info


def _number(info: bytes, at: int) -> int:
    return int(struct.unpack_from("I", info, at)[0])


def quoted() -> dict[str, Any] | None:
    """What the checker of NVIDIA's driver says, if it is installed: its exit code and output."""
    try:
        ran = output_of(TOOL, timeout=_TOOL_LIMIT)
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"exit_code": None, "output": str(error)}
    lines = f"{ran.stdout}{ran.stderr}".splitlines()
    return {"exit_code": ran.returncode, "output": "\n".join(lines[-_LINES:])}


class Gpus:
    """NVIDIA GPUs, by NVML.

    Args:
        positions: Positions of this process's devices, in the runtime's order.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        self._nvml = nvml = _nvml()
        self._handles: dict[int, Any] = {}
        self._events: dict[int, Any] = {}
        names = _visible(len(positions)) if nvml else []
        for position, name in zip(positions, names, strict=False):
            by_name = nvml.nvmlDeviceGetHandleByUUID
            by_number = nvml.nvmlDeviceGetHandleByIndex
            try:
                handle = by_number(int(name)) if name.isdigit() else by_name(name)
            except nvml.NVMLError:
                continue  # it cannot be seen here, and is not tested
            self._handles[position] = handle
            with contextlib.suppress(nvml.NVMLError):
                events = nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
                self._events[position] = events
        self._before = {position: self._ecc(handle) for position, handle in self._handles.items()}

    def new_errors(self) -> Iterator[tuple[int, str]]:
        """Each GPU that has counters, and what they counted since the last call; "" for nothing."""
        for position, handle in self._handles.items():
            before, now = self._before[position], self._ecc(handle)
            self._before[position] = now
            if now is None and position not in self._events:
                continue
            new = [] if now is None or before is None else [now - before]
            texts = [counted(n, "uncorrectable ECC error") for n in new if n > 0]
            yield position, ", ".join([*texts, *(f"Xid {xid}" for xid in self._xids(position))])

    def others(self, position: int) -> str:
        """Who else computes on a GPU: the share of its memory, and the processes; "" for nobody."""
        if position not in self._handles:
            return ""
        handle = self._handles[position]
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            total = self._nvml.nvmlDeviceGetMemoryInfo(handle).total
        except self._nvml.NVMLError:
            return ""
        others = [each for each in running if each.pid != os.getpid()]
        used = sum(each.usedGpuMemory or 0 for each in others)
        names = ", ".join(f"{each.pid} ({_name(each.pid)})" for each in others[:4])
        return f"{used / total:.0%} of its memory, processes {names}" if others else ""

    def _ecc(self, handle: Any) -> int | None:
        """Errors that could not be corrected since the driver started; None if it is not told."""
        nvml = self._nvml
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        try:
            return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))
        except nvml.NVMLError:
            return None

    def _xids(self, position: int) -> Iterator[int]:
        nvml = self._nvml
        for _ in range(_LINES if position in self._events else 0):
            try:
                yield int(nvml.nvmlEventSetWait(self._events[position], 0).eventData)
            except nvml.NVMLError:
                return  # nothing more has happened


def _nvml() -> Any:
    """NVML, started; None without the package, the library or a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _visible(count: int) -> list[str]:
    """Numbers or UUIDs of the GPUs that this process sees, in CUDA's order."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [name.strip() for name in names if name.strip()] or [str(n) for n in range(count)]


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return "of another user or container"
