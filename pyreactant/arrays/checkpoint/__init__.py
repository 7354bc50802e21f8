"""Checkpoints in Orbax's format, written and read without JAX."""
