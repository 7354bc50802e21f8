"""Compile a program for an absent slice and report memory and collectives."""
