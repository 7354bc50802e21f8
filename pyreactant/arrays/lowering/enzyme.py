"""Derivatives of a module by Enzyme, in a child process.

Enzyme's library may end its process (0.0.16 does so for a sort), takes seconds to load, and leaves
files behind when it fails. So the process that computes never loads it: it gets the derivatives as
StableHLO. In the child they are functions of JAX that call Enzyme, which JAX lowers there and any
other process can compile. Only the child runs the functions from `_answer` on, which import JAX.
"""

import functools
import importlib.util
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base.child import Activity, ChildLostError, Request, Stop, ask_child, serve
from ...base.errors import InvalidArgumentError, RequirementError
from .reactant import environment

if TYPE_CHECKING:
    import jax

DTYPES = ("float32", "float64", "bfloat16")
"""Element types that can be differentiated."""


def check_enzyme() -> None:
    """Check that Enzyme's package is installed.

    Raises:
        RequirementError: It is not.
    """
    if importlib.util.find_spec("enzyme_ad") is None:
        raise RequirementError(
            "differentiable=True needs the package enzyme-ad, which is not installed: python -m "
            "pip install 'pyreactant[enzyme]' (its wheel is for Python 3.11 on Linux x86-64); or "
            "leave differentiable=True out, for values without gradients"
        )


@functools.lru_cache(maxsize=32)
def derivatives(what: str, text: str, timeout: float) -> Mapping[str, Mapping[str, str]]:
    """The modules of the derivatives of a module, by "forward" and "reverse".

    Args:
        what: The function in the words of a message.
        text: The module; its arguments and results have types of `DTYPES`.
        timeout: Seconds until the child is killed.

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


_INNER = "function_to_differentiate"


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    import jax
    from enzyme_ad.jax import hlo_call

    from ..runtimes.jax.module import find_main, parse

    text = request["text"]
    with jax.enable_x64(True):
        main = find_main(parse(text))
        arguments, results = ([*map(_aval, main.type.inputs)], [*map(_aval, main.type.results)])
        count, scalar = len(arguments), _scalar(text)

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


def _aval(type_: Any) -> "jax.ShapeDtypeStruct":
    import jax
    import jax.numpy as jnp

    types = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16}
    return jax.ShapeDtypeStruct(tuple(type_.shape), types[str(type_.element_type)])


def _lower(function: Callable[..., Any], avals: Sequence[Any]) -> dict[str, str]:
    import jax

    try:
        # An argument on which the derivative does not depend stays an argument.
        return {"text": jax.jit(function, keep_unused=True).lower(*avals).as_text()}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        useful = [line for line in lines if not re.match(r"INTERNAL|Pipeline failed", line)]
        return {"failed": f"{type(error).__name__} {' '.join(useful[:1])[:200]}".strip()}


def _scalar(text: str) -> str:
    """The module of the sum of all results times cotangents, which are further arguments.

    Its gradient is the pullback of the cotangents. Enzyme's own one fails if a program has more
    results than arguments.
    """
    from jaxlib.mlir import ir

    from ..runtimes.jax.module import find_main, parse

    module = parse(text)
    main = find_main(module)
    inputs, outputs = [*main.type.inputs], [*main.type.results]
    with module.context:
        main.attributes["sym_name"] = ir.StringAttr.get(_INNER)
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
    wide = "f64" if any(str(type_.element_type) == "f64" for type_ in outputs) else "f32"
    given = [(f"%a{n}", type_) for n, type_ in enumerate(inputs)]
    factors = [(f"%c{n}", type_) for n, type_ in enumerate(outputs)]
    lines = [
        f"%r:{len(outputs)} = func.call @{_INNER}({', '.join(name for name, _ in given)}) : "
        f"({', '.join(map(str, inputs))}) -> ({', '.join(map(str, outputs))})",
        f"%t0 = stablehlo.constant dense<0.0> : tensor<{wide}>",
    ]
    for n, type_ in enumerate(outputs):
        shape = "x".join([*map(str, type_.shape), wide])
        lines += [
            f"%p{n} = stablehlo.multiply %r#{n}, %c{n} : {type_}",
            f"%w{n} = stablehlo.convert %p{n} : ({type_}) -> tensor<{shape}>",
            f"%s{n} = stablehlo.reduce(%w{n} init: %t0) applies stablehlo.add across dimensions = "
            f"{[*range(len(type_.shape))]} : (tensor<{shape}>, tensor<{wide}>) -> tensor<{wide}>",
            f"%t{n + 1} = stablehlo.add %t{n}, %s{n} : tensor<{wide}>",
        ]
    arguments = ", ".join(f"{name}: {type_}" for name, type_ in (*given, *factors))
    head = f"func.func public @main({arguments}) -> tensor<{wide}> {{"
    body = "\n".join([head, *lines, f"return %t{len(outputs)} : tensor<{wide}>", "}"])
    return str(module).rstrip().removesuffix("}") + body + "\n}\n"


if __name__ == "__main__":
    serve(_answer)
