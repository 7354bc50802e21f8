"""Programs that the tests cut down."""

import os
from pathlib import Path
from typing import Any

import numpy as np

import pyreactant as pr

SHAPES = (("n", "n"), ("n", "n"))


def body(x: Any, y: Any) -> Any:
    import jax
    import jax.numpy as jnp

    h = jax.nn.softmax(x @ y)
    return (jnp.tanh(h) * jnp.where(x > 0, x, -x)).sum(axis=1) + jnp.maximum(y, 0).sum(axis=0)


def oracle(x: Any, y: Any) -> Any:
    s = x @ y
    e = np.exp(s - s.max(axis=1, keepdims=True))
    h = e / e.sum(axis=1, keepdims=True)
    return (np.tanh(h) * np.abs(x)).sum(axis=1) + np.maximum(y, 0).sum(axis=0)


def calls_back(x: Any, y: Any) -> Any:
    import jax

    return jax.pure_callback(lambda a: np.asarray(a), jax.ShapeDtypeStruct(x.shape, x.dtype), x) + y


def looping(x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.lax.fori_loop(0, 5, lambda i, c: jnp.tanh(c + x) * i, x)


def folded(x: Any) -> Any:
    """XLA's simplifier takes log(exp(x)) for x, which is wrong where exp(x) overflows."""
    import jax.numpy as jnp

    return jnp.log(jnp.exp(jnp.abs(x) * 100 + 100)) * 2 + x.sum()


def named(weights: Any, x: Any) -> Any:
    import jax.numpy as jnp

    hidden = jnp.tanh(x @ weights["second"] + weights["first"])
    return {"rows": hidden.sum(axis=1), "all": hidden.sum()}


def named_in_numpy(weights: Any, x: Any) -> Any:
    hidden = np.tanh(x @ weights["second"] + weights["first"])
    return {"rows": hidden.sum(axis=1), "all": hidden.sum()}


trees = pr.Program(
    "trees",
    jax="tests.bisect.programs:named",
    oracle="tests.bisect.programs:named_in_numpy",
    inputs=({"second": ("n", "2n"), "first": ("2n",)}, ("n", "n")),
)
layers = pr.Program(
    "layers",
    jax="tests.bisect.programs:body",
    oracle="tests.bisect.programs:oracle",
    inputs=SHAPES,
)
callback = pr.Program(
    "callback", jax="tests.bisect.programs:calls_back", oracle="numpy:add", inputs=SHAPES
)
loop = pr.Program("loop", jax="tests.bisect.programs:looping", inputs=SHAPES[:1])
overflow = pr.Program("overflow", jax="tests.bisect.programs:folded", inputs=SHAPES[:1])


def flagged(x: Any, y: Any) -> Any:
    """Wrong with one flag of XLA, and not traced with another: as a runtime's own fault."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "modules=1" in flags:
        os.abort()
    return body(x, y) + ("modules=2" in flags)


flags = pr.Program(
    "flags",
    jax="tests.bisect.programs:flagged",
    oracle="tests.bisect.programs:oracle",
    inputs=SHAPES,
)
unjudged = pr.Program("unjudged", jax="tests.bisect.programs:flagged", inputs=SHAPES)


def tanh_and_sum(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(x).sum(axis=1)


def tanh_and_sum_in_numpy(x: Any) -> Any:
    return np.tanh(x).sum(axis=1)


tangent = pr.Program(
    "tangent",
    jax="tests.bisect.programs:tanh_and_sum",
    oracle="tests.bisect.programs:tanh_and_sum_in_numpy",
    inputs=SHAPES[:1],
)

halved = pr.Program(
    "halved",
    jax="jax.numpy:matmul",
    julia="WrongBodies.half_a_sum",
    julia_project=str(Path(__file__).parents[1] / "crosscheck" / "WrongBodies"),
    oracle="numpy:matmul",
    inputs=SHAPES,
)


def odd(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(x) + 1


def ordered(x: Any) -> Any:
    """The comparison of the sort uses constants from outside of it."""
    import jax.numpy as jnp

    return jnp.sort(x, axis=1) * 2


def factored(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(8)))


sizes_of_no_mesh = pr.Program("odd", jax="tests.bisect.programs:odd", inputs=((7, 5),))
no_size = pr.Program("scalar", jax="tests.bisect.programs:odd", inputs=((),))
region = pr.Program("region", jax="tests.bisect.programs:ordered", inputs=((6, 4),))
lapack = pr.Program("lapack", jax="tests.bisect.programs:factored", inputs=((8, 8),))
