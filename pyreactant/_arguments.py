"""Names of arguments in messages: the keyword for callers in Python, the option at a command line.

Whoever raises an error names the argument with `argument`. A command says how its options are
called, with `named`, so no message is changed after it is written.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_options: Mapping[str, str] = {}
_ABSENT = object()


def argument(name: str, value: Any = _ABSENT) -> str:
    """How the caller writes an argument.

    Args:
        name: The keyword in Python.
        value: What it is set to, if the text has that, too.

    Returns:
        Such as "size" or "size=8" in Python, and "--size" or "--size 8" at a command line.
    """
    option = _options.get(name)
    if value is _ABSENT:
        return option or name
    return f"{name}={value!r}" if option is None else f"{option} {value}"


@contextlib.contextmanager
def named(options: Mapping[str, str]) -> Iterator[None]:
    """Name arguments by the options of a command until the body ends.

    Args:
        options: The option of each keyword, besides those that are named already.
    """
    global _options
    before = _options
    _options = {**before, **options}
    try:
        yield
    finally:
        _options = before
