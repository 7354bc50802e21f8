"""Registration of rules."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..tracked import FUNCTIONS, UFUNCS, Rule


def rule(*ufuncs: np.ufunc) -> Callable[[Rule], Rule]:
    """Register the rule of ufuncs: ``rule(model, *operands)`` with Tracked operands."""

    def register(function: Rule) -> Rule:
        for ufunc in ufuncs:
            UFUNCS[ufunc] = function
        return function

    return register


def function(*functions: Any) -> Callable[[Rule], Rule]:
    """Register the rule of NumPy functions, which has their parameters in the same order."""

    def register(found: Rule) -> Rule:
        for one in functions:
            FUNCTIONS[one] = found
        return found

    return register
