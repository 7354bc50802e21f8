"""Start a program on every process of a run, supervise it, and report what broke it."""

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from .metrics import Metric as Metric
    from .metrics import read_metrics as read_metrics
    from .options import RunOptions as RunOptions
    from .report import RunReport as RunReport
    from .supervisor import supervise as supervise

_MODULES = {
    "metrics": "Metric read_metrics",
    "options": "RunOptions",
    "report": "RunReport",
    "supervisor": "supervise",
}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
