"""Cloud TPU queued resources: create, wait for, use and always delete them."""

from ...base.lazy import attach

_MODULES = {
    "client": "Client",
    "deletion": "Interrupted cleaned_up",
    "gc": "collect",
    "journal": "Journal",
    "leftover": "Leftover leftovers",
    "lifecycle": "Lease clock_error",
    "request": "CloudError NotOursError PreemptedError Request Resource Worker cost_of_forgetting "
    "from_environment",
}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
