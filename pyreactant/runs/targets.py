"""Where jobs run: `Local`, `Slurm`, `TPU` and `Ray`, and what every `Target` must do."""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import InvalidArgumentError, argument
from ..base.lazy import attach
from .fields import words
from .places.target import Target as Target

if TYPE_CHECKING:
    from .places.local import Local as Local
    from .places.ray import Ray as Ray
    from .places.slurm import Slurm as Slurm
    from .places.tpu import TPU as TPU

_KINDS = {"local": "Local", "slurm": "Slurm", "tpu": "TPU", "ray": "Ray"}
"""The name of each target in records and on the command line, and its class in `places/NAME`."""

_MODULE_OF, __getattr__, __dir__ = attach(
    {**globals(), "__name__": __package__},
    {f"places.{kind}": name for kind, name in _KINDS.items()},
)
__all__ = ["Target", "make", *_MODULE_OF]


def make(kind: str, settings: Mapping[str, Any]) -> Target:
    """The target of that kind with these settings.

    Raises:
        InvalidArgumentError: There is no such target, or it has no such setting.
    """
    found = type_of(kind)
    known = settings_of(kind)
    for name in settings:
        if name not in known:
            raise InvalidArgumentError(
                f"the target {kind} has no setting {name!r}; it has {', '.join(known)}"
            )
    needed = [
        field.name
        for field in dataclasses.fields(found)
        if field.default is dataclasses.MISSING and field.name not in settings
    ]
    if needed:
        raise InvalidArgumentError(f"the target {kind} needs {', '.join(map(argument, needed))}")
    return found(**settings)


def type_of(kind: str) -> type[Target]:
    """The class of a target.

    Raises:
        InvalidArgumentError: There is no such target.
    """
    if kind not in _KINDS:
        raise InvalidArgumentError(f"a target must be one of {', '.join(_KINDS)}, got {kind!r}")
    found: type[Target] = getattr(
        importlib.import_module(f".places.{kind}", __package__), _KINDS[kind]
    )
    return found


def settings_of(kind: str) -> list[str]:
    """The names of a target's settings.

    Raises:
        InvalidArgumentError: There is no such target.
    """
    return [field.name for field in dataclasses.fields(type_of(kind))]


def parse(kind: str, given: Sequence[str]) -> dict[str, Any]:
    """Settings from words such as "account=proj01", with the types of the target's fields.

    Raises:
        InvalidArgumentError: A word is no setting, or has no value of its type.
    """
    types = {f.name: f.type for f in dataclasses.fields(type_of(kind))}
    found: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals:
            raise InvalidArgumentError(f"a setting is NAME=VALUE, got {word!r}")
        wanted = types.get(name, str)
        form = getattr(wanted, "__name__", str(wanted))
        if name in found and "tuple" not in form:
            raise InvalidArgumentError(f"{argument(name)} is given twice; give it once")
        try:
            if "tuple" in form:
                found[name] = (*found.get(name, ()), text)
            elif "bool" in form:
                found[name] = {"true": True, "false": False}[text.lower()]
            elif "int" in form:
                found[name] = int(text)
            else:
                found[name] = float(text) if "float" in form else text
        except (ValueError, KeyError):
            raise InvalidArgumentError(
                f"{argument(name)} must be {words(wanted)}, got {text!r}"
            ) from None
    return found
