"""Versions of Python packages, drivers and Julia, compared by their release numbers.

A development version, a release candidate or a local build counts as the release that it belongs
to: a nightly build of a library is made to work with the next release.

The functions import `packaging` when they are called: it takes 15 ms, which a command's --help
does not wait for.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def release(version: str) -> "Version":
    """The release that a version belongs to; 0 if the text has no number."""
    from packaging.version import Version

    found = _NUMBERS.search(version)
    return Version(found[0] if found else "0")


def at_least(version: str, oldest: str) -> bool:
    """Whether a version is `oldest` or newer."""
    return release(version) >= release(oldest)


def satisfies(version: str, spec: str) -> bool:
    """Whether a spec such as ">=2.0,<3" admits a version or its release; "" admits all."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    admitted = SpecifierSet(spec, prereleases=True)
    try:
        return version in admitted or release(version) in admitted
    except InvalidVersion:
        return release(version) in admitted


def requirements(lines: Iterable[str], *extras: str) -> Iterator[tuple[str, str]]:
    """The packages that a package requires on this Python, each with its spec.

    Args:
        lines: The Requires-Dist lines of the package's metadata.
        extras: Names of extras; the result has only what they add. Without any it has the
            requirements that hold without an extra.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for line in lines:
        try:
            found = Requirement(line)
        except InvalidRequirement:  # metadata written before PEP 508
            continue
        always = _holds(found, "")
        if not always and any(_holds(found, extra) for extra in extras) if extras else always:
            yield found.name, str(found.specifier)


def _holds(requirement: "Requirement", extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def required(lines: Iterable[str], package: str, *extras: str) -> str:
    """The required version of a package, such as ">=2.0"; "" for any.

    Args:
        lines: As for `requirements`.
        package: Name of the package.
        extras: As for `requirements`.
    """
    from packaging.utils import canonicalize_name

    name = canonicalize_name(package)
    found = requirements(lines, *extras)
    return next((spec for other, spec in found if canonicalize_name(other) == name), "")
