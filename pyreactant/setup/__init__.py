"""`pyreactant setup`: install and compile Julia, Reactant and our Julia package, once."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ._options import Options as Options
    from ._setup import setup as setup
    from ._state import Record as Record

_MODULE_OF, __getattr__, __dir__ = attach(
    globals(), {"_options": "Options", "_state": "Record", "_setup": "setup"}
)
__all__ = [*_MODULE_OF]
