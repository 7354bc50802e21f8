"""Check and Diagnosis: the results of the doctor as frozen data, without secrets."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from .._errors import RequirementError
from .._version import __version__

Status = Literal["pass", "warn", "fail"]

SCHEMA = 1
"""Version of the JSON; incremented when a field changes its meaning or is removed."""


class CheckResult(NamedTuple):
    """The result of one check: a `Check` without its place in the table.

    Attributes:
        status: As in `Check`, or "absent" (fail if it is required, otherwise warn), or "unknown"
            because something that it needs is missing (warn if it is required, otherwise pass).
        found: What is there, in words.
        mend: The command that fixes it; "" if there is none.
    """

    status: Status | Literal["absent", "unknown"]
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One row.

    Attributes:
        name: What was checked.
        group: The heading of the row.
        status: "pass": nothing to do. "warn": it works or is not required, but may cause problems.
            "fail": it does not work.
        required: Whether nothing works until it passes.
        found: What is there, in words.
        mend: The command that fixes it, or shows more about it; "" if there is none.
    """

    name: str
    group: str
    status: Status
    required: bool
    found: str
    mend: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All rows, in the order of the table.

    Attributes:
        checks: The rows, group by group.
        backend: The runtime that must work; None for any.
        deep: Whether matrices were multiplied.
        seconds: The time that the checks took.
    """

    checks: tuple[Check, ...]
    backend: str | None = None
    deep: bool = False
    seconds: float = 0.0

    @property
    def missing(self) -> tuple[Check, ...]:
        """The required checks that failed."""
        return tuple(c for c in self.checks if c.required and c.status == "fail")

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 3 if a required check failed, otherwise 0."""
        return RequirementError.exit_code if self.missing else 0

    def count(self, status: Status) -> int:
        """The number of rows with this status."""
        return sum(check.status == status for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {
            "schema": SCHEMA,
            "pyreactant": __version__,
            "backend": self.backend,
            "deep": self.deep,
            "exit_code": self.exit_code,
            "missing": [check.name for check in self.missing],
            "counts": {s: self.count(s) for s in ("pass", "warn", "fail")},
            "seconds": round(self.seconds, 3),
            "checks": [check.to_dict() for check in self.checks],
        }


_SECRET = re.compile(
    r"(?<!no)_proxy$|token|secret|passw|credential|api_?key|private_?key", re.IGNORECASE
)
_IN_ADDRESS = re.compile(r"(\w+://)([^\s/]+)@")


def without_secrets(text: str, environ: Mapping[str, str]) -> str:
    """The text without the values of secret variables and without the users in addresses.

    Args:
        text: The text to print.
        environ: Environment variables; those with names such as X_TOKEN are secret.
    """
    values = {v for n, v in environ.items() if _SECRET.search(n)}
    users = {user for value in environ.values() for _, user in _IN_ADDRESS.findall(value)}
    users |= {value.rpartition("@")[0].rpartition("://")[2] for value in values}
    users |= {unquote(user) for user in users}
    values |= users | {user.partition(":")[2] for user in users}
    values = {value for value in values if len(value) > 3}  # shorter values are parts of many words
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "(hidden)")
    return _IN_ADDRESS.sub(r"\1(hidden)@", text)
