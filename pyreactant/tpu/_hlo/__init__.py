"""Read StableHLO and optimised HLO."""
