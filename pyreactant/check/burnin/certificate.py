"""The certificate of a burn-in: what passed, for how long, and what it cannot see; sealed.

The seal is a SHA-256 digest of the content, and an HMAC under the user's key, which others cannot
make. Where the key cannot be had, there is the digest alone: it shows damage, not intent.
"""

import hashlib
import hmac
import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from ..._version import __version__
from ...arrays.text import bytes_text, seconds_text
from ...base.counted import counted
from ...base.document.page import HasPage
from ...base.document.parts import Cell, Document, Items, Paragraph, Part, Section, Table
from ...base.document.parts import facts as facts_table
from ...base.document.terminal import HasText
from ...base.duration import duration_text
from ...base.errors import ExitCode, FileError, MismatchError, PyReactantError, RequirementError
from ...base.files import read_json
from ...base.outputs import marked
from ...process.group.coordinator import user_key
from ..records.plain import Plain
from .host import TOOL
from .record import SCHEMA, Record
from .rounds import COLLECTIVES, What
from .verdict import Finding, Kind, State, judge, robust_deviation

_KIND = "burnin certificate"
_LOOKS = {State.PASSED: "good", State.FAILED: "bad", State.SUSPICIOUS: "warn", State.UNTESTED: ""}
_AGAIN = "run: pyreactant burnin"
_OF_ONE_HOST = (Kind.DEVICE, Kind.PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Plain, HasPage, HasText):
    """What a burn-in certifies.

    Attributes:
        began: When it began, in UTC.
        ended: When its last round ended.
        ended_seconds: The same in seconds since 1970.
        seconds: Seconds that it ran.
        asked: Seconds that were asked for.
        partial: Why it is not whole; "" if it is.
        versions: Versions of pyreactant and the runtime, by name.
        hosts: For each process its host, processor, cores and the serial numbers of GPUs there.
        findings: Each device, process and link with its state.
        ran: For each round how often it ran, and its seconds.
        speeds: For each round the median seconds of one call, their robust standard deviation,
            the bytes that each device gave, and the number of times.
        quotes: What NVIDIA's own checker said on each host that has it; no part of the verdict.
        unseen: What this burn-in cannot see.
        sha256: Digest of all the above.
        hmac: HMAC of it under the user's key; "" where there was no key.
        schema: Version of this format.
    """

    began: str
    ended: str
    ended_seconds: float
    seconds: float
    asked: float
    partial: str
    versions: Mapping[str, str]
    hosts: tuple[Mapping[str, Any], ...]
    findings: tuple[Finding, ...]
    ran: Mapping[str, tuple[float, ...]]
    speeds: Mapping[str, tuple[float, ...]]
    quotes: tuple[Mapping[str, Any], ...]
    unseen: tuple[str, ...]
    sha256: str = ""
    hmac: str = ""
    schema: int = SCHEMA

    @property
    def failed(self) -> tuple[Finding, ...]:
        """What failed."""
        return tuple(f for f in self.findings if f.state is State.FAILED)

    @property
    def exit_code(self) -> int:
        """5 if something failed; what is only suspicious is no failure."""
        return ExitCode.MISMATCH if self.failed else ExitCode.DONE

    @property
    def bad_hosts(self) -> list[str]:
        """Hosts with a device or a process that failed."""
        names = {host["process"]: host["host"] for host in self.hosts}
        return sorted({names[f.processes[0]] for f in self.failed if f.kind in _OF_ONE_HOST})

    @property
    def only_hosts_failed(self) -> bool:
        """Whether no link or group failed, which leaving hosts out would not mend."""
        return all(f.kind in _OF_ONE_HOST for f in self.failed)

    @property
    def summary(self) -> str:
        """Such as "15 of 16 devices passed in 118 s"."""
        devices = [f for f in self.findings if f.kind is Kind.DEVICE]
        passed = sum(f.state is State.PASSED for f in devices)
        text = f"{passed} of {counted(len(devices), 'device')} passed in {self.seconds:.0f} s"
        return f"{text}; PARTIAL: {self.partial}" if self.partial else text

    def data(self) -> dict[str, Any]:
        """Plain data of the file."""
        return marked(_KIND, self.to_dict())

    def parts(self) -> Iterable[Part]:
        """The summary, all that is not passed, and what is not seen."""
        yield Paragraph(f"burnin: {self.summary}", "bad" if self.failed else "")
        for finding in self.findings:
            if finding.state in (State.FAILED, State.SUSPICIOUS):
                text = f"{finding.name}: {finding.state.upper()}: {'; '.join(finding.reasons)}"
                if finding.kind is Kind.LINK:
                    text = f"link {text}"
                yield Items([text], look=_LOOKS[finding.state])
        for quote in self.quotes:
            if quote["exit_code"] != 0:
                yield Items([f"{' '.join(TOOL)}: {_quote(quote)}"], look="warn")
        untested = [f for f in self.findings if f.state is State.UNTESTED]
        if untested:
            yield Items([f"not tested: {', '.join(f.name for f in untested)}"])
        yield Items([f"not seen: {', '.join(self.unseen)}"])

    def document(self) -> Document:
        """The page."""
        rows: list[list[Cell | str]] = [
            [f.name, Cell(f.state, _LOOKS[f.state]), "; ".join(f.reasons)] for f in self.findings
        ]
        ran = [
            [name, f"{n:.0f}", seconds_text(s), *_speed_texts(self.speeds.get(name))]
            for name, (n, s) in self.ran.items()
        ]
        hosts = [
            [
                f"process {host['process']}",
                host["host"],
                host["processor"],
                f"{host['resources']['NUMA nodes']}",
                bytes_text(host["resources"]["free memory"]),
                bytes_text(host["resources"]["free disk"]),
                ", ".join(host["serials"]) or "none",
            ]
            for host in self.hosts
        ]
        quotes = [_quote(quote) for quote in self.quotes]
        look = "bad" if self.failed else "warn" if self.partial else "good"
        sealed = "a digest and an HMAC" if self.hmac else "a digest only, which anyone can make"
        return Document(
            title="burn-in",
            mark=Cell("failed" if self.failed else "partial" if self.partial else "passed", look),
            heading="Burn-in",
            summary=self.summary,
            small=[f"{self.began} to {self.ended}", f"sealed by {sealed}: {self.sha256}"],
            sections=[
                Section("Devices, processes and links", [Table("", _HEAD, rows)]),
                Section("What ran", [Table("", _RAN, ran, numbers=(1, 2, 3, 4, 5))]),
                Section("What it cannot see", [Items(self.unseen)]),
                Section(
                    "Machines",
                    [Table("", _HOSTS, hosts, numbers=(3, 4, 5))],
                ),
                *([Section(" ".join(TOOL), [Items(quotes)])] if quotes else []),
                Section("Versions", [facts_table("", list(self.versions.items()))]),
            ],
        )


