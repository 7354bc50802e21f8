"""`python -m pyreactant` is the command line."""

from .cli import main

main()
