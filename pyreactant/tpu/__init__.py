"""Cloud TPU slices without a TPU: what a slice is, whether a program fits it, how to cut it.

Nothing here imports a runtime: what needs one runs in child processes.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
