"""Checks of this machine: one row each, with the command that fixes what is wrong.

The doctor imports no runtime: child processes with a deadline start them.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .check import Check as Check
    from .check import Diagnosis as Diagnosis
    from .diagnosis import diagnose as diagnose

_MODULES = {"check": "Check Diagnosis", "diagnosis": "diagnose"}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
