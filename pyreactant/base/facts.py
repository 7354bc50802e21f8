"""Facts of this process and its machine: versions, settings, cores, GPUs, TPUs, the Git repository.

Versions are compared by their release numbers: a development version, a release candidate or a
local build counts as the release that it belongs to, because a nightly build of a library is made
to work with the next release. `packaging` is imported when they are compared: it takes 15 ms,
which a command's --help does not wait for.

GPUs and TPUs are counted from the kernel's files, so no runtime is started. Those functions take
the root of the file system, so that a test can imitate a machine.
"""

import contextlib
import hashlib
import itertools
import os
import platform
import re
import resource
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .._version import __version__

if TYPE_CHECKING:
    import subprocess

    from packaging.requirements import Requirement
    from packaging.version import Version

PACKAGES = ("jax", "jaxlib", "libtpu", "juliacall", "numpy")
SETTINGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_PLATFORMS")


def facts(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Versions and settings of this process; "" for a package or variable that is absent."""
    return {
        "python": platform.python_version(),
        "pyreactant": __version__,
        **{package: package_version(package) or "" for package in PACKAGES},
        "julia project": _julia_project(environ),
        **{name: environ.get(name, "")[:1000] for name in SETTINGS},
    }


def package_version(name: str) -> str | None:
    """Version of an installed Python package, or None."""
    import importlib.metadata  # it takes 15 ms, which most processes need not wait for

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _julia_project(environ: Mapping[str, str]) -> str:
    """A digest of the Julia project's project, manifest and preferences."""
    folder = environ.get("PYTHON_JULIACALL_PROJECT") or environ.get("JULIA_PROJECT")
    if not folder:
        return ""
    digest = hashlib.sha256()
    for name in ("Project.toml", "Manifest.toml", "LocalPreferences.toml"):
        try:
            digest.update(Path(folder, name).read_bytes())
        except OSError:
            digest.update(b"absent")
    return digest.hexdigest()[:16]


def usable_cores() -> int:
    """Cores that this process may use; only Linux can tell which those are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class GitState:
    """Commit and changes of the working directory, found in a thread: git may hang."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, object] = {}
        self._running: subprocess.Popen[str] | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._find, daemon=True)
        self._thread.start()

    def result(self, timeout: float = 10.0) -> dict[str, object]:
        """What git says; empty outside a repository, and if git does not answer in time."""
        self._thread.join(timeout)
        self._given_up = True
        if (running := self._running) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        return self._found

    def _find(self) -> None:
        commit = self._git("rev-parse", "HEAD")
        if commit is None:
            return
        changed = (self._git("status", "--porcelain") or "").splitlines()
        self._found = {"commit": commit.strip(), "changed_files": [x[3:] for x in changed][:50]}

    def _git(self, *arguments: str) -> str | None:
        import subprocess  # a process that only counts its GPUs starts none

        if self._given_up:
            return None
        try:
            with subprocess.Popen(
                ["git", "-C", str(self._folder), *arguments],  # noqa: S607 - the user's own git
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                process_group=0,
            ) as self._running:
                out, _ = self._running.communicate()
                return out if self._running.returncode == 0 else None
        except OSError:
            return None
        finally:
            self._running = None


_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def release(version: str) -> "Version":
    """The release that a version belongs to; 0 if the text has no number."""
    from packaging.version import Version

    numbers = _NUMBERS.search(version)
    return Version(numbers[0] if numbers else "0")


def at_least(version: str, oldest: str) -> bool:
    """Whether a version is `oldest` or newer."""
    return release(version) >= release(oldest)


def satisfies(version: str, spec: str) -> bool:
    """Whether a spec such as ">=2.0,<3" admits a version or its release; "" admits all."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    admitted = SpecifierSet(spec, prereleases=True)
    try:
        return version in admitted or release(version) in admitted
    except InvalidVersion:
        return release(version) in admitted


def requirements(lines: Iterable[str], *extras: str) -> Iterator[tuple[str, str]]:
    """The packages that a package requires on this Python, each with its spec.

    Args:
        extras: Names of extras; the result has only what they add. Without any it has the
            requirements that hold without an extra.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # metadata written before PEP 508
            continue
        always = _holds(requirement, "")
        by_extra = not always and any(_holds(requirement, extra) for extra in extras)
        if by_extra if extras else always:
            yield requirement.name, str(requirement.specifier)


