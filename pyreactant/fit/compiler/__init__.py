"""Compile and lower in child processes, and cache the answers."""
