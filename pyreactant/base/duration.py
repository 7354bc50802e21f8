"""Durations of command lines, such as 90s, 2h and 1h30m; Python itself has floats."""

import re
from decimal import Decimal

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
"""Seconds of each unit, in the order in which a duration names them."""

LONGEST = 10_000 * 86400.0
"""The longest duration in seconds: 27 years."""

_NUMBER = r"[0-9]+(?:\.[0-9]*)?"
_PARTS = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in UNITS))
_WORDS = {"h": "hours", "d": "days"}


def parse_duration(text: str, bare: str = "s") -> float:
    """The seconds of a duration.

    Args:
        text: Such as "90s", "2h", "1h30m" or "3d"; a number alone is seconds.
        bare: The unit of a number alone. "h" and "d", which older versions took, are refused.

    Raises:
        ValueError: It is no duration; the text says what to write.

    Examples:
        >>> parse_duration("1h30m")
        5400.0
    """
    if re.fullmatch(_NUMBER, text):
        if bare != "s":
            unit = f"{text}{bare}"
            raise ValueError(f"it needs a unit; write {unit} for {text} {_WORDS[bare]}")
        seconds = float(text)
    else:
        parts = _PARTS.fullmatch(text)
        if not text or parts is None:
            raise ValueError(f"it must be a duration, such as 90s, got {text[:40]!r}")
        seconds = sum(
            float(number) * length
            for number, length in zip(parts.groups(), UNITS.values(), strict=True)
            if number
        )
    if seconds > LONGEST:
        raise ValueError(f"it must be at most {duration_text(LONGEST)}, got {text[:40]!r}")
    return seconds


def duration_text(seconds: float) -> str:
    """A duration as a person writes it, such as "1h30m"; at least one part."""
    parts, rest = [], Decimal(repr(float(seconds)))
    for unit, length in UNITS.items():
        whole = rest if unit == "s" else rest // length
        rest -= whole * length
        if whole:
            parts.append(f"{_plain(whole)}{unit}")
    return "".join(parts) or "0s"


def seconds_word(seconds: float) -> str:
    """Seconds as a word of a command line, exact and without an exponent, such as "90"."""
    return _plain(Decimal(repr(float(seconds))))


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
