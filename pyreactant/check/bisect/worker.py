"""A process that runs StableHLO modules, one after the other: requests and answers are JSON lines.

It imports jax, jaxlib and NumPy only, never pyreactant, so that it also runs in the environment of
another version of jax. The script of a report contains `run_module` as it is here.
"""

import contextlib
import errno
import json
import logging
import os
import queue
import resource
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_module(
    text: str, inputs: Sequence[Any], shapes: Sequence[Any], partitions: int = 1, options: Any = ()
) -> list[Any]:
    import jax
    import numpy as np
    from jax._src.lib import _jax, xla_client  # type: ignore[attr-defined] # private
    from jax._src.sharding_impls import GSPMDSharding

    jax.config.update("jax_enable_x64", True)  # else 64-bit inputs would be shortened
    if "lapack" in text:  # loaded only where JAX lowers one of its functions
        solve = jax.jit(jax.numpy.linalg.cholesky).trace(np.eye(1))
        solve.lower(lowering_platforms=("cpu",))
    devices = tuple(jax.devices()[:partitions])
    settings = xla_client.CompileOptions()
    build = settings.executable_build_options
    settings.num_partitions = build.num_partitions = partitions
    settings.env_option_overrides = [tuple(option) for option in options]
    build.use_spmd_partitioning = partitions > 1
    build.use_shardy_partitioner = "sdy." in text
    ids = np.array([[device.id for device in devices]])
    build.device_assignment = xla_client.DeviceAssignment.create(ids)
    program = devices[0].client.compile_and_load(text, _jax.DeviceList(devices), settings)

    def places(own: Any, count: int) -> list[Any]:
        if partitions == 1 or own is None:
            whole = xla_client.HloSharding.replicate()
            return [GSPMDSharding(devices, whole)] * count
        return [GSPMDSharding(devices, sharding) for sharding in own]

    into = places(program.get_parameter_shardings(), len(inputs))
    placed = [jax.device_put(x, place) for x, place in zip(inputs, into, strict=True)]
    pieces = program.execute_sharded(placed).disassemble_into_single_device_arrays()
    out = places(program.get_output_shardings(), len(pieces))
    join = jax.make_array_from_single_device_arrays
    return [np.asarray(join(tuple(s), p, x)) for s, p, x in zip(shapes, out, pieces, strict=True)]


def interpret(text: str, inputs: Sequence[Any]) -> list[Any]:
    """The results by jaxlib's reference interpreter, which aborts on some operations."""
    import numpy as np
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    eval_module: Any = stablehlo.eval_module
    with make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        if any(np.dtype(x.dtype).kind not in "fiub" for x in inputs):
            raise ValueError("the interpreter is given real numbers of NumPy's types only")
        dense: Any = ir.DenseElementsAttr
        given = [dense.get(np.asarray(x, order="C")) for x in inputs]  # 0-d stays 0-d
        return [np.array(result) for result in eval_module(module, given)]


def libraries() -> list[Any]:
    """Name, size and time of modification of the libraries that compile here."""
    import jaxlib

    plugin = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "").partition(":")[2]
    plugins = find_spec("jax_plugins")
    folders = (plugins and plugins.submodule_search_locations) or []
    paths = [path for folder in folders for path in Path(folder).glob("*/*.so")]
    paths += [*Path(jaxlib.__file__).parent.glob("*.so"), *([Path(plugin)] if plugin else [])]
    stats = [(str(path), path.stat()) for path in sorted(paths)]
    return [[name, own.st_size, own.st_mtime_ns] for name, own in stats]


def save_arrays(path: str | Path, arrays: Sequence[Any]) -> None:
    """Write arrays with the names of their types; one that NumPy lacks as raw bytes."""
    import numpy as np

    raw = [x if x.dtype.isbuiltin == 1 else x.view(f"V{x.dtype.itemsize}") for x in arrays]
    np.savez(path, **{f"{n}_{x.dtype.name}": raw[n] for n, x in enumerate(arrays)})


def load_arrays(path: str | Path) -> list[Any]:
    """The arrays that `save_arrays` wrote."""
    import ml_dtypes  # noqa: F401 - NumPy knows its types by name then
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        return [file[name].view(name.partition("_")[2]) for name in file.files]


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    import jax

    if "versions" in request:
        device = jax.devices()[0]
        names = {name: version(name) for name in ("jax", "jaxlib")}
        text = f"{device.platform} ({device.device_kind})"
        versions, count = {**names, "device": text}, len(jax.devices())
        return {"outcome": "ran", "versions": versions, "devices": count, "files": libraries()}
    if not request["interpret"] and len(jax.devices()) < request["partitions"]:
        count = len(jax.devices())
        raise ValueError(f"the module needs {request['partitions']} devices, here are {count}")
    text, inputs = Path(request["module"]).read_text(), load_arrays(request["inputs"])
    if request["interpret"]:
        results = interpret(text, inputs)
    else:
        partitions, options = request["partitions"], request["options"]
        results = run_module(text, inputs, request["shapes"], partitions, options)
    save_arrays(request["out"], results)
    return {"outcome": "ran"}


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each line of standard input; what is printed meanwhile goes to standard error."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort is reported; no core file
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # Julia would let the pipe not block any more
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    while True:
        try:
            reply = answer(json.loads(lines.get()))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            reply = {"outcome": "invalid", "message": message[:4000]}
            if isinstance(error, OSError) and error.errno in _FULL:  # not the program's fault
                reply = {"outcome": "unwritten", "error": [error.errno, error.strerror]}
        with contextlib.suppress(BrokenPipeError):
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


def _read(requests: TextIO, lines: "queue.SimpleQueue[str]") -> None:
    """Read requests; without a parent the process ends, even in a compilation that never does."""
    for line in requests:
        lines.put(line)
    os._exit(0)  # an orderly shutdown of the runtime takes time


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the last line of the log says why the process ended
    serve(_answer)
