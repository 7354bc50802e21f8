"""Who am I: the processes of a run, resolved once and given to every runtime alike."""

from ._group import ProcessGroup as ProcessGroup
from ._group import port_of as port_of
from ._resolve import resolve as resolve
