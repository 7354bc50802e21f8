"""The child process that compiles a request for an absent slice.

libtpu may abort its process on unexpected input, takes a lock and writes logs, so it never runs in
the user's process.
"""

import contextlib
import hashlib
import importlib
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding as JaxNamedSharding

from ...arrays.dtypes import as_dtype
from ...arrays.lowering.reactant import static_of
from ...arrays.program import Program, load
from ...arrays.runtimes.jax import x64
from ...arrays.runtimes.jax.convert import Devices, jax_sharding
from ...arrays.sharding import NamedSharding, plain_spec
from ...base.child import Request, Stop, serve
from ...base.errors import PyReactantError
from ...base.facts import peak_memory
from ...base.imports import users_place

_DYNAMIC = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerIntegerConversionError,
)
"""JAX's errors about shapes that depend on values."""


class FailedError(Exception):
    """An error and the step in which it occurred."""

    def __init__(self, step: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.step, self.error = step, error


def compile_request(request: Request, stop: Stop) -> dict[str, Any] | None:
    """The compiler's answer to a request; None if the parent has it already.

    Raises:
        FailedError: A step failed.
    """
    if request["kind"] == "stablehlo":
        module, description = _step("parse", _parse, request["text"])
        if stop(description):  # before libtpu is loaded
            return None
        devices = _step("topology", slice_devices, request["topology"])
        start = time.perf_counter()
        executable = _step("compile", _compile_module, module, devices, description["shardy"])
        outputs: list[dict[str, Any]] = []
        text, memory = executable.hlo_modules()[0].to_string(), executable.get_compiled_memory_stats
    else:
        devices = _step("topology", slice_devices, request["topology"])
        wide = any(argument["dtype"] in x64.WIDE for argument in request["arguments"])
        with x64.context(wide):
            lowered = _step("lower", lower, request, devices)
            if request["show_digest"]:
                digest = hashlib.sha256(lowered.as_text().encode()).hexdigest()
                if stop(digest):
                    return None
            start = time.perf_counter()
            executable = _step("compile", lowered.compile)
        outputs = _outputs(lowered, executable)
        text, memory = executable.as_text(), executable.memory_analysis
    return {
        "hlo": text,
        "bytes": _bytes(memory()),
        "cost": _cost(executable.cost_analysis()),
        "outputs": outputs,
        "compile_seconds": time.perf_counter() - start,
    }


def _step(name: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise FailedError(name, error) from error


def slice_devices(options: Mapping[str, Any]) -> list[Any]:
    """The slice's devices, in the order of `pyreactant.devices()`."""
    devices = topologies.get_topology_desc(platform="tpu", **options).devices
    return sorted(devices, key=lambda device: (device.process_index, device.id))


def lower(request: Request, devices: list[Any]) -> Any:
    """The program of a request as JAX lowers it for these devices."""
    of_slice = Devices(devices)

    def to_jax(data: Mapping[str, Any]) -> JaxNamedSharding:
        return jax_sharding(of_slice, NamedSharding.from_dict(data))

    args = [
        jax.ShapeDtypeStruct(
            tuple(a["shape"]), as_dtype(a["dtype"]), sharding=to_jax(a["sharding"])
        )
        for a in request["arguments"]
    ]
    outs = tuple(to_jax(out) for out in request["out_shardings"] or ())
    shardings = None if not outs else outs if request["several"] else outs[0]
    function = load(Program(**request["program"]), "jax")
    jitted = jax.jit(
        partial(function, **static_of(request)),
        out_shardings=shardings,
        keep_unused=True,  # as a run holds every argument, used or not
    )
    meshes = {argument.sharding.mesh for argument in args}
    with contextlib.ExitStack() as stack:
        if request["precision"] is not None:
            stack.enter_context(jax.default_matmul_precision(request["precision"]))
        if len(meshes) == 1:  # the mesh of shard_map, as in `arrays.runtimes.jax.lower`
            stack.enter_context(jax.set_mesh(*meshes))
        return jitted.lower(*args)


def _parse(text: str) -> tuple[Any, dict[str, Any]]:
    """A module and its description."""
    from ...arrays.runtimes.jax.module import describe, parse  # they use a private interface of jax
    from .dump import as_stablehlo

    module = parse(as_stablehlo(text))
    return module, describe(module)


def _compile_module(module: Any, devices: list[Any], shardy: bool) -> Any:
    """Compile a module that JAX did not lower, through a private interface of jax.

    jax 0.10.2 and 0.12.0.1 have it.
    """
    lib: Any = importlib.import_module("jax._src.lib")
    _jax, xla_client = lib._jax, lib.xla_client

    ids = np.array([[device.id for device in devices]])
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = ids.shape
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = ids.shape
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = shardy
    build.device_assignment = xla_client.DeviceAssignment.create(ids)
    device_list = _jax.DeviceList(tuple(devices))
    return devices[0].client.compile(module, device_list, options)


def _bytes(memory: Any) -> dict[str, int]:
    fields = {
        "arguments": "argument",
        "outputs": "output",
        "temporaries": "temp",
        "code": "generated_code",
        "alias": "alias",
    }
    return {name: getattr(memory, f"{field}_size_in_bytes") for name, field in fields.items()}


def _cost(analysis: Any) -> dict[str, float]:
    costs = (analysis[0] if isinstance(analysis, list) else analysis) or {}
    return {k: costs[k] for k in ("flops", "bytes accessed", "optimal_seconds") if k in costs}


def _outputs(lowered: Any, compiled: Any) -> list[dict[str, Any]]:
    infos = jax.tree.leaves(lowered.out_info)
    shardings = jax.tree.leaves(compiled.output_shardings)
    return [
        {"shape": list(info.shape), "dtype": np.dtype(info.dtype).name, "spec": _spec(sharding)}
        for info, sharding in zip(infos, shardings, strict=True)
    ]


def _spec(sharding: Any) -> list[Any] | None:
    """A partition spec; None if mesh axes cannot describe the compiler's choice."""
    if not isinstance(sharding, JaxNamedSharding):
        return None
    return plain_spec(sharding.spec)


def _answer(request: Request, stop: Stop) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        answer = compile_request(request, stop)
        return {
            "answer": answer and {**answer, "compiler_bytes": peak_memory(resource.RUSAGE_SELF)}
        }
    except FailedError as failed:
        error = failed.error
        return {
            "failed": failed.step,
            "type": type(error).__name__,
            "message": str(error),
            "own_error": isinstance(error, PyReactantError),
            "dynamic": isinstance(error, _DYNAMIC),
            "where": users_place(error),
            "seconds": time.perf_counter() - start,
            "compiler_bytes": peak_memory(resource.RUSAGE_SELF),
        }


if __name__ == "__main__":
    serve(_answer)
