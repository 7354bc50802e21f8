"""The process that lowers a program to StableHLO, with its inputs and what its oracle expects."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.matmul import default_mesh
from ...arrays.mesh import Mesh
from ...arrays.runtimes.compile import compile
from ...arrays.runtimes.operations import from_callback
from ...arrays.runtimes.runtime import current, devices, initialize
from ...arrays.sharding import NamedSharding, as_spec
from ...base.child import Request
from ...base.errors import InvalidArgumentError, PyReactantError, as_data
from ..execute import CaseRun
from ..inputs import ORDINARY_SET, input_sets
from ..oracle.oracle import OutputOracle
from ..programs import find_case
from ..records.verdict import ArrayPlan
from ..regions import whole_index
from ..request import choose_layout, program_of
from .judge import save_arrays
from .worker import serve

_CALLBACKS = ("callback",)


def _answer(request: Request) -> dict[str, Any]:
    try:
        return _lowered(request)
    except PyReactantError as error:
        return {"outcome": "invalid", "message": str(error), "error": as_data(error)}


def _lowered(request: Request) -> dict[str, Any]:
    initialize("jax", platform="cpu", num_cpu_devices=request["devices"])
    plain = request["program"]
    case = find_case(plain if isinstance(plain, str) else program_of(plain))
    mesh = default_mesh(len(devices()))
    if request["mesh"]:
        names, shape = request["mesh"]["axis_names"], request["mesh"]["shape"]
        mesh = Mesh(shape, names, range(int(np.prod(shape))))
    size = request["size"] or case.size_for(mesh)
    dtype = request["dtype"] or case.dtypes[0]
    if dtype not in case.dtypes:
        raise InvalidArgumentError(f"program {case.name!r} accepts {case.dtypes}, got {dtype}")
    specs = request["specs"] and [as_spec(spec) for spec in request["specs"]]
    layout = choose_layout(case, mesh, size, specs if mesh.size > 1 else None)
    data = ORDINARY_SET
    if request["inputs"] != data.name:
        known = {one.name: one for one in input_sets(case, size, dtype)}
        data = known[request["inputs"]]
    sources = [
        data.make(what, request["seed"], number)
        for number, what in enumerate(case.inputs(size, dtype))
    ]
    args = [
        from_callback(source.shape, source.dtype, NamedSharding(mesh, spec), source.read)
        for source, spec in zip(sources, layout.in_specs, strict=True)
    ]
    given = case.arguments(args)
    compiled = compile(case.program, *given, precision="highest", static=case.static(size))
    text = compiled.as_text("stablehlo")
    if any(
        word in line for line in text.splitlines() for word in _CALLBACKS if "custom_call" in line
    ):
        raise InvalidArgumentError(
            f"program {case.name!r} calls back to Python, which a module alone cannot do; bisect "
            "the part of it without callbacks"
        )
    outputs = current().backend.trees.flatten(compiled.outputs)[0]
    arrays = {f"input {n}": array for n, array in enumerate(args)}
    arrays |= {f"output {n}": array for n, array in enumerate(outputs)}
    plans = {
        name: ArrayPlan(array.shape, array.dtype.name, array.sharding)
        for name, array in arrays.items()
    }
    run = CaseRun(
        case=case,
        size=size,
        dtype=dtype,
        seed=request["seed"],
        layout=layout,
        precision="highest",
        compiled=compiled,
        plans=plans,
        data=data,
    )
    folder = Path(request["folder"])
    whole = [np.asarray(source.read(whole_index(source.shape))) for source in sources]
    save_arrays(folder / "inputs.npz", whole)
    (folder / "program.mlir").write_text(text)
    return {
        "outcome": "ran",
        "name": case.name,
        "size": size,
        "dtype": dtype,
        "mesh": {"axis_names": list(mesh.axis_names), "shape": list(mesh.shape)},
        "partitions": mesh.size,
        "inputs": data.name,
        "dtypes": [array.dtype.name for array in whole],
        "all_dtypes": list(case.dtypes),
        "results": [{"shape": list(x.shape), "dtype": x.dtype.name} for x in outputs],
        "expected": _expected(run, outputs, sources, folder) if case.oracle else None,
    }


def _expected(
    run: CaseRun, outputs: Sequence[Any], sources: Sequence[Any], folder: Path
) -> list[dict[str, Any]]:
    """What the oracle expects of each result: values and bounds in a file, and the rest here."""
    described: list[dict[str, Any]] = []
    arrays: list[np.ndarray] = []
    for number, output in enumerate(outputs):
        oracle = OutputOracle(
            case=run.case,
            number=number,
            shape=output.shape,
            sources=tuple(sources),
            model=run.model(number),
            whole=run.data.whole,
        )
        expected = oracle.block(whole_index(output.shape))
        exact = expected.bound is None
        value = expected.value.astype(output.dtype) if exact else wide(expected.value)
        bound = np.zeros(()) if expected.bound is None else np.asarray(expected.bound)
        arrays += [value, np.broadcast_to(bound, value.shape)]
        described.append(
            {
                "exact": exact,
                "dtypes": [value.dtype.name, bound.dtype.name],
                "last_rounding": expected.last_rounding,
                "estimated": expected.estimated,
            }
        )
    save_arrays(folder / "expected.npz", arrays)
    return described


if __name__ == "__main__":
    serve(_answer)
