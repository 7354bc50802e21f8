"""The runtimes that `initialize` knows; importing this imports no runtime, and not NumPy."""

import importlib.util

from .._errors import InvalidArgumentError, PyReactantError

BACKENDS = {
    "jax": ("pyreactant._runtimes.jax.backend:JaxBackend", "jax"),
    "reactant": ("pyreactant._runtimes.reactant.backend:ReactantBackend", "juliacall"),
}
"""Known runtimes: the class, imported when the runtime starts, and the package that it needs."""

PLATFORMS = ("cpu", "gpu", "tpu")

MOST_CPU_DEVICES = 4096
"""XLA starts threads for each virtual CPU device; with many more it never gets ready."""


def check_platform(name: str) -> None:
    """Check the name of a platform.

    Raises:
        InvalidArgumentError: It is unknown; the message has the known ones.
    """
    if name not in PLATFORMS:
        raise InvalidArgumentError(f"unknown platform {name!r}; known are: {', '.join(PLATFORMS)}")


def check_backend(name: str) -> None:
    """Check the name of a runtime.

    Raises:
        InvalidArgumentError: It is unknown; the message has the known ones.
    """
    if name not in BACKENDS:
        raise InvalidArgumentError(f"unknown backend {name!r}; known are: {', '.join(BACKENDS)}")


def usable_backends() -> tuple[str, ...]:
    """The runtimes that are installed and set up; starts none."""
    return tuple(
        name
        for name, (_, package) in BACKENDS.items()
        if importlib.util.find_spec(package) and (package != "juliacall" or _julia_is_settled())
    )


def _julia_is_settled() -> bool:
    from .._julia.place import find_place

    try:
        find_place()
    except PyReactantError:
        return False
    return True
