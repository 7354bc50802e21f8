"""The command line: commands call library functions and hold no logic."""

from ._main import main as main
