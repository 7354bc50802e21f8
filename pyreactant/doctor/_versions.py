"""Versions of packages against what another package asks for, read from its metadata."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from operator import ge, gt, le, lt

from ._machine import Machine

_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?$")
_CLAUSE = re.compile(r"([<>=!~]*)\s*(.*)")
_ORDERS = {"<": lt, "<=": le, ">": gt, ">=": ge}
_NUMBER = re.compile(r"\d+(?:\.\d+)*")


def wanted(machine: Machine, package: str, other: str, *extras: str) -> str:
    """What a package asks of another, such as ">=2.0" or "==0.0.50.*"; "" where nothing.

    Args:
        machine: Where both are.
        package: Whose requirements.
        other: Of what.
        extras: Those of the package to look in; none means what it always asks for.
    """
    asked = requirements(machine, package, *extras)
    return next((spec for name, spec in asked if _plain(name) == _plain(other)), "")


def requirements(machine: Machine, package: str, *extras: str) -> Iterator[tuple[str, str]]:
    """The packages that a package asks for, each with the versions; extras as in `wanted`."""
    found = machine.distribution(package)
    markers = {f'extra == "{extra}"' for extra in extras} if extras else {""}
    for line in (found.requires if found is not None else None) or ():
        match = _REQUIREMENT.match(line)
        if match is not None and (match[3] or "").replace("'", '"').strip() in markers:
            yield match[1], match[2].strip()


def _plain(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def satisfies(version: str, spec: str) -> bool:
    """Whether a version is what a spec asks for; only its numbers are compared."""
    return all(_one(version, part.strip()) for part in spec.split(",") if part.strip())


def _one(version: str, part: str) -> bool:
    match = _CLAUSE.match(part)
    assert match is not None
    sign, number = match[1] or "==", match[2]
    order = _compare(version, number)
    if sign in ("==", "!="):
        same = order == 0
        if number.endswith(".*"):
            same = _start(version, number.count(".")) == _numbers(number)
        return same == (sign == "==")
    if sign == "~=":
        length = number.count(".")
        return order >= 0 and _start(version, length) == _start(number, length)
    return _ORDERS[sign](order, 0) if sign in _ORDERS else True


def at_least(version: str, least: str) -> bool:
    """Whether a version is this one or a later one."""
    return _compare(version, least) >= 0


def _compare(one: str, other: str) -> int:
    for a, b in zip_longest(_numbers(one), _numbers(other), fillvalue=0):
        if a != b:
            return 1 if a > b else -1
    return 0


def _start(version: str, length: int) -> tuple[int, ...]:
    """So many numbers of a version; those that it does not have are 0."""
    return (*_numbers(version), *[0] * length)[:length]


def _numbers(version: str) -> tuple[int, ...]:
    found = _NUMBER.search(version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
