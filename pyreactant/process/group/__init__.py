"""The processes of a run: resolved once, and the same for every runtime."""

from .group import ProcessGroup as ProcessGroup
from .group import port_of as port_of
from .resolvers import resolve as resolve
