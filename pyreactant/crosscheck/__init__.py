"""The cross-check: run programs on two runtimes and check them against a NumPy oracle."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """Makes the package callable: `pyreactant.crosscheck` is also the function of that name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from ._run import crosscheck

        return crosscheck(*args, **options)


sys.modules[__name__].__class__ = _Callable
