"""The runtime of this process, as far as plain data needs it.

A mesh over all devices, the sharding of a JAX array and the call of a program need the runtime,
which imports this data. So `pyreactant/__init__` says where the runtime is: it sets `find`.
"""

from collections.abc import Callable
from typing import Any

find: Callable[[], Any]
"""Returns the module `runtimes/for_data`, which answers."""
