"""Runs: their processes, what supervises them, the jobs that outlive their caller."""
