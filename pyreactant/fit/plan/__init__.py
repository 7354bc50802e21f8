"""Rank meshes and partition specs for a program."""
