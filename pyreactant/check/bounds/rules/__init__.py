"""Rules of NumPy functions, by family. Importing this package registers them."""

from . import arithmetic as arithmetic
from . import functions as functions
from . import moves as moves
from . import order as order
from . import products as products
from . import reductions as reductions
from . import runs as runs
