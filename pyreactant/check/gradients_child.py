"""The child process that compares the gradients of one program; see `run.compare_gradients`."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arrays.dtypes import as_dtype, wide
from ..arrays.inputs import Named, each, flat
from ..arrays.lowering.as_jax import as_jax
from ..arrays.program import load
from ..arrays.runtimes.jax.x64 import context, is_wide
from ..base.child import Request, Stop, serve
from ..base.errors import InvalidArgumentError, PyReactantError
from .bounds.compare import compare
from .bounds.estimate import estimate
from .bounds.expected import Expected
from .bounds.model import Model
from .bounds.tracked import Tracked
from .inputs import sources
from .programs import Case, find_case
from .regions import read_whole, whole_index
from .request import program_of

_ESTIMATED = "jax.grad has no derived error bound"


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    plain = request["program"]
    case = find_case(plain if isinstance(plain, str) else program_of(plain))
    dtype = as_dtype(request["dtype"])
    try:
        with context(is_wide(dtype)), jax.default_matmul_precision("highest"):
            return {"results": _compared(case, request)}
    except PyReactantError as error:
        return {"failed": str(error)}


def _compared(case: Case, request: Request) -> list[dict[str, Any]]:
    other = [place for place, entry in flat(case.program.inputs) if not isinstance(entry, tuple)]
    if other or any(isinstance(entry, Named) for entry in each(case.program.inputs)):
        raise InvalidArgumentError(
            "gradients are compared of programs whose inputs= are shapes only, without ranges and "
            "dicts"
        )
    size, dtype, seed = request["size"], request["dtype"], request["seed"]
    arrays = list(map(read_whole, sources(case.inputs(size, dtype), seed)))
    static = dict(case.static(size))
    function = as_jax(
        case.program,
        *arrays,
        static=static,
        precision="highest",
        differentiable=True,
        stablehlo=request["module"],
    )
    model = Model.of(dtype, random=False)
    results, pull = jax.vjp(function, *arrays)
    outputs, structure = jax.tree.flatten(results)
    numbers = np.random.default_rng(seed)
    cotangents = [numbers.normal(size=output.shape).astype(output.dtype) for output in outputs]
    got = jax.device_get(pull(jax.tree.unflatten(structure, cotangents)))
    body, count = load(case.program, "jax"), len(arrays)

    def oracle(*parts: Any) -> Any:
        double = parts[0].dtype == np.float64
        with jax.enable_x64(double), jax.default_matmul_precision("highest"):
            shape, back = jax.vjp(lambda *args: body(*args, **static), *parts[:count])
            given = jax.tree.unflatten(jax.tree.structure(shape), parts[count:])
            return tuple(jax.device_get(back(given)))

    parts = tuple(wide(array) for array in (*arrays, *cotangents))
    wanted = estimate(oracle, parts, model, _ESTIMATED)
    results = _verdicts("jax.grad of the JAX body", range(count), got, wanted)
    if request["gradient"] is not None:
        results += _by_oracle(function, find_case(request["gradient"]), model, request)
    return results


def _by_oracle(function: Any, case: Case, model: Model, request: Request) -> list[dict[str, Any]]:
    """The gradient of half the mean squared distance from targets, the last input of `case`."""
    inputs = sources(case.inputs(request["size"], request["dtype"]), request["seed"])
    *arrays, targets = map(read_whole, inputs)
    value, pull = jax.vjp(function, *arrays)
    got = jax.device_get(pull((value - targets) / len(targets)))[1:]  # not by x
    shapes = [array.shape for array in arrays[1:]]
    wholes = [whole_index(shape) for shape in shapes]
    wanted = [case.expected(n, whole, inputs, model) for n, whole in enumerate(wholes)]
    name = f"the oracle of {case.name}"
    return _verdicts(name, range(1, len(arrays)), got, wanted)


def _verdicts(
    against: str, numbers: Sequence[int], got: Sequence[Any], wanted: Sequence[Any]
) -> list[dict[str, Any]]:
    results = []
    for number, gradient, expected in zip(numbers, got, wanted, strict=True):
        assert isinstance(expected, Tracked)
        verdict = compare(np.asarray(gradient), Expected(expected.value, expected.bound))
        about = {"argument": f"by argument {number}", "against": against}
        results.append(about | verdict.to_dict())
    return results


if __name__ == "__main__":
    serve(_answer)
