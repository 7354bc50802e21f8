"""The child process that differentiates a module with Enzyme; see `enzyme.derivatives`.

Only this process loads Enzyme. The derivatives are functions of JAX that call it, which JAX lowers
to StableHLO here and any other process can compile.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib.mlir import ir

from .._runtimes.jax.module import find_main, parse
from .._system.child import Request, Stop, serve

_INNER = "function_to_differentiate"


def _answer(request: Request, _: Stop) -> dict[str, Any]:
    from enzyme_ad.jax import hlo_call

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
            "forward": _lowered(forward, [*arguments, *arguments]),
            "reverse": _lowered(reverse, [*arguments, *results]),
        }


def _aval(found: Any) -> jax.ShapeDtypeStruct:
    types = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16}
    return jax.ShapeDtypeStruct(tuple(found.shape), types[str(found.element_type)])


def _lowered(function: Callable[..., Any], avals: Sequence[Any]) -> dict[str, str]:
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
    module = parse(text)
    main = find_main(module)
    inputs, outputs = [*main.type.inputs], [*main.type.results]
    with module.context:
        main.attributes["sym_name"] = ir.StringAttr.get(_INNER)
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
    wide = "f64" if any(str(one.element_type) == "f64" for one in outputs) else "f32"
    given = [(f"%a{n}", one) for n, one in enumerate(inputs)]
    factors = [(f"%c{n}", one) for n, one in enumerate(outputs)]
    lines = [
        f"%r:{len(outputs)} = func.call @{_INNER}({', '.join(name for name, _ in given)}) : "
        f"({', '.join(map(str, inputs))}) -> ({', '.join(map(str, outputs))})",
        f"%t0 = stablehlo.constant dense<0.0> : tensor<{wide}>",
    ]
    for n, one in enumerate(outputs):
        shape = "x".join([*map(str, one.shape), wide])
        lines += [
            f"%p{n} = stablehlo.multiply %r#{n}, %c{n} : {one}",
            f"%w{n} = stablehlo.convert %p{n} : ({one}) -> tensor<{shape}>",
            f"%s{n} = stablehlo.reduce(%w{n} init: %t0) applies stablehlo.add across dimensions = "
            f"{[*range(len(one.shape))]} : (tensor<{shape}>, tensor<{wide}>) -> tensor<{wide}>",
            f"%t{n + 1} = stablehlo.add %t{n}, %s{n} : tensor<{wide}>",
        ]
    arguments = ", ".join(f"{name}: {one}" for name, one in (*given, *factors))
    head = f"func.func public @main({arguments}) -> tensor<{wide}> {{"
    body = "\n".join([head, *lines, f"return %t{len(outputs)} : tensor<{wide}>", "}"])
    return str(module).rstrip().removesuffix("}") + body + "\n}\n"


if __name__ == "__main__":
    serve(_answer)
