"""The child process that lowers with Reactant; see `ask.lower`."""

from collections.abc import Sequence
from typing import Any

from .._core.array import Aval
from .._core.backend import Call, StartOptions
from .._core.dtypes import as_dtype
from .._core.program import Program
from .._core.sharding import NamedSharding
from .._errors import PyReactantError
from .._runtimes.reactant.backend import ReactantBackend
from .._system.child import Request, Stop, serve
from ..process_group import ProcessGroup
from .ask import static_of, tuples


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    try:
        runtime = ReactantBackend()
        # CPU devices do: the lowered module refers to partitions, not to devices.
        options = StartOptions(platform="cpu", num_cpu_devices=request["devices"])
        runtime.start(ProcessGroup(), options)
        if "structure" in request:
            text, results = runtime.write(_call(runtime, request))
            return {"text": text, "results": results, "versions": runtime.versions()}
        text = runtime.lower(_call(runtime, request)).text
        return {"text": text, "versions": runtime.versions()}
    except PyReactantError as error:
        return {"failed": type(error).__name__, "message": str(error)}


def _call(runtime: ReactantBackend, request: Request) -> Call:
    avals = tuple(_aval(argument) for argument in request["arguments"])
    if "structure" in request:
        structure: Any = tuples(request["structure"])
    else:
        _, structure = runtime.trees.flatten(avals)
    return Call(
        Program(**request["program"]),
        structure,
        avals,
        avals,
        _shardings(request["out_shardings"], request["several"]),
        request["precision"],
        static_of(request),
    )


def _aval(plain: Any) -> Aval:
    sharding = NamedSharding.from_dict(plain["sharding"])
    return Aval(tuple(plain["shape"]), as_dtype(plain["dtype"]), sharding)


def _shardings(plain: Sequence[Any], several: bool) -> Any:
    found = tuple(NamedSharding.from_dict(one) for one in plain)
    return found if several else found[0] if found else None


if __name__ == "__main__":
    serve(_answer)
