"""Lower a program to StableHLO with Reactant, in a child process, which alone starts Julia."""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.child import (
    LAUNCHERS,
    TPU,
    Activity,
    Request,
    Stop,
    ask_child,
    import_path,
    serve,
    without,
)
from ...base.errors import PyReactantError, RequirementError, as_data, from_data
from ...julia.place import find_place
from ...process.group import ProcessGroup
from ..backend import Call, StartOptions
from ..dtypes import as_dtype
from ..program import Program
from ..sharding import Aval, NamedSharding

if TYPE_CHECKING:
    from ..runtimes.reactant.backend import ReactantBackend

_DEVICES = re.compile(r"--xla_force_host_platform_device_count=\S*")


class ReactantModule(NamedTuple):
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


def lower(name: str, question: Mapping[str, Any], timeout: float) -> ReactantModule:
    """A program as Reactant lowers it, in a child process; `_call` reads the question.

    Raises:
        PyReactantError: The runtime's own error.
        ChildLostError: The child was killed, or ended without an answer.
        DeadlineError: The child did not answer in time.
    """
    reply = ask_child(
        "pyreactant.arrays.lowering.reactant",
        environment(),
        question,
        timeout=timeout,
        activity=Activity(f"lowering {name!r} in Julia", "lowers with Reactant", "XLA"),
    )
    if "failed" in reply:
        raise from_data(reply["failed"])
    return ReactantModule(reply["text"], reply["versions"], reply["results"])


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


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    from ..runtimes.reactant.backend import ReactantBackend  # only the child starts it

    try:
        runtime = ReactantBackend()
        # CPU devices do: the lowered module refers to partitions, not to devices.
        options = StartOptions(platform="cpu", num_cpu_devices=request["devices"])
        runtime.start(ProcessGroup(), options)
        call, results = _call(runtime, request), None
        if "structure" in request:
            text, results = runtime.write(call)
        else:
            text = runtime.lower(call).text
        return {"text": text, "results": results, "versions": runtime.versions()}
    except PyReactantError as error:
        return {"failed": as_data(error)}


def _call(runtime: "ReactantBackend", request: Request) -> Call:
    avals = tuple(_aval(argument) for argument in request["arguments"])
    if "structure" in request:
        structure: Any = tuples(request["structure"])
    else:
        _, structure = runtime.trees.flatten(avals)
    return Call(
        Program(**request["program"]),
        structure,
        avals,
        _shardings(request["out_shardings"], request["several"]),
        request["precision"],
        static_of(request),
    )


def _aval(plain: Any) -> Aval:
    sharding = NamedSharding.from_dict(plain["sharding"])
    return Aval(tuple(plain["shape"]), as_dtype(plain["dtype"]), sharding)


def _shardings(plain: Sequence[Any], several: bool) -> Any:
    shardings = tuple(NamedSharding.from_dict(sharding) for sharding in plain)
    return shardings if several else shardings[0] if shardings else None


if __name__ == "__main__":
    serve(_answer)
