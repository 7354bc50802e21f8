"""What a setup says while it works, to whoever shows it."""

from collections.abc import Callable
from typing import Literal

State = Literal["waits", "starts", "says", "done"]
"""`waits` for a holder of the lock; a stage `starts`, `says` a line of output, is `done`."""

Report = Callable[[str, State, str], None]
"""Called with the stage, its state, and a text for people."""

STAGES = {
    "preferences": "preferences",
    "resolve": "Julia and its packages",
    "precompile": "compilation",
    "record": "record",
}
"""The stages in their order, in words."""


def silent(stage: str, state: State, text: str) -> None:
    """Show nothing."""
