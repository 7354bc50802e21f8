"""Readers of StableHLO and optimised HLO."""
