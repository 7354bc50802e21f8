"""Finding: what one resolver saw and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .._errors import InvalidArgumentError
from ._data import ProcessGroup


class Trap(InvalidArgumentError):
    """Started in a way that cannot work, with the exact line that does.

    Attributes:
        sentence: What is wrong, and what the line is for.
        line: The command to use, or the setting to make.
    """

    def __init__(self, sentence: str, line: str):
        super().__init__(f"{sentence}: {line}")
        self.sentence, self.line = sentence, line


@dataclass(frozen=True, slots=True)
class Finding:
    """What one resolver found in the environment.

    Attributes:
        name: The resolver, which is the ``source`` of its group.
        reason: Why it applies or does not, in a few words.
        saw: The variables (or other things) it looked at and found, with their values.
        group: The group it gives; None where it does not apply, or where there is a trap.
        trap: What is wrong with the launch, to be raised.
        notes: What a user should know even though it works.
    """

    name: str
    reason: str
    saw: Mapping[str, str] = field(default_factory=dict)
    group: ProcessGroup | None = None
    trap: InvalidArgumentError | None = None
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether it decides, if no resolver before it does."""
        return self.group is not None or self.trap is not None
