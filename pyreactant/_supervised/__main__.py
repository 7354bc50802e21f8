"""``python -m pyreactant._supervised script.py ...``: the command that the supervisor starts."""

from .main import main

if __name__ == "__main__":
    main()