def _holds(requirement: "Requirement", extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def required(lines: Iterable[str], package: str, *extras: str) -> str:
    """The required version of a package, such as ">=2.0"; "" for any."""
    from packaging.utils import canonicalize_name

    name = canonicalize_name(package)
    specs = requirements(lines, *extras)
    return next((spec for other, spec in specs if canonicalize_name(other) == name), "")


ROOT = Path("/")

_GOOGLE = "0x1ae0"
_NETWORK_AND_DISKS = (1, 2)  # PCI classes


VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that hide GPUs from a process."""


MEMORY_FRACTIONS = (
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_REACTANT_GPU_MEM_FRACTION",
)
"""Variables that say which part of a GPU's memory a runtime reserves."""

PREALLOCATION = {
    # jaxlib takes 0, false and False for no and anything else for yes; Julia's parse(Bool, ...)
    # accepts only these four.
    "XLA_PYTHON_CLIENT_PREALLOCATE": ("0", "false", "False", "1", "true", "True"),
    "XLA_CLIENT_PREALLOCATE": ("0", "false", "False", "1", "true", "True"),
    "XLA_REACTANT_GPU_PREALLOCATE": ("0", "false", "1", "true"),
}
"""Variables that say whether it reserves any, with their values."""


def usable_gpus(environ: Mapping[str, str] = os.environ) -> int:
    """GPUs that a process with this environment can use."""
    visible = visible_gpus(environ)
    return gpus() if visible is None else visible


def visible_gpus(environ: Mapping[str, str]) -> int | None:
    """The number of GPUs that a variable leaves visible; None if no variable hides any.

    CUDA counts the entries before the first invalid one, so "0,1" is two GPUs and "-1" is none
    (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    listed = next((environ[name] for name in VISIBLE_GPUS if name in environ), None)
    if listed is None:
        return None
    entries = [entry.strip() for entry in listed.split(",")]
    return sum(1 for _ in itertools.takewhile(_is_gpu, entries))


def _is_gpu(entry: str) -> bool:
    return entry not in ("", "-1", "NoDevFiles")


def gpus(root: Path = ROOT) -> int:
    """GPUs of this machine or container: NVIDIA's, otherwise AMD's."""
    return nvidia_gpus(root) or amd_gpus(root)


def nvidia_gpus(root: Path = ROOT) -> int:
    """NVIDIA GPUs that have a device file; a container has files of its own GPUs only."""
    return sum(1 for _ in root.glob("dev/nvidia[0-9]*"))


def nvidia_gpus_of_driver(root: Path = ROOT) -> int:
    """NVIDIA GPUs that the driver lists, including those that this process cannot use."""
    return sum(1 for _ in root.glob("proc/driver/nvidia/gpus/*/information"))


def gpu_serials(root: Path = ROOT) -> tuple[str, ...]:
    """The UUIDs of NVIDIA GPUs, as the driver lists them in order of their bus addresses."""
    found = []
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        with contextlib.suppress(OSError):
            lines = (line.partition(":") for line in file.read_text().splitlines())
            found += [text.strip() for name, _, text in lines if name == "GPU UUID"]
    return tuple(found)


def amd_gpus(root: Path = ROOT) -> int:
    """AMD GPUs, by the nodes of AMD's driver.

    Every CPU socket is a node too, without SIMD units.
    """
    if not (root / "dev/kfd").exists():
        return 0
    count = 0
    for properties in root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"):
        try:
            lines = properties.read_text().splitlines()
        except OSError:  # the driver refuses to show GPUs that this process must not use
            continue
        count += any(line.startswith("simd_count ") and line.split()[1] != "0" for line in lines)
    return count


def tpu_chips(root: Path = ROOT) -> int:
    """TPU chips on the PCI bus.

    They are Google's devices other than network cards and disks, which every virtual machine on
    Google Cloud has (PCI ID repository).
    """
    count = 0
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        try:
            if vendor.read_text().strip() == _GOOGLE:
                kind = int(vendor.with_name("class").read_text(), 16) >> 16
                count += kind not in _NETWORK_AND_DISKS
        except (OSError, ValueError):  # the device was removed, or hides its class
            continue
    return count


def has_accelerator(root: Path = ROOT) -> bool:
    """Whether this process can use a GPU or a TPU."""
    files = ("accel[0-9]*", "accel/accel[0-9]*", "vfio/[0-9]*")
    has_file = any(any((root / "dev").glob(name)) for name in files)
    return gpus(root) > 0 or (has_file and tpu_chips(root) > 0)


def peak_memory(whose: int) -> int:
    """Peak memory in bytes of this process, or of its largest child that has ended.

    Args:
        whose: resource.RUSAGE_SELF or resource.RUSAGE_CHILDREN.
    """
    peak = resource.getrusage(whose).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def available_memory() -> int | None:
    """Bytes of memory that are free on the machine and within this process's cgroup."""
    return min((*_of_machine(), *_of_cgroup()), default=None)


def _of_machine() -> list[int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _of_cgroup() -> Iterator[int]:
    """Bytes that the limits of cgroups (versions 1 and 2) leave; nothing without limits."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            texts = [Path(path).read_text().strip() for path in (limit, used)]
        except OSError:
            continue
        if all(text.isdigit() for text in texts):
            yield max(0, int(texts[0]) - int(texts[1]))
