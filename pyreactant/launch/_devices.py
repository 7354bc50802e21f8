"""Which devices each process of this machine gets."""

from pathlib import Path

from .._errors import InvalidArgumentError
from ..process_group import ProcessGroup
from ..process_group._environment import LOCAL_DEVICES
from ._options import RunOptions


def device_settings(
    options: RunOptions, group: ProcessGroup, processes: int
) -> list[dict[str, str]]:
    """``PYREACTANT_*`` settings of each of the processes that this supervisor starts.

    Raises:
        InvalidArgumentError: This machine has not the GPUs that were asked for.
    """
    common = {}
    if options.backend is not None:
        common["PYREACTANT_BACKEND"] = options.backend
    if options.platform is not None:
        common["PYREACTANT_PLATFORM"] = options.platform
    each = options.devices_per_process
    gpus = 0 if options.platform in ("cpu", "tpu") else _gpus()
    if options.platform == "tpu" and processes > 1:
        raise InvalidArgumentError(
            "one process drives all TPU chips of a machine: leave --processes away"
        )
    if not gpus and options.platform != "gpu":
        count = each or (1 if processes > 1 else None)
        if count is not None:
            common["PYREACTANT_NUM_CPU_DEVICES"] = str(count)
        return [common] * processes
    if group.local_device_ids is not None:
        ids = ",".join(map(str, group.local_device_ids))
        return [{**common, LOCAL_DEVICES: ids}] * processes
    if processes == 1 and each is None:
        return [common]
    each = each or gpus // processes
    if each * processes > gpus or not each:
        raise InvalidArgumentError(
            f"{processes} processes of {each or 1} GPUs each were asked for, but this machine has "
            f"{gpus}; use fewer, or --platform cpu"
        )
    return [
        {**common, LOCAL_DEVICES: ",".join(str(i * each + j) for j in range(each))}
        for i in range(processes)
    ]


def _gpus() -> int:
    """NVIDIA or AMD GPUs of this machine, by the kernel's device files; no runtime is asked."""
    nvidia = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return nvidia or len(list(Path("/sys/class/kfd/kfd/topology/nodes").glob("[1-9]*")))
