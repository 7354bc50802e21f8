"""Checks of this machine: one row each, with the command that fixes what is wrong.

The doctor imports no runtime: child processes with a deadline start them.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ._check import Check as Check
    from ._check import Diagnosis as Diagnosis
    from ._diagnose import diagnose as diagnose

_MODULES = {"_check": "Check Diagnosis", "_diagnose": "diagnose"}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
