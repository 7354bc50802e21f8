"""Derivatives of a module by Enzyme, in a child process.

Enzyme's library may end its process (0.0.16 does so for a sort), takes seconds to load, and leaves
files behind when it fails. So the process that computes never loads it: it gets the derivatives as
StableHLO. In the child they are functions of JAX that call Enzyme, which JAX lowers there and any
other process can compile. Only the child runs the functions from `_answer` on, which import JAX.
"""

import functools
import importlib.util
import operator
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base.child import Activity, ChildLostError, Request, Stop, ask_child, serve
from ...base.errors import InvalidArgumentError, RequirementError, argument
from .reactant import environment

DTYPES = ("float32", "float64", "bfloat16")
"""Element types that can be differentiated."""


def check_enzyme() -> None:
    """Check that Enzyme's package is installed; RequirementError if it is not."""
    if importlib.util.find_spec("enzyme_ad") is None:
        raise RequirementError(
            f"{argument('differentiable')} needs the package enzyme-ad, which is not installed: "
            "python -m pip install 'pyreactant[enzyme]' (its wheel is for Python 3.11 on Linux "
            f"x86-64); or leave {argument('differentiable')} out, for values without gradients"
        )


@functools.lru_cache(maxsize=32)
def derivatives(what: str, text: str, timeout: float) -> Mapping[str, Mapping[str, str]]:
    """The modules of the derivatives of a module, by "forward" and "reverse".

    Returns:
        {"text"} of the module, or {"failed"} with Enzyme's message, for each.

    Raises:
        InvalidArgumentError: Enzyme has none, or ended its process.
        DeadlineError: The child did not answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="pyreactant-enzyme-") as folder:
        # Enzyme writes modules that it cannot differentiate into the temporary folder.
        environ = {
            **environment(),
            "JAX_PLATFORMS": "cpu",
            "TMPDIR": folder,
            "TEST_UNDECLARED_OUTPUTS_DIR": folder,
        }
        try:
            answers = ask_child(
                "pyreactant.arrays.lowering.enzyme",
                environ,
                {"text": text},
                timeout=timeout,
                activity=Activity(f"differentiating {what}", "differentiates", "Enzyme"),
            )
        except ChildLostError as error:
            raise InvalidArgumentError(
                f"{what}: Enzyme ended its process, so it cannot differentiate this program; write "
                "the part that it cannot differentiate (a sort, for instance) in JAX, or leave "
                f"differentiable=True out. {error}"
            ) from None
    if all("failed" in answer for answer in answers.values()):
        listed = "; ".join(f"{mode}: {answer['failed']}" for mode, answer in answers.items())
        raise InvalidArgumentError(
            f"{what}: Enzyme cannot differentiate it ({listed}); write the part that it cannot "
            "differentiate in JAX, or leave differentiable=True out"
        )
    return answers


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from enzyme_ad.jax import hlo_call

    from ..runtimes.jax.stablehlo import Module

    text = request["text"]
    with jax.enable_x64(True):
        module = Module("function_to_differentiate", "the function", text)
        arguments, results = module.arguments, module.results
        count = len(arguments)
        wide = jnp.float64 if any(aval.dtype == "float64" for aval in results) else jnp.float32

        def weighted(*given: Any) -> Any:
            """The sum of all results times cotangents; its gradient is their pullback.

            Enzyme's own pullback fails if a program has more results than arguments.
            """
            values = map(operator.mul, module.bind(given[:count]), given[count:])
            return sum(value.astype(wide).sum() for value in values)

        scalar = jax.jit(weighted, keep_unused=True).lower(*arguments, *results).as_text()

        def forward(*given: Any) -> Any:
            def function(*args: Any) -> Any:
                return hlo_call(*args, source=text)

            return jax.jvp(function, given[:count], given[count:])[1]

        def reverse(*given: Any) -> Any:
            def function(*args: Any) -> Any:
                return hlo_call(*args, *given[count:], source=scalar)[0]

            return jax.grad(function, range(count))(*given[:count])

        return {
            "forward": _lower(forward, [*arguments, *arguments]),
            "reverse": _lower(reverse, [*arguments, *results]),
        }


def _lower(function: Callable[..., Any], avals: Sequence[Any]) -> dict[str, str]:
    import jax

    try:
        # An argument on which the derivative does not depend stays an argument.
        return {"text": jax.jit(function, keep_unused=True).lower(*avals).as_text()}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        useful = [line for line in lines if not re.match(r"INTERNAL|Pipeline failed", line)]
        return {"failed": f"{type(error).__name__} {' '.join(useful[:1])[:200]}".strip()}


if __name__ == "__main__":
    serve(_answer)
