"""What plain data asks of the runtime above it, by name, because packages import only downwards."""

import importlib
from typing import Any


def runtime() -> Any:
    """The module that holds this process's runtime."""
    return importlib.import_module("pyreactant._runtimes.runtime")


def programs() -> Any:
    """The module that compiles and calls programs."""
    return importlib.import_module("pyreactant._runtimes.compile")
