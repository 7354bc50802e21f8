"""A digest of a program's StableHLO that is equal on processes with equal programs."""

import hashlib
import re

_MODULE = re.compile(r"^( *)module @\S+", re.MULTILINE)
_LOCATION_LINE = re.compile(r"^#loc\d* = .*\n?", re.MULTILINE)
_LOCATION = re.compile(r" loc\((?:#loc\d*|unknown|\"(?:[^\"\\]|\\.)*\"[^()\n]*)\)")


def canonical(text: str) -> str:
    """StableHLO text without what differs between processes that run the same program.

    The module's name and locations in source files are removed. Nothing else differs: JAX numbers
    Python callbacks per program (jax 0.10.2 and 0.12). Large constants are skipped, not read.
    """
    match = _MODULE.search(text, 0, _start_of_body(text))
    if match:
        text = f"{text[: match.start()]}{match[1]}module{text[match.end() :]}"
    if "\n#loc" in text or text.startswith("#loc"):
        text = _LOCATION.sub("", _LOCATION_LINE.sub("", text))
    return text


def program_digest(text: str) -> str:
    """A digest of StableHLO text, in 32 hexadecimal digits."""
    return hashlib.blake2b(canonical(text).encode(), digest_size=16).hexdigest()


def _start_of_body(text: str) -> int:
    """Where the first function begins; large constants come later."""
    found = text.find("func.func")
    return found if found >= 0 else len(text)
