"""Options that a command takes from the declarations of what it starts (`runs.spec.option`).

They are made when the command is used, because the places take time to import. What the user gave
reaches the command as its argument `settings`: values by the names of the fields.
"""

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..base.duration import UNITS, duration_text
from ..base.errors import InvalidArgumentError
from .command import Beside, Command, duration, made_option, show_word

if TYPE_CHECKING:
    from ..runs.spec import Option

Options = Mapping[str, tuple["Option", Any]]
"""Declarations and their fields by the names of the options, as `runs.spec.options_of` gives."""

HERE = "here"
"""The place of a run in the foreground on this machine."""


class DeclaredCommand(Command):
    """A command with the options of the places where it works."""

    def places(self) -> Mapping[str, Options]:
        """The options of each place."""
        raise NotImplementedError

    def place(self, ctx: Any) -> str:
        """The place that the command line chooses."""
        raise NotImplementedError

    def reads(self, variable: str, ctx: Any) -> bool:
        """Whether a value may come from this environment variable."""
        return True

    @property
    def params(self) -> list[Any]:
        """All parameters: those of the function, and the declared ones."""
        if self._all is None:
            own = {name for parameter in self._own for name in parameter.opts}
            places = self.places()
            names = dict.fromkeys(name for options in places.values() for name in options)
            declared = [_parameter(name, places) for name in names if name not in own]
            self._all = [*self._own, *declared]
        return self._all  # the same list each time: click appends its option for help

    @params.setter
    def params(self, own: list[Any]) -> None:
        self._own, self._all = own, None

    _own: list[Any]
    _all: list[Any] | None = None

    def options(self, ctx: Any) -> dict[str, str]:
        """As `Command.options`, with the fields whose options have other names."""
        chosen = self.places().get(self.place(ctx), {})
        return super().options(ctx) | {field.name: name for name, (_, field) in chosen.items()}

    def beside(self) -> dict[str, Beside]:
        """As `Command.beside`, with the declared options."""
        declared = (pair for options in self.places().values() for pair in options.items())
        rules = {name: Beside(enables=option.enables) for name, (option, _) in declared}
        return super().beside() | rules

    def check(self, ctx: Any) -> None:
        """As `Command.check`; refuse options that the place does not have."""
        super().check(ctx)
        here, places = self.place(ctx), self.places()
        own = {name for parameter in self._own for name in parameter.opts}
        for name in self.given(ctx):
            having = [place for place, options in places.items() if name in options]
            if name not in own and having and here not in having:
                where = " or ".join(_WHERE.get(place, f"--on {place}") for place in having)
                raise InvalidArgumentError(
                    f"{name} is an option of {where}, and not of "
                    f"{_WHERE.get(here, f'--on {here}')}; leave it out, or choose another place"
                )

    def invoke(self, ctx: Any) -> Any:
        """Run the command with its settings."""
        self.check(ctx)
        given = self.given(ctx)
        settings = {}
        for name, (declared, field) in self.places().get(self.place(ctx), {}).items():
            value = given.get(name)
            if name not in given and declared.variable and self.reads(declared.variable, ctx):
                value = _from_environment(declared.variable, field)
            if isinstance(value, float) and declared.unit:
                value /= UNITS[declared.unit]
            if value is not None:
                settings[field.name] = tuple(value) if isinstance(value, list) else value
        own = {parameter.name for parameter in self._own}
        ctx.params = {name: value for name, value in ctx.params.items() if name in own}
        token = _settings.set(settings)
        try:
            return super().invoke(ctx)
        finally:
            _settings.reset(token)

    def possible(self, args: Sequence[str]) -> list[str]:
        """As `Command.possible`, without the options that the place does not have."""
        declared = {name for options in self.places().values() for name in options}
        here = self.places().get(self.place_named(args), {})
        names = super().possible(args)
        return [name for name in names if name in here or name not in declared]

    def place_named(self, args: Sequence[str]) -> str:
        """The place that the words of a command line name, which cannot be parsed."""
        words = " ".join(args).replace("=", " ").split()
        named = [value for word, value in itertools.pairwise(words) if word == "--on"]
        return next((name for name in named if name in self.places()), next(iter(self.places())))

    def given(self, ctx: Any) -> dict[str, Any]:
        """As `Command.given`; the same before and in `invoke`."""
        if not hasattr(ctx, "given"):
            ctx.given = super().given(ctx)
        given: dict[str, Any] = ctx.given
        return given


_settings: ContextVar[dict[str, Any]] = ContextVar("settings")

_WHERE = {HERE: "a run in the foreground on this machine", "local": "--detach on this machine"}


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose argument `settings` is no option of its own."""
    signature = inspect.signature(command)
    shown = [p for p in signature.parameters.values() if p.name != "settings"]

    @functools.wraps(command)
    def taking(**values: Any) -> None:
        command(settings=_settings.get(), **values)

    taking.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return taking


def chosen(options: Options, fields: Iterable[str]) -> Options:
    """The options of these fields."""
    wanted = {*fields}
    return {name: pair for name, pair in options.items() if pair[1].name in wanted}


def _parameter(name: str, places: Mapping[str, Options]) -> Any:
    """The option of the command line for a declared one, by its first declaration."""
    having = {place: options[name] for place, options in places.items() if name in options}
    declared, field = next(iter(having.values()))
    repeatable, kind = _kind(field.type)
    defaults = {pair[1].default for pair in having.values()}
    shown = declared.shown or (f"${declared.variable}" if declared.variable else "")
    if not shown and len(defaults) == 1 and kind is not bool:
        default = next(iter(defaults))
        shown = f"{default:g}" if isinstance(default, float) else str(default or "")
        if declared.unit and default is not None:
            shown = duration_text(default * UNITS[declared.unit])
    note = _note(having.keys(), places.keys(), declared.panel)
    names = [name, *filter(None, [declared.letter])]
    looks: dict[str, Any] = {
        "help": f"{declared.help[:-1]}{note}.",
        "show_default": shown or False,
        "rich_help_panel": declared.panel,
        "readable": False,  # an output may be a pipe that only another user reads
    }
    unit = declared.unit
    info = duration(*names, bare=unit, **looks) if unit else typer.Option(*names, **looks)
    annotation = Annotated[(list[kind] if repeatable else kind) | None, info]  # type: ignore[valid-type]
    made = made_option(name[2:].replace("-", "_"), annotation)
    show_word(made, kind)
    return made


_OF_ONE_PLACE = ("Slurm", "Cloud TPU", "VMs", "Ray", "Kubernetes")
"""Panels of which each place has no more than one."""


def _note(having: Set[str], places: Set[str], panel: str) -> str:
    """Where a command has an option, for its help."""
    if having == places or panel in _OF_ONE_PLACE:
        return ""
    if places - having == {HERE}:
        return "; not in the foreground here"
    if having == {HERE}:
        return "; in the foreground here only"
    *others, last = (place for place in places if place in having - {HERE})
    return f"; on {', '.join(others)}{' and ' if others else ''}{last} only"


def _kind(annotation: Any) -> tuple[bool, type]:
    """Whether an option can be repeated, and the type of one value."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    repeatable = any(word in text for word in ("tuple", "Iterable"))
    for kind in (bool, float, int, Path):
        if kind.__name__ in text:
            return repeatable, kind
    return repeatable, str


def _from_environment(variable: str, field: Any) -> Any:
    text = os.environ.get(variable)
    if not text:
        return None
    _, kind = _kind(field.type)
    try:
        return kind(text)
    except ValueError:
        raise InvalidArgumentError(f"{variable} must be a whole number, got {text!r}") from None
