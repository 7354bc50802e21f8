"""`pyreactant.crosscheck`; as ``-m pyreactant.crosscheck REQUEST FOLDER`` a process of its runs."""

import inspect
import sys
import textwrap
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """Makes the module callable: `pyreactant.crosscheck` is also the function of that name.

    Importing a module sets its name in `pyreactant`, whatever was there. So
    help(pyreactant.crosscheck) finds a module; the text that it shows is the function's.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        from .check.run import crosscheck

        return crosscheck(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from .check.run import crosscheck

        return inspect.signature(crosscheck)

    @property
    def __doc__(self) -> str:  # type: ignore[override] # a module has text, this one a property
        from .check.run import crosscheck

        parameters = inspect.signature(crosscheck).parameters.values()
        plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
        call = f"pyreactant.crosscheck{inspect.Signature(plain)}"
        lines = textwrap.wrap(call, 80, subsequent_indent="    ", break_on_hyphens=False)
        return "\n".join([*lines, "", str(inspect.getdoc(crosscheck))])


sys.modules[__name__].__class__ = _Callable

if __name__ == "__main__":
    from .check.member import main

    main()
