"""The built-in programs of the cross-check, one module for each family; none imports a runtime.

For a program such as softmax a module has `softmax` (JAX), `softmax_oracle` (NumPy, unless JAX's
body runs there too) and `SOFTMAX`, its case. julia/src/programs has the Julia body of the same
name, in a file of the family's name.
"""

from .case import Case as Case
from .case import Input as Input
from .case import Layout as Layout
from .case import Oracle as Oracle
from .case import Output as Output
from .find import CASES as CASES
from .find import find_case as find_case
from .find import hint_of as hint_of
from .user import NoShapesError as NoShapesError
