"""Machines made of real files: packages, executables and devices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyreactant.doctor.check import Disk, Machine

GIB = 2**30
# The output of nvidia-smi with --format=csv,noheader,nounits.
H100 = "0, NVIDIA H100 80GB HBM3, 580.95.05, 81559, 4, Default\n"
NVRM = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Fri Oct 10 10:00:00 UTC 2025\n"
    "GCC version:  gcc version 12.2.0\n"
)

# Preferences count only for packages that the project names.
NAMED = """[deps]
Reactant = "3c362404-f566-11ee-1572-e11a4b42c853"
Reactant_jll = "0192cb87-2b54-54ad-80e0-3be72ad8a3c0"
"""


def machine(folder: Path, **facts: Any) -> Machine:
    """A machine in a folder, without problems except for the given ones.

    The keyword arguments are those of `Machine`, with environ added to PATH and HOME.
    """
    for name in ("root", "home", "bin", "packages"):
        (folder / name).mkdir(exist_ok=True)
    environ = {
        "PATH": str(folder / "bin"),
        "HOME": str(folder / "home"),
        **facts.pop("environ", {}),
    }
    settings: dict[str, Any] = {
        "environ": environ,
        "root": folder / "root",
        "packages": [str(folder / "packages")],
        "host": "node7",
        "addresses": lambda host: ["10.0.0.7"],
        "own_address": lambda: "10.0.0.7",
        "disk": lambda path: Disk(100 * GIB, 50 * GIB),
        "open_files": lambda: (65536, 65536),
        **facts,
    }
    return Machine(**settings)


def package(
    folder: Path, name: str, version: str, requires: Sequence[str] = (), direct_url: str = ""
) -> None:
    """Write the metadata of an installed package."""
    info = folder / "packages" / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)


def jax_packages(folder: Path, version: str = "0.10.2", jaxlib: str | None = None) -> None:
    """Install metadata of jax, with the requirements of jax 0.10.2, and of jaxlib."""
    exact = f"<={version},>={version}"
    requires = [
        f"jaxlib<={version},>=0.10.1",
        "numpy>=2.0",
        'libtpu==0.0.42.*; extra == "tpu"',
        f'jax-cuda12-plugin[with-cuda]{exact}; extra == "cuda12"',
        f'jax-cuda12-plugin{exact}; extra == "cuda12-local"',
        f'jax-cuda13-plugin[with-cuda]{exact}; extra == "cuda13"',
    ]
    package(folder, "jax", version, requires)
    package(folder, "jaxlib", jaxlib or version)


def executable(folder: Path, name: str, script: str) -> Path:
    """A stand-in for an executable: a shell script of this name on the machine's PATH."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n# stand-in for {name}\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)
    return path


def nvidia_smi(folder: Path, gpus: str = H100, apps: str = "") -> None:
    """A stand-in for nvidia-smi that answers the doctor's two queries in the real format."""
    (folder / "gpus").write_text(gpus)
    (folder / "apps").write_text(apps)
    script = f'case "$1" in *gpu*) cat {folder}/gpus;; *apps*) cat {folder}/apps;; esac'
    executable(folder, "nvidia-smi", script)


def nvidia_driver(folder: Path, gpus: int, version: str = "580.95.05") -> None:
    """Write what NVIDIA's driver shows in /proc."""
    base = folder / "root" / "proc" / "driver" / "nvidia"
    for number in range(gpus):
        gpu = base / "gpus" / f"0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: NVIDIA H100\n")
    base.mkdir(parents=True, exist_ok=True)
    (base / "version").write_text(NVRM.format(version))


def tpu_chips(folder: Path, chips: int) -> None:
    """Write what the PCI bus shows for Google's TPUs, and a network card of Google's."""
    devices = folder / "root" / "sys" / "bus" / "pci" / "devices"
    for number in range(chips + 1):
        device = devices / f"0000:00:0{number}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x1ae0\n")
        (device / "class").write_text("0x020000\n" if number == chips else "0x088000\n")


def process(folder: Path, pid: int, name: str, holds: str) -> None:
    """Add a process that has a device open."""
    descriptors = folder / "root" / "proc" / str(pid) / "fd"
    descriptors.mkdir(parents=True)
    (descriptors / "3").symlink_to(holds)
    (descriptors.parent / "comm").write_text(f"{name}\n")


def julia_project(folder: Path, versions: Mapping[str, str], preferences: str = "") -> Path:
    """A Julia project with these packages in its manifest."""
    path = folder / "Julia Projekt ü"  # blanks and non-ASCII letters are allowed
    path.mkdir()
    (path / "Project.toml").write_text(NAMED)
    lines = ['julia_version = "1.12.1"', 'manifest_format = "2.0"']
    for name, version in versions.items():
        lines += [f"[[deps.{name}]]", f'version = "{version}"']
    (path / "Manifest.toml").write_text("\n".join(lines) + "\n")
    if preferences:
        (path / "LocalPreferences.toml").write_text(preferences)
    return path


def julia(folder: Path, version: str = "1.12.1") -> Path:
    """A stand-in for Julia that only prints its version."""
    return executable(folder, "julia", f"echo julia version {version}")


def settled(executable_: Path, project: Path) -> dict[str, str]:
    """The environment variables that name a Julia and its project."""
    return {"PYTHON_JULIACALL_EXE": str(executable_), "PYTHON_JULIACALL_PROJECT": str(project)}


def interpreter(folder: Path, script: str) -> str:
    """A stand-in for the interpreter of the doctor's child processes."""
    return str(executable(folder, "python-stand-in", script))


def answering(folder: Path, answer: str) -> str:
    """An interpreter that prints this answer in every child."""
    (folder / "answer").write_text(answer + "\n")
    return interpreter(folder, f"cat {folder}/answer")
