"""Jobs: a command or a function on processes somewhere, whose record on disk outlives the caller.

`targets` says where; `submit` starts a job and `remote` makes a function one.
"""

from .._lazy import attach

_MODULES = {"_job": "Job", "_remote": "remote", "_submit": "submit", "targets": "Target"}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES, submodules="targets")
__all__ = [*_MODULE_OF]
