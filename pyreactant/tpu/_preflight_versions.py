"""The versions that a compilation depends on, and whether they fit, without importing jax."""

import importlib.metadata
import re

from .. import __version__
from .._errors import RequirementError


def versions() -> dict[str, str]:
    """Versions of pyreactant, jax, jaxlib and libtpu.

    Raises:
        RequirementError: jax or libtpu is missing, or libtpu is not the one that jax wants.
    """
    found = {"pyreactant": __version__}
    for package in ("jax", "jaxlib"):
        version = _version(package)
        if version is None:
            raise RequirementError(
                f"preflight compiles with {package}, which is not installed; "
                "python -m pip install 'pyreactant[tpu]'"
            )
        found[package] = version
    found["libtpu"] = _checked_libtpu(found["jax"])
    return found


def _checked_libtpu(jax: str) -> str:
    wanted, got = _wanted_libtpu(), _version("libtpu")
    pip = f"python -m pip install 'libtpu{wanted or ''}'"
    if got is None:
        raise RequirementError(
            f"preflight compiles with libtpu, which needs no TPU for that: jax {jax} wants "
            f"libtpu{wanted or ''}, and none is installed; {pip}"
        )
    if wanted is not None and not _matches(got, wanted):
        raise RequirementError(
            f"jax {jax} and libtpu {got} do not belong together: this jax wants libtpu{wanted}; "
            f"{pip}"
        )
    return got


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _wanted_libtpu() -> str | None:
    """What jax's extra "tpu" asks for, such as "==0.0.50.*"; None where it asks for no version."""
    for line in importlib.metadata.requires("jax") or ():
        found = re.match(r"libtpu\s*(==[\d.]+(?:\*)?)\s*;", line)
        if found:
            return found[1]
    return None


def _matches(got: str, wanted: str) -> bool:
    number = wanted.removeprefix("==")
    if number.endswith(".*"):
        return got == number[:-2] or got.startswith(number[:-1])
    return got == number
