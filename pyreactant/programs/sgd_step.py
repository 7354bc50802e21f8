"""One step of gradient descent on a two-layer perceptron: new weights from old ones.

Communicated bytes: those of the gradient; the step itself is local.
"""

from typing import Any

from . import perceptron_gradient
from ._build import letter_case
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


LETTERS = perceptron_gradient.LETTERS

CASE = letter_case(
    "sgd_step", "one step of gradient descent", LETTERS, oracle, dtypes=("float32", "float64"),
    scales={1: weight_scale, 3: weight_scale}, communicated=perceptron_gradient.communicated,
)  # fmt: skip
