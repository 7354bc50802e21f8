"""The JAX runtime; no other package imports jax in this process."""
