"""Options that commands of `pyreactant tpu` share, from the declarations of the target TPU."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.errors import InvalidArgumentError, RequirementError
from ..base.say import say
from .command import KEYWORDS, duration
from .declared import DeclaredCommand, Options, chosen

if TYPE_CHECKING:
    from ..runs.places.tpu import TPU
    from ..runs.queued.client import Client

Transport = Annotated[str, typer.Option(help="Protocol of Google's client: rest or grpc.")]
Timeout = Annotated[float, duration(help="How long to wait at most.")]
Wait = Annotated[float, duration("--wait", help="How long the slices may take to become ACTIVE.")]

PATIENCE = 120.0
"""Seconds for which a command asks Cloud TPU again if there is no answer."""

LOCATION = ("project", "zone")
RESOURCE = (*LOCATION, "name")
SLICES = (*RESOURCE, "accelerator_type", "slice_count", "internal_ips")
NEW = (
    *SLICES,
    *("runtime_version", "provisioning", "valid_for", "lifetime", "network", "subnetwork"),
)
SSH = ("reach", "user", "ssh_flags")
"""Settings of the target TPU that a command has as options."""

_VARIABLES = {
    "name": "QR_ID",
    "project": "PROJECT",
    "zone": "ZONE",
    "accelerator_type": "ACCELERATOR_TYPE",
}
"""The variables of settings that a command may need."""


def with_settings(*names: str) -> type[DeclaredCommand]:
    """The class of a command with these settings of the target TPU as options."""

    class SettingsCommand(DeclaredCommand):
        """A command of `pyreactant tpu`."""

        def places(self) -> Mapping[str, Options]:
            """The options of these settings."""
            from ..runs.spec import options_of
            from ..runs.targets import type_of

            return {"tpu": chosen(options_of(type_of("tpu")), names)}

        def place(self, ctx: Any) -> str:
            """Always Cloud TPU."""
            return "tpu"

    return SettingsCommand


def parent_of(settings: Mapping[str, Any]) -> str:
    """Full name of project and zone."""
    return f"projects/{_required('project', settings)}/locations/{_required('zone', settings)}"


def path_of(settings: Mapping[str, Any]) -> str:
    """Full name of the queued resource."""
    name = _required("name", settings)
    return f"{parent_of(settings)}/queuedResources/{name}"


def _required(name: str, settings: Mapping[str, Any]) -> str:
    from ..runs.queued.request import check_form

    variable = _VARIABLES[name]
    value = settings.get(name) or os.environ.get(variable)
    if not value:
        raise InvalidArgumentError(f"give {KEYWORDS[variable]}, or set {variable}")
    check_form(variable, value)
    return str(value)


def target_of(settings: Mapping[str, Any], **more: Any) -> "TPU":
    """The target TPU with these settings, among which are those that name its slices."""
    from ..base.slices.topology import EXAMPLE
    from ..runs.places.tpu import TPU

    absent = [variable for name, variable in _VARIABLES.items() if not settings.get(name)]
    if absent:
        options = ", ".join(KEYWORDS[variable] for variable in absent)
        slices = f"; --topology takes a slice, {EXAMPLE}" if "ACCELERATOR_TYPE" in absent else ""
        raise InvalidArgumentError(f"give {options}, or set {', '.join(absent)}{slices}")
    return TPU(**settings, **more)


def examples(*commands: str) -> str:
    """The end of a command's help: commands without "pyreactant tpu", broken into lines by hand."""
    return "\n".join(["\b", "Examples:", *(f"  pyreactant tpu {command}" for command in commands)])


def connect(transport: str, *, patience: float = PATIENCE) -> "Client":
    """The client of the API."""
    try:
        from ..runs.queued.client import Client
    except ImportError as error:
        raise RequirementError(
            f"Google's client for Cloud TPU cannot be imported ({error}); install it with: "
            "python -m pip install 'pyreactant[tpu]'"
        ) from error
    return Client(transport=transport, patience=patience, tell=say)


@contextlib.contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """`say`; on a terminal with a line below that has the last message and the time.

    A file or a pipe has the messages already.
    """
    from .console import working

    if not sys.stderr.isatty():
        yield say
        return
    with working(what) as update:

        def both(text: str) -> None:
            say(text)
            update(text)

        yield both
