"""Cloud TPU slices without a TPU: whether a program fits, and the best layout.

This package imports no runtime; compilers run in child processes.
"""
