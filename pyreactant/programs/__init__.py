"""The built-in programs of the cross-check, one module each, without importing a runtime.

A module has ``body`` (JAX), ``oracle`` (NumPy) and ``CASE``; julia/src/programs has the Julia body
of the same name.
"""

from ._case import Case as Case
from ._case import Input as Input
from ._case import Layout as Layout
from ._case import Output as Output
from ._case import Stream as Stream
from ._find import CASES as CASES
from ._find import find_case as find_case
from ._find import hint_of as hint_of
