"""Cloud TPU queued resources: create, wait for, use and always delete them."""

from .._lazy import attach

_MODULES = {
    "_client": "Client",
    "_deletion": "Interrupted cleaned_up",
    "_gc": "collect",
    "_journal": "Journal",
    "_leftover": "Leftover leftovers",
    "_lifecycle": "Lease clock_error",
    "_request": "CloudError NotOursError PreemptedError Request Resource Worker cost_of_forgetting "
    "from_environment",
}
_MODULE_OF, __getattr__, __dir__ = attach(globals(), _MODULES)
__all__ = [*_MODULE_OF]
