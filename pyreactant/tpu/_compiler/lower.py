"""Lower a program with the Reactant runtime, in a child process with as many CPU devices."""

import importlib.util
import re
from typing import NamedTuple

from ... import _errors
from ..._errors import PyReactantError, RequirementError
from ..._julia.place import find_place
from ..._system.child import Activity, ask_child
from ..._system.environment import LAUNCHERS, TPU, import_path, without
from .._request import Request

_DEVICES = re.compile(r"--xla_force_host_platform_device_count=\S*")


class Lowered(NamedTuple):
    """A program as Reactant lowered it.

    Attributes:
        text: StableHLO with Shardy's shardings.
        versions: Of Julia, Reactant and the Julia package PyReactant.
    """

    text: str
    versions: dict[str, str]


def check_julia() -> None:
    """Whether Julia is here, as far as can be seen without starting it.

    Raises:
        RequirementError: It is not.
    """
    otherwise = "; or give the program's StableHLO as a file (--stablehlo)"
    if importlib.util.find_spec("juliacall") is None:
        raise RequirementError(
            "backend 'reactant' lowers programs in Julia, and the package juliacall is not "
            "installed: python -m pip install 'pyreactant[reactant]', then: pyreactant setup"
            f"{otherwise}"
        )
    try:
        find_place()
    except RequirementError as error:
        raise RequirementError(
            f"backend 'reactant' lowers programs in Julia: {error}{otherwise}"
        ) from None


def lower(request: Request, timeout: float) -> Lowered:
    """What Reactant makes of a program.

    Args:
        request: With a Julia body, for arguments of which there is only a description.
        timeout: Seconds until the child is killed.

    Raises:
        PyReactantError: What the runtime raised, as it raised it.
        ChildLostError, DeadlineError: As `compile_in_child`.
    """
    found = request.topology
    question = {**request.to_dict(), "devices": found.devices}
    said = ask_child(
        "pyreactant.tpu._compiler.lower_child",
        _environment(),
        question,
        timeout=timeout,
        activity=Activity(
            f"lowering {request.program.name!r} in Julia", "lowers with Reactant", "XLA"
        ),
    )
    if "failed" in said:
        raise getattr(_errors, said["failed"], PyReactantError)(said["message"])
    return Lowered(said["text"], said["versions"])


def _environment() -> dict[str, str]:
    """This environment, but for what would make the child a process of a run, or of this TPU."""
    kept = without(*LAUNCHERS, *TPU, "LD_PRELOAD")
    # The child has as many devices as the slice.
    kept["XLA_FLAGS"] = _DEVICES.sub("", kept.get("XLA_FLAGS", "")).strip()
    kept["PYTHONPATH"] = import_path(current_folder=True)
    return kept
