"""Numbers with an error bound: what rounding may make of a result.

Importing this package registers the rule of every NumPy function that has one.
"""

from . import rules as rules
from . import sums as sums
