"""``python -m pyreactant.crosscheck REQUEST FOLDER``: one process of a cross-check's run."""

from ._member import main

main()
