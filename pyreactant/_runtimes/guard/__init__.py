"""The guard: processes that do not do the same operations in the same order get an error."""
