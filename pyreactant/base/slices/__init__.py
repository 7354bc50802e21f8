"""Cloud TPU slices as data: generations of chips, and topologies."""
