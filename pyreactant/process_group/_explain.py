"""What every resolver found, and what follows: the data of `pyreactant explain`."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ._data import ProcessGroup
from ._finding import Finding, Trap
from ._resolve import findings

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """How this process learns who it is.

    Attributes:
        findings: Every resolver's, in the order in which they decide.
        notes: What a user should know even though it works.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def decider(self) -> Finding:
        """The first that applies."""
        return next(finding for finding in self.findings if finding.applies)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        decider = self.decider
        return {
            "decided": decider.name if decider.group else None,
            "group": _group(decider.group),
            "error": None if decider.trap is None else str(decider.trap),
            "line": _line(decider),
            "notes": list(self.notes),
            "resolvers": [
                {
                    "name": finding.name,
                    "decides": finding is decider,
                    "applies": finding.applies,
                    "reason": finding.reason,
                    "saw": dict(finding.saw),
                    "group": _group(finding.group),
                    "error": None if finding.trap is None else str(finding.trap),
                    "line": _line(finding),
                    "notes": list(finding.notes),
                }
                for finding in self.findings
            ],
        }


def explain(environ: Mapping[str, str] = os.environ) -> Explanation:
    """Ask every resolver, also those that come too late to decide; raises nothing.

    Values of secrets and of proxies, which may hold passwords, are never part of it.
    """
    found = (
        Finding("arguments", "none here: they are what a program gives to initialize"),
        *findings(environ),
    )
    proxies = [n for p in _PROXIES for n in (p, p.upper()) if environ.get(n)]
    notes = next(finding for finding in found if finding.applies).notes
    if proxies:
        notes += (f"pyreactant goes around the proxy of {', '.join(proxies)} to the coordinator",)
    return Explanation(found, notes)


def _group(group: ProcessGroup | None) -> dict[str, Any] | None:
    return None if group is None else dataclasses.asdict(group)


def _line(finding: Finding) -> str | None:
    return finding.trap.line if isinstance(finding.trap, Trap) else None
