"""`pyreactant setup`: install and compile Julia, Reactant and our Julia package, once."""

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from .install import setup as setup
    from .options import Options as Options
    from .record import Record as Record

_MODULE_OF, __getattr__, __dir__ = attach(
    globals(), {"options": "Options", "record": "Record", "install": "setup"}
)
__all__ = [*_MODULE_OF]
