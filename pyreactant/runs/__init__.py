"""A run: what runs and where (`spec`), its record on disk, its keeper, and how it is supervised.

`targets` says where; `submit` starts a run that outlives its caller.
"""

from ..base.lazy import attach

_MODULE_OF, __getattr__, __dir__ = attach(globals(), {}, submodules="targets")
