"""``python -m pyreactant.process.supervised script.py ...``, which the supervisor starts."""

from .main import main

if __name__ == "__main__":
    main()
