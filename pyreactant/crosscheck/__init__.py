"""The cross-check: programs on two runtimes, against an independent oracle."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`pyreactant.crosscheck` is this package and the function of that name: calling it works."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from ._run import crosscheck

        return crosscheck(*args, **options)


sys.modules[__name__].__class__ = _Callable
