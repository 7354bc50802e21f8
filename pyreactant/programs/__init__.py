"""The built-in programs of the cross-check, one module each; none imports a runtime.

A module has ``body`` (JAX), ``oracle`` (NumPy) and ``CASE``; the Julia body of the same name is in
julia/src/programs.
"""

from ._case import Case as Case
from ._case import Input as Input
from ._case import Layout as Layout
from ._case import Output as Output
from ._case import Stream as Stream
from ._find import CASES as CASES
from ._find import find_case as find_case
