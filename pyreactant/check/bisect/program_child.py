"""The process that lowers a program on one runtime, with what its oracle expects, or runs it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays.dtypes import wide
from ...arrays.matmul import default_mesh
from ...arrays.mesh import Mesh
from ...arrays.program import Program
from ...arrays.runtimes.compile import compile
from ...arrays.runtimes.operations import from_callback
from ...arrays.runtimes.runtime import current, devices, initialize
from ...arrays.sharding import NamedSharding, as_spec
from ...base.child import Request
from ...base.errors import InvalidArgumentError, PyReactantError, as_data
from ...julia.place import find_place, package_folder
from ..execute import CaseRun
from ..inputs import ORDINARY_SET, input_sets
from ..oracle.oracle import OutputOracle
from ..programs import find_case
from ..records.verdict import ArrayPlan
from ..regions import whole_index
from ..request import choose_layout, program_of
from .worker import save_arrays, serve


def _answer(request: Request) -> dict[str, Any]:
    try:
        if "versions" in request:
            return _versions(request)
        return _lowered(request)
    except PyReactantError as error:
        return {"outcome": "invalid", "message": str(error), "error": as_data(error)}


def _start(request: Request) -> None:
    platform = request["platform"]
    count = request["devices"] if platform == "cpu" else None
    initialize(request["backend"], platform=platform, num_cpu_devices=count)


def _versions(request: Request) -> dict[str, Any]:
    _start(request)
    device, versions = devices()[0], current().backend.versions()
    described = {**versions, "device": f"{device.platform} ({device.kind})"}
    files = [described, str(find_place().project) if request["backend"] == "reactant" else ""]
    return {"outcome": "ran", "versions": described, "devices": len(devices()), "files": files}


def _lowered(request: Request) -> dict[str, Any]:
    """The lowered program; with "out" it runs, and its results go to that file."""
    _start(request)
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
    trees = current().backend.trees
    if "out" in request:
        results = [array.gather() for array in trees.flatten(compiled(*given))[0]]
        save_arrays(request["out"], results)
        return {"outcome": "ran"}
    text = compiled.as_text("stablehlo")
    if any("custom_call" in line and "callback" in line for line in text.splitlines()):
        raise InvalidArgumentError(
            f"program {case.name!r} calls back to Python, which a module alone cannot do; bisect "
            "the part of it without callbacks"
        )
    outputs = trees.flatten(compiled.outputs)[0]
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
        compiled=compiled,
        plans=plans,
        data=data,
    )
    folder = Path(request["folder"])
    # The module's arguments are in the order of the tree, whose names are sorted.
    numbers = {id(array): number for number, array in enumerate(args)}
    ordered = [sources[numbers[id(leaf)]] for leaf in trees.flatten(given)[0]]
    whole = [np.asarray(source.read(whole_index(source.shape))) for source in ordered]
    save_arrays(folder / "inputs.npz", whole)
    (folder / "program.mlir").write_text(text)
    return {
        "outcome": "ran",
        "name": case.name,
        "size": size,
        "dtype": dtype,
        "mesh": {"axis_names": list(mesh.axis_names), "shape": list(mesh.shape)},
        "partitions": mesh.size,
        "all_dtypes": list(case.dtypes),
        "julia": _julia(case.program),
        "ordered": "{" not in repr(trees.unflatten(compiled.executable.structure, outputs)),
        "results": [{"shape": list(x.shape), "dtype": x.dtype.name} for x in outputs],
        "expected": _expected(run, outputs, sources, folder) if case.oracle else None,
    }


def _julia(program: Program) -> list[Any]:
    """Name, size and time of modification of the files of a program's Julia project."""
    folder = Path(program.julia_project) if program.julia_project else package_folder()
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in (".jl", ".toml"))
    stats = [(str(path), path.stat()) for path in files]
    return [[name, own.st_size, own.st_mtime_ns] for name, own in stats]


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
                "last_rounding": expected.last_rounding,
                "estimated": expected.estimated,
            }
        )
    save_arrays(folder / "expected.npz", arrays)
    return described


if __name__ == "__main__":
    serve(_answer)
