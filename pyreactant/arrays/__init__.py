"""Frozen data and its laws: meshes, shardings, arrays, programs, and what a runtime must do."""
