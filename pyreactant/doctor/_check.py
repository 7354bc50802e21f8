"""Check and Diagnosis: what the doctor found, as frozen data."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from .._errors import RequirementError
from .._version import __version__

Status = Literal["pass", "warn", "fail"]

SCHEMA = 1
"""Of the JSON; raised when a field changes its meaning or goes."""


class Found(NamedTuple):
    """What one check found: a `Check` without its place in the table.

    Attributes:
        status: As in `Check`; or "absent": fail where it is required, else warn; or "unknown",
            because something before it is missing: warn where it is required, else pass.
        found: In words.
        mend: The command to use, "" where there is none.
    """

    status: Status | Literal["absent", "unknown"]
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One row.

    Attributes:
        name: What was looked at.
        group: The heading it stands under.
        status: "pass": nothing to do. "warn": it works, or is not needed for what was asked, but
            look at it. "fail": this does not work.
        required: Whether nothing works as long as it fails.
        found: What is there, in words.
        mend: The command that mends it, or tells more where none does; "" where there is none.
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
    """All rows, in the order in which a human reads them.

    Attributes:
        checks: The rows; those of a group stand together.
        backend: The runtime that was asked for, None for any.
        deep: Whether products were computed.
        seconds: How long it took.
    """

    checks: tuple[Check, ...]
    backend: str | None = None
    deep: bool = False
    seconds: float = 0.0

    @property
    def missing(self) -> tuple[Check, ...]:
        """The required ones that failed."""
        return tuple(c for c in self.checks if c.required and c.status == "fail")

    @property
    def exit_code(self) -> int:
        """Of the command: 3 where something required is missing, else 0."""
        return RequirementError.exit_code if self.missing else 0

    def count(self, status: Status) -> int:
        """How many rows have this status."""
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


_PRIVATE = re.compile(
    r"(?<!no)_proxy$|token|secret|passw|credential|api_?key|private_?key", re.IGNORECASE
)
_IN_ADDRESS = re.compile(r"(\w+://)([^\s/]+)@")


def without_secrets(text: str, environ: Mapping[str, str]) -> str:
    """The text with the values of private variables, and users in addresses, taken out.

    Args:
        text: To be shown.
        environ: Variables; those whose names say so are private.
    """
    values = {v for n, v in environ.items() if _PRIVATE.search(n)}
    users = {user for value in environ.values() for _, user in _IN_ADDRESS.findall(value)}
    users |= {value.rpartition("@")[0].rpartition("://")[2] for value in values}
    users |= {unquote(user) for user in users}
    values |= users | {user.partition(":")[2] for user in users}
    values = {value for value in values if len(value) > 3}  # shorter ones stand in many words
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "(hidden)")
    return _IN_ADDRESS.sub(r"\1(hidden)@", text)
