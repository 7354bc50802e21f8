"""Cloud TPU slices without a TPU: their topology, whether a program fits, and the best layout.

This package imports no runtime; compilers run in child processes.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ._plan.plan import plan as plan
    from ._plan.report import Candidate as Candidate
    from ._plan.report import Plan as Plan
    from ._preflight.preflight import preflight as preflight
    from ._preflight.report import Preflight as Preflight
    from ._topology import Topology as Topology
    from ._topology import topologies as topologies
    from ._topology import topology as topology

_MODULES = {
    "_plan.plan": "plan",
    "_plan.report": "Candidate Plan",
    "_preflight.preflight": "preflight",
    "_preflight.report": "Preflight",
    "_topology": "Topology topologies topology",
}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
