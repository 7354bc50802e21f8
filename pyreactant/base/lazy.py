"""Load the names of a package at their first use (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(
    package: dict[str, Any], modules: Mapping[str, str], submodules: str = ""
) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """The module of each name, and the package's ``__getattr__`` and ``__dir__``.

    Loading raises RequirementError if a package that pyreactant needs cannot be imported.

    Args:
        package: The package's ``globals()``; loaded names are stored there.
        modules: Module of the package, with its names separated by spaces.
        submodules: Modules that are names of the package themselves, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    module_of |= dict.fromkeys(submodules.split(), "")

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        within = module_of[name]
        try:
            module = importlib.import_module(f".{within or name}", package["__name__"])
        except Exception as error:
            from .packages import broken_package

            if (broken := broken_package(error)) is None:
                raise
            raise broken from error
        package[name] = getattr(module, name) if within else module
        return package[name]

    return module_of, load, lambda: sorted({*module_of, *package})
