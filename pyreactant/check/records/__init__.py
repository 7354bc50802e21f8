"""The files that each process of a cross-check writes."""
