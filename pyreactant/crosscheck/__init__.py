"""The cross-check: run programs on two runtimes and check them against a NumPy oracle."""

import inspect
import sys
import textwrap
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """Makes the package callable: `pyreactant.crosscheck` is also the function of that name.

    Importing a module of the package sets the name in `pyreactant` to the package, whatever was
    there. So help(pyreactant.crosscheck) finds a package; the text that it shows is the function's.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        from ._run import crosscheck

        return crosscheck(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from ._run import crosscheck

        return inspect.signature(crosscheck)

    @property
    def __doc__(self) -> str:  # type: ignore[override] # a package has text, this one a property
        from ._run import crosscheck

        found = inspect.signature(crosscheck).parameters.values()
        plain = [one.replace(annotation=one.empty) for one in found]
        call = f"pyreactant.crosscheck{inspect.Signature(plain)}"
        lines = textwrap.wrap(call, 80, subsequent_indent="    ", break_on_hyphens=False)
        return "\n".join([*lines, "", str(inspect.getdoc(crosscheck))])


sys.modules[__name__].__class__ = _Callable
