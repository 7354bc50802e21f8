"""Lower a program with Reactant, in a child process with one CPU device for each TPU device."""

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
        versions: Versions of Julia, Reactant and the Julia package PyReactant.
    """

    text: str
    versions: dict[str, str]


def check_julia() -> None:
    """Check that Julia is installed, without starting it.

    Raises:
        RequirementError: Julia or juliacall is missing.
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
    """The program as Reactant lowers it.

    Args:
        request: The request; its program must have a Julia body.
        timeout: Seconds until the child is killed.

    Raises:
        PyReactantError: The runtime's own error.
        ChildLostError, DeadlineError: As `compile_in_child`.
    """
    question = {**request.to_dict(), "devices": request.topology.devices}
    reply = ask_child(
        "pyreactant.tpu._compiler.lower_child",
        _environment(),
        question,
        timeout=timeout,
        activity=Activity(
            f"lowering {request.program.name!r} in Julia", "lowers with Reactant", "XLA"
        ),
    )
    if "failed" in reply:
        raise getattr(_errors, reply["failed"], PyReactantError)(reply["message"])
    return Lowered(reply["text"], reply["versions"])


def _environment() -> dict[str, str]:
    """The child's environment: it belongs to no run and uses no TPU."""
    environ = without(*LAUNCHERS, *TPU, "LD_PRELOAD")
    # The request sets the number of devices.
    environ["XLA_FLAGS"] = _DEVICES.sub("", environ.get("XLA_FLAGS", "")).strip()
    environ["PYTHONPATH"] = import_path(current_folder=True)
    return environ
