"""The cross-check: run programs on two runtimes and check them against a NumPy oracle."""
