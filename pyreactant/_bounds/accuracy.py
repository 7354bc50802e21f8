"""How accurate elementary functions are, by platform and TPU generation.

The numbers are the tolerances of XLA's exhaustive tests (xla/tests/exhaustive of openxla/xla):
exhaustive_unary_test_functions.cc and exhaustive_binary_test_functions.cc. Only earlier versions
have the numbers for TPU, in the cases IsTpu, IsPreV6Tpu and IsPreV5Tpu; docs/checks.md lists them.
"""

import re
from typing import NamedTuple


class Accuracy(NamedTuple):
    """The largest error of a function: relative in unit roundoffs (half ulp), plus absolute."""

    relative: float
    absolute: float = 0.0


_CPU = {
    "divide": Accuracy(4),
    "sqrt": Accuracy(4),
    "rsqrt": Accuracy(4),
    "sin": Accuracy(4),
    "cos": Accuracy(4),
    "arctan": Accuracy(40),
    "exp": Accuracy(40),
    "expm1": Accuracy(40),
    "log": Accuracy(40),
    "log1p": Accuracy(40),
    "tanh": Accuracy(40),
    "sinh": Accuracy(40),
    "cosh": Accuracy(40),
    "arctan2": Accuracy(40),
    "hypot": Accuracy(8),
    "tan": Accuracy(8),
    "cbrt": Accuracy(140),  # 70 ulp in float64 on CPU, 16 elsewhere
    "arcsin": Accuracy(20),
    "arccos": Accuracy(40),
    "arcsinh": Accuracy(40),
    "arccosh": Accuracy(100, 1e-7),
    "arctanh": Accuracy(40),
}

_GPU = _CPU | {"arccos": Accuracy(20, 1e-6)}

_TPU = _GPU | {
    "arcsinh": Accuracy(2, 2e-4),
    "arccosh": Accuracy(2, 2e-4),
    "arctanh": Accuracy(2, 1e-4),
    "exp": Accuracy(66),
    "expm1": Accuracy(66),
    "log1p": Accuracy(2, 2e-4),
    "sinh": Accuracy(200, 1e-5),
    "cosh": Accuracy(200),
}

_TPU_BEFORE_V6 = _TPU | {
    "divide": Accuracy(68),
    "exp": Accuracy(150),
    "expm1": Accuracy(200, 1e-5),
    "log": Accuracy(2, 2e-4),
    "tanh": Accuracy(0, 5e-4),
}

_TPU_BEFORE_V5 = _TPU_BEFORE_V6 | {"divide": Accuracy(272)}


def accuracies(platform: str, kind: str) -> dict[str, Accuracy]:
    """The accuracy of each function on a platform.

    Args:
        platform: "cpu", "gpu" or "tpu".
        kind: The vendor's name of the device, such as "TPU v5 lite"; an unknown TPU gets the
            widest accuracies.
    """
    if platform != "tpu":
        return _GPU if platform == "gpu" else _CPU
    number = re.search(r"TPU ?v?(\d+)", kind)
    generation = int(number[1]) if number else 0
    return _TPU if generation >= 6 else _TPU_BEFORE_V6 if generation == 5 else _TPU_BEFORE_V5
