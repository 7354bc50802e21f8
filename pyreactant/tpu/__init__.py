"""Cloud TPU slices without a TPU: what a slice is, whether a program fits it, how to cut it.

Nothing here imports a runtime: what needs one runs in child processes.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ._plan import plan as plan
    from ._plan_report import Candidate as Candidate
    from ._plan_report import Plan as Plan
    from ._preflight import preflight as preflight
    from ._preflight_report import Preflight as Preflight
    from ._topology import Topology as Topology
    from ._topology import topologies as topologies
    from ._topology import topology as topology

_MODULES = {
    "_plan": "plan",
    "_plan_report": "Candidate Plan",
    "_preflight": "preflight",
    "_preflight_report": "Preflight",
    "_topology": "Topology topologies topology",
}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
