"""Who am I: the processes of a run, resolved once and given to every runtime alike."""

from ._data import ProcessGroup as ProcessGroup
from ._data import port_of as port_of
from ._resolve import resolve as resolve
