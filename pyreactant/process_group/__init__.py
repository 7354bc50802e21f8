"""Who am I: the processes of a run, resolved once and given to every runtime alike."""

from ._data import ProcessGroup as ProcessGroup
from ._resolve import resolve as resolve
