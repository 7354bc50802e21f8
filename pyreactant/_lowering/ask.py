"""Ask a child process for the StableHLO that Reactant lowers; see `lower_child`."""

import importlib.util
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import _errors
from .._errors import PyReactantError, RequirementError
from .._julia.place import find_place
from .._system.child import LAUNCHERS, TPU, Activity, ask_child, import_path, without

_DEVICES = re.compile(r"--xla_force_host_platform_device_count=\S*")


class Lowered(NamedTuple):
    """A program as Reactant lowered it.

    Attributes:
        text: StableHLO, with Shardy's shardings if the arguments have some.
        versions: Versions of Julia, Reactant and the Julia package PyReactant.
        results: Structure of the results with the number of each, as plain data; None if the
            request does not ask for it.
    """

    text: str
    versions: dict[str, str]
    results: Any = None


def check_julia(needs: str, otherwise: str) -> None:
    """Check that Julia is installed, without starting it.

    Args:
        needs: What needs Julia, for the message.
        otherwise: What to do without it.

    Raises:
        RequirementError: Julia or juliacall is missing.
    """
    if importlib.util.find_spec("juliacall") is None:
        raise RequirementError(
            f"{needs}, and the package juliacall is not installed: python -m pip install "
            f"'pyreactant[reactant]', then: pyreactant setup; {otherwise}"
        )
    try:
        find_place()
    except RequirementError as error:
        raise RequirementError(f"{needs}: {error}; {otherwise}") from None


def lower(name: str, question: Mapping[str, Any], timeout: float) -> Lowered:
    """A program as Reactant lowers it, in a child process.

    Args:
        name: The program's name, for messages.
        question: The request for `lower_child`.
        timeout: Seconds until the child is killed.

    Raises:
        PyReactantError: The runtime's own error.
        ChildLostError: The child was killed, or ended without an answer.
        DeadlineError: The child did not answer in time.
    """
    reply = ask_child(
        "pyreactant._lowering.lower_child",
        environment(),
        question,
        timeout=timeout,
        activity=Activity(f"lowering {name!r} in Julia", "lowers with Reactant", "XLA"),
    )
    if "failed" in reply:
        raise getattr(_errors, reply["failed"], PyReactantError)(reply["message"])
    return Lowered(reply["text"], reply["versions"], reply.get("results"))


def environment() -> dict[str, str]:
    """The environment of a child that lowers: it belongs to no run and uses no TPU."""
    environ = without(*LAUNCHERS, *TPU, "LD_PRELOAD")
    # The request sets the number of devices.
    environ["XLA_FLAGS"] = _DEVICES.sub("", environ.get("XLA_FLAGS", "")).strip()
    environ["PYTHONPATH"] = import_path(current_folder=True)
    return environ


def static_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The static values of a request that is plain data.

    JSON turns tuples into lists. Static values are hashable, so every list was a tuple.
    """
    return {name: tuples(value) for name, value in plain["static"].items()}


def tuples(value: Any) -> Any:
    """Plain data with tuples in place of JSON's lists."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value
