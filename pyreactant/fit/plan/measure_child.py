"""The child process that multiplies with one layout on this machine's devices, and takes the time.

Runtimes never start in the process of `plan`.
"""

from collections.abc import Mapping
from typing import Any

from ...arrays.mesh import Mesh
from ...arrays.runtimes.runtime import initialize
from ...arrays.sharding import as_spec
from ...base.child import Request, serve
from ...base.errors import MismatchError, PyReactantError, as_data
from ...check.product.report import run_matmul


def _answer(request: Request, _: object) -> Mapping[str, Any]:
    x, y, out = map(as_spec, request["specs"])
    try:
        initialize(
            platform=request["platform"],
            num_processes=1,
            num_cpu_devices=request["num_cpu_devices"],
        )
        report = run_matmul(
            size=tuple(request["size"]),
            dtype=request["dtype"],
            mesh=Mesh.from_dict(request["mesh"]),
            spec=x,
            y_spec=y,
            out_spec=out,
            precision=request["precision"],
        )
    except PyReactantError as error:
        return {"error": as_data(error)}
    if not report.check.passed:
        return {"error": as_data(MismatchError("the product is wrong"))}
    return {"seconds": report.seconds}


if __name__ == "__main__":
    serve(_answer)
