"""The list of places where jobs run; `places.target` says what each must do."""

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import InvalidArgumentError, argument
from ..base.lazy import attach
from .places.target import Target as Target

if TYPE_CHECKING:
    from .places.kubernetes import Kubernetes as Kubernetes
    from .places.local import Local as Local
    from .places.ray import Ray as Ray
    from .places.slurm import Slurm as Slurm
    from .places.tpu import TPU as TPU

KINDS = {
    "local": "Local",
    "slurm": "Slurm",
    "tpu": "TPU",
    "ray": "Ray",
    "kubernetes": "Kubernetes",
}
"""The name of each target in records and on the command line, and its class in `places/NAME`."""

_MODULE_OF, __getattr__, __dir__ = attach(
    {**globals(), "__name__": __package__},
    {f"places.{kind}": name for kind, name in KINDS.items()},
)
__all__ = ["Target", "make", *_MODULE_OF]


def make(kind: str, settings: Mapping[str, Any]) -> Target:
    """The target of that kind with these settings.

    Raises:
        InvalidArgumentError: There is no such target, or it has no such setting.
    """
    target = type_of(kind)
    known = [*inspect.signature(target).parameters]
    for name in settings:
        if name not in known:
            raise InvalidArgumentError(
                f"the target {kind} has no setting {name!r}; it has {', '.join(known)}"
            )
    for field in dataclasses.fields(target):
        if field.default is dataclasses.MISSING and field.name not in settings:
            from ..base.slices.topology import EXAMPLE

            raise InvalidArgumentError(
                f"the target {kind} needs {argument(field.name)}, a slice {EXAMPLE}"
            )
    return target(**settings)


def type_of(kind: str) -> type[Target]:
    """The class of a target.

    Raises:
        InvalidArgumentError: There is no such target.
    """
    if kind not in KINDS:
        raise InvalidArgumentError(f"a target must be one of {', '.join(KINDS)}, got {kind!r}")
    target: type[Target] = getattr(
        importlib.import_module(f".places.{kind}", __package__), KINDS[kind]
    )
    return target