_HEAD = ["what", "state", "why"]
_HOSTS = ["process", "host", "processor", "NUMA nodes", "free memory", "free disk", "GPUs"]
_RAN = ["round", "times", "in all", "one call", "spread", "of each device"]


def _quote(quote: Mapping[str, Any]) -> str:
    code = quote["exit_code"]
    end = "did not end" if code is None else f"ended with {code}"
    return f"host {quote['host']}: {end}: {quote['output']}"


def _speed_texts(speed: Sequence[float] | None) -> list[str]:
    if speed is None:
        return ["", "", ""]
    middle, spread, nbytes, _ = speed
    each = f"{bytes_text(round(nbytes / middle))}/s" if nbytes and middle else ""
    return [seconds_text(middle), seconds_text(spread), each]


def _speeds(record: Record) -> dict[str, tuple[float, ...]]:
    """The times of single calls of each round, of all devices and groups together."""
    times: dict[str, array[float]] = defaultdict(lambda: array("d"))
    nbytes: dict[str, int] = {}
    for measure in record.measures:
        times[measure.round].extend(measure.seconds)
        nbytes[measure.round] = measure.nbytes
    return {
        name: (median(each), robust_deviation(each), nbytes[name], len(each))
        for name, each in times.items()
        if each
    }


def certify(record: Record, partial: str) -> Certificate:
    """The sealed certificate of a record.

    Args:
        record: What was measured.
        partial: Why it ended before its time; "" if it did not.
    """
    left_out = [name for name in record.rounds if name not in record.ran]
    if left_out and not partial:
        partial = f"the time was too short for {_few(left_out)}; give more --minutes"
    seconds = record.ended - record.began
    return sealed(
        Certificate(
            began=_utc(record.began),
            ended=_utc(record.ended),
            ended_seconds=record.ended,
            seconds=seconds,
            asked=record.asked,
            partial=partial,
            versions={"pyreactant": __version__, **record.runtime},
            hosts=tuple(
                {name: value for name, value in member.to_dict().items() if name != "devices"}
                for member in record.members
            ),
            findings=tuple(judge(record)),
            ran=record.ran,
            speeds=_speeds(record),
            quotes=record.quotes,
            unseen=tuple(_unseen(record, seconds, left_out)),
        )
    )


