"""Names of a package that are loaded when they are first used (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(
    package: dict[str, Any], modules: Mapping[str, str], submodules: str = ""
) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """Each name's module, and the package's ``__getattr__`` and ``__dir__``.

    Args:
        package: Its ``globals()``; a loaded name stays there.
        modules: Names separated by spaces, by the module within the package that has them.
        submodules: Modules that are names themselves, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    module_of |= dict.fromkeys(submodules.split(), "")

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        within = module_of[name]
        module = importlib.import_module(f".{within or name}", package["__name__"])
        package[name] = getattr(module, name) if within else module
        return package[name]

    return module_of, load, lambda: sorted([*module_of, *package])
