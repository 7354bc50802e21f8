"""What plain data asks of the runtime above it, by name, because packages import only downwards."""

import importlib
from typing import Any


def runtime() -> Any:
    """The module with the runtime of this process."""
    return importlib.import_module("pyreactant._runtimes.runtime")
