"""A digest of a program's StableHLO that is equal on processes with equal programs."""

import hashlib
import re

_MODULE = re.compile(r"^( *)module @\S+", re.MULTILINE)
_CALLBACK = re.compile(r"custom_call @\w*python\w*callback")
_INDEX = re.compile(r"\bindex = \d+ : ui64|backend_config = \"\d+\"")
_LOCATION_LINE = re.compile(r"^#loc\d* = .*\n?", re.MULTILINE)
_LOCATION = re.compile(r" loc\((?:#loc\d*|unknown|\"(?:[^\"\\]|\\.)*\"[^()\n]*)\)")


def canonical(text: str) -> str:
    """StableHLO text without what differs between processes that run the same program.

    The module's name and locations in source files are removed, and the numbers of Python callbacks
    (each process counts its own). Large constants are skipped, not read.
    """
    match = _MODULE.search(text, 0, _start_of_body(text))
    if match:
        text = f"{text[: match.start()]}{match[1]}module{text[match.end() :]}"
    if "\n#loc" in text or text.startswith("#loc"):
        text = _LOCATION.sub("", _LOCATION_LINE.sub("", text))
    if "callback" in text:
        text = _without_callback_numbers(text)
    return text


def program_digest(text: str) -> str:
    """A digest of StableHLO text, in 32 hexadecimal digits."""
    return hashlib.blake2b(canonical(text).encode(), digest_size=16).hexdigest()


def _start_of_body(text: str) -> int:
    """Where the first function begins; large constants come later."""
    found = text.find("func.func")
    return found if found >= 0 else len(text)


def _without_callback_numbers(text: str) -> str:
    """Each line that calls a Python callback, without the callback's number."""
    parts = []
    done = 0
    at = text.find("callback")
    while at >= 0:
        start = text.rfind("\n", done, at) + 1 or done
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[start:end]
        if _CALLBACK.search(line):
            parts += [text[done:start], _INDEX.sub("index", line)]
            done = end
        at = text.find("callback", end)
    return "".join([*parts, text[done:]])
