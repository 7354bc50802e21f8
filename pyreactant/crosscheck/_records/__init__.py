"""What each process of a cross-check writes to disk."""
