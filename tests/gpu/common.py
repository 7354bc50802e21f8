"""Which GPUs and which NCCL this machine has, and how processes start on them."""

import ctypes
from importlib.metadata import PackageNotFoundError, files

from pyreactant.base import facts
from pyreactant.base.settings import LOCAL_DEVICES

ON_GPU = {"PYREACTANT_PLATFORM": "gpu", "XLA_FLAGS": ""}
"""Settings of processes that use this machine's GPUs, with XLA as users have it."""

SHARE_ONE = {
    **ON_GPU,
    LOCAL_DEVICES: "0",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
}
"""Settings of several processes that share one GPU. By default each would reserve 75 % of its
memory, and NCCL would refuse the second (NCCL's documentation, "Environment Variables")."""

LEAST_NCCL = 23000
"""NCCL 2.30 is the first in which ranks can share a GPU."""


def absent() -> str | None:
    """Why there is no GPU to test on; None if there is one."""
    return None if facts.nvidia_gpus() else "this machine has no NVIDIA GPU"


def cannot_share() -> str | None:
    """Why processes cannot share a GPU; None if they can."""
    if why := absent():
        return why
    found = nccl_version()
    if found < LEAST_NCCL:
        return f"ranks share a GPU with NCCL 2.30 or newer, here is {found or 'none'}"
    return None


def nccl_version() -> int:
    """The version of the NCCL that jax uses, such as 23203 for 2.32.3; 0 without one."""
    for package in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        try:
            paths = [path for path in files(package) or () if path.name == "libnccl.so.2"]
        except PackageNotFoundError:
            continue
        number = ctypes.c_int()
        ctypes.CDLL(str(paths[0].locate())).ncclGetVersion(ctypes.byref(number))
        return number.value
    return 0
