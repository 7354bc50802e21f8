"""Error bounds on rounding, and the comparison of results with them.

Importing this package registers the rules for all supported NumPy functions.
"""

from . import rules as rules
