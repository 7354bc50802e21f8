"""Modules in StableHLO that child processes write: of a Julia body, and of its derivatives."""
