"""No password reaches the doctor's output, whatever a check or a runtime says."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

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
