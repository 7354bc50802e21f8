"""Expected values of a block, computed with NumPy."""
