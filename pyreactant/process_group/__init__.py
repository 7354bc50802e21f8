"""The processes of a run: resolved once, and the same for every runtime."""

from ._group import ProcessGroup as ProcessGroup
from ._group import port_of as port_of
from ._resolve import resolve as resolve
