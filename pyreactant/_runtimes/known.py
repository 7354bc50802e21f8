"""The runtimes that `initialize` knows; importing this imports no runtime, and not NumPy."""

from .._errors import InvalidArgumentError

BACKENDS = {
    "jax": ("pyreactant._runtimes.jax.backend:JaxBackend", "jax"),
    "reactant": ("pyreactant._runtimes.reactant.backend:ReactantBackend", "juliacall"),
}
"""Known runtimes: the class, imported when the runtime starts, and the package that it needs."""

PLATFORMS = ("cpu", "gpu", "tpu")


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
