"""Processes that the kernel killed for lack of memory; SIGKILL alone does not tell why."""

from pathlib import Path


def out_of_memory_kills() -> int:
    """Number of kills for lack of memory in this process's cgroup, otherwise on the machine.

    From ``memory.events`` (cgroup v2), ``memory.oom_control`` (v1) or ``/proc/vmstat``, whose
    line ``oom_kill`` is described in the kernel's Documentation/admin-guide/cgroup-v2.rst.
    """
    for path in [*_cgroup_files(), Path("/proc/vmstat")]:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def _cgroup_files() -> list[Path]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, folder = line.split(":", 2)
        if not controllers:
            found.append(Path("/sys/fs/cgroup", folder.lstrip("/"), "memory.events"))
        elif "memory" in controllers.split(","):
            found.append(Path("/sys/fs/cgroup/memory", folder.lstrip("/"), "memory.oom_control"))
    return found