def _unseen(record: Record, seconds: float, left_out: Sequence[str]) -> Iterable[str]:
    yield f"errors that need more than {duration_text(max(1, round(seconds)))}"
    yield "float64"
    patterns = any(measure.round == What.MEMORY for measure in record.measures)
    other = "beyond the share that was tested" if patterns else "that these arrays do not use"
    yield f"memory {other}"
    if not any(measure.round == What.COUNTERS for measure in record.measures):
        yield "counters of the hardware (ECC, Xid)"
    if len({member.host for member in record.members}) < 2:
        yield "links to other hosts"
    if left_out:
        yield f"rounds that did not run: {_few(left_out)}"
    if len(record.members) > 1 and not any(n.startswith(COLLECTIVES) for n in record.ran):
        yield "all collective operations"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def sealed(certificate: Certificate) -> Certificate:
    """The certificate with its digest, and its HMAC if there is a key."""
    digest, code = _seal_of(certificate.data())
    return replace(certificate, sha256=digest, hmac=code)


def read_certificate(path: Path) -> Certificate:
    """A certificate that is as this user, with this key, has sealed it.

    Raises:
        FileError: It cannot be read, is no certificate, was changed, or was sealed under another
            key.
    """
    try:
        data = read_json(path, "a burn-in's certificate")
    except FileError as error:
        raise FileError(f"{error}; name the certificate of a burn-in, or {_AGAIN}") from None
    try:
        if data.get("format") != f"pyreactant {_KIND}" or data.get("schema") != SCHEMA:
            raise ValueError
        certificate = Certificate.from_dict(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FileError(
            f"{path}: must be a burn-in's certificate of this version of pyreactant; {_AGAIN}"
        ) from None
    digest, code = _seal_of(data)
    if not hmac.compare_digest(digest, str(certificate.sha256)):
        raise FileError(f"{path}: was changed after it was sealed; take the original, or {_AGAIN}")
    if not hmac.compare_digest(code, str(certificate.hmac)):
        raise FileError(
            f"{path}: is not sealed under this user's key; set PYREACTANT_SECRET as it was at the "
            f"burn-in, or {_AGAIN}"
        )
    return certificate


def check_age(certificate: Certificate, path: Path, longest: float, now: float) -> None:
    """Refuse a certificate that is too old, or of the future.

    Raises:
        RequirementError: It is.
    """
    age = now - certificate.ended_seconds
    if not -3600 <= age <= longest:
        there = "is of the future by this clock" if age < 0 else f"is {_rounded(age)} old"
        raise RequirementError(
            f"{path}: the burn-in must have ended within the last {duration_text(longest)}, and "
            f"{there}; {_AGAIN}"
        )


def check_machine(certificate: Certificate, path: Path, host: str, serials: Sequence[str]) -> None:
    """Refuse a certificate that is not of this machine, or in which something of it failed.

    Raises:
        RequirementError: It has other machines or GPUs, or this one was not tested.
        MismatchError: A device or process of this machine failed.
    """
    here = [each for each in certificate.hosts if each["host"] == host]
    if not here:
        hosts = ", ".join(sorted({each["host"] for each in certificate.hosts})[:8])
        raise RequirementError(
            f"{path}: the burn-in must be of this host, {host}, and is of {hosts}; {_AGAIN}"
        )
    known = {serial for each in here for serial in each["serials"]}
    if other := [serial for serial in serials if serial not in known]:
        raise RequirementError(
            f"{path}: the burn-in must be of the GPUs of this host, and does not have "
            f"{', '.join(other[:4])}; {_AGAIN}"
        )
    processes = {each["process"] for each in here}
    own = [f for f in certificate.findings if processes.issuperset(f.processes)]
    if failed := [f for f in own if f.state is State.FAILED]:
        raise MismatchError(
            f"{path}: {failed[0].name} failed its burn-in: {failed[0].reasons[0]}; leave this host "
            f"out, or mend it and {_AGAIN}"
        )
    if untested := [f.name for f in own if f.state is State.UNTESTED]:
        raise RequirementError(
            f"{path}: every device of this host must be tested, and {untested[0]} was not; {_AGAIN}"
        )


def _seal_of(data: Mapping[str, Any]) -> tuple[str, str]:
    """Digest and HMAC of a certificate's content, as it is in the file; "" without a key."""
    content = {name: value for name, value in data.items() if name not in ("sha256", "hmac")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    try:
        # A key of its own, so that a seal proves nothing elsewhere.
        key = hmac.digest(user_key(), b"burn-in certificate", hashlib.sha256)
        code = hmac.new(key, text, hashlib.sha256).hexdigest()
    except PyReactantError:
        code = ""
    return hashlib.sha256(text).hexdigest(), code


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rounded(seconds: float) -> str:
    """A duration to two digits or so."""
    unit = next((u for u in (86400, 3600, 60) if seconds >= 2 * u), 1)
    return duration_text(float(int(seconds // unit) * unit))
