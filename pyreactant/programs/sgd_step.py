"""One step of gradient descent on a two-layer perceptron: new weights from old ones.

Communicated bytes: those of the gradient; the step itself is local.
"""

from dataclasses import replace
from typing import Any

from . import perceptron_gradient
from ._build import subscript_case
from ._case import Domain
from .perceptron import weight_scale

RATE = 0.25


def body(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """JAX."""
    gradients = perceptron_gradient.body(x, w, c, v, d, t)
    return tuple(p - RATE * g for p, g in zip((w, c, v, d), gradients, strict=True))


def oracle(x: Any, w: Any, c: Any, v: Any, d: Any, t: Any) -> Any:
    """NumPy."""
    gradients = perceptron_gradient.oracle(x, w, c, v, d, t)
    return tuple(p - RATE * g for p, g in zip((w, c, v, d), gradients, strict=True))


SUBSCRIPTS = perceptron_gradient.SUBSCRIPTS


CASE = replace(
    subscript_case(
        "sgd_step",
        "one step of gradient descent",
        SUBSCRIPTS,
        oracle,
        domain=Domain((-4, 2), degree=2),
        dtypes=("float32", "float64"),
        scales={1: weight_scale, 3: weight_scale},
        communicated=perceptron_gradient.communicated,
    ),
    at_once=oracle,
)
