"""Jobs: a command or a function on processes somewhere, whose record on disk outlives the caller.

`targets` says where; `submit` starts a job and `remote` makes a function one.
"""

from ...base.lazy import attach

_MODULE_OF, __getattr__, __dir__ = attach(globals(), {}, submodules="targets")
