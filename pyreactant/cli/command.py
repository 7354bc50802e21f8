"""What all commands share.

Their class puts options in panels, takes the names that options had before, and refuses options
that do not go together. Commands have one text for an option that several have, end their help with
examples, and say after Ctrl-C what is kept.
"""

import contextlib
import difflib
import functools
import inspect
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer
import typer.core
import typer.main

from ..arrays.text import MESH_HELP
from ..base import steps
from ..base.duration import duration_text, parse_duration
from ..base.errors import ExitCode, InvalidArgumentError, named
from ..base.outputs import STDOUT, is_stdout, reserved_stdout
from ..base.steps import Level
from .complete import offer


@dataclass(frozen=True, slots=True)
class Beside:
    """Which options go with an option or argument; in its annotation.

    Attributes:
        excludes: Names of those that it would make void, separated by spaces.
        enables: Names of those that would be void without this one, or another that enables them.
    """

    excludes: str = ""
    enables: str = ""


DType = Annotated[
    str | None, typer.Option(help="Element type, such as bfloat16.", show_default="float32")
]
MeshText = Annotated[
    str | None,
    typer.Option(help=f"Mesh: {MESH_HELP}.", show_default="all devices"),
    Beside(enables="--device-ids"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Platform = Annotated[
    str | None, typer.Option(help="Platform: cpu, gpu or tpu.", show_default="best available")
]
Html = Annotated[
    Path | None,
    typer.Option(
        help="Write the report as a page to this file; - is standard output.", readable=False
    ),
    Beside(enables="--overwrite"),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write the report as JSON to this file; - is standard output.",
        readable=False,
    ),
    Beside(enables="--overwrite"),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the output file, also one that is no report."),
]


def duration(*names: str, help: str, bare: str = "s", **more: Any) -> Any:
    """An option that takes a duration; its value is in seconds.

    Args:
        names: The names of the option, if they are not that of its argument.
        help: One sentence.
        bare: The unit of a number alone, as in `parse_duration`.
        more: Further settings of the option.
    """

    def parse(value: str | float) -> float:
        if isinstance(value, float):  # the default
            return value
        try:
            return parse_duration(value, bare)
        except ValueError as error:
            raise Refused(str(error)) from None

    return typer.Option(*names, help=help, parser=parse, metavar=_DURATION, **more)


class Refused(typer.BadParameter):
    """A usage error whose text is ours."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turn usage errors within the block, which are typer's, into errors of this package.

    Raises:
        InvalidArgumentError: A usage error. A group without a command, which prints its help,
            is none.
    """
    try:
        yield
    except Exception as error:
        asks_for_help = type(error).__name__ == "NoArgsIsHelpError"
        if not hasattr(error, "format_message") or asks_for_help:
            raise
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        raise InvalidArgumentError(f"{_usage_error(error)}{where}") from None


def _usage_error(error: Any) -> str:
    """What a usage error of typer says: what was required, and what was got."""
    parameter = getattr(error, "param", None)
    if parameter is None:
        text = str(error.message if isinstance(error, Refused) else error.format_message())
        text = text.rstrip(".").replace(". Did you", "; did you")
        return text[:1].lower() + text[1:]
    argument = parameter.param_type_name == "argument"
    name = parameter.metavar if argument else parameter.opts[0]
    if type(error).__name__ == "MissingParameter":
        from ..base.slices.topology import EXAMPLE

        example = f", {EXAMPLE}" if parameter.metavar == "SLICE" else ""
        return f"{name} is missing; give {'it' if argument else 'this option'}{example}"
    if isinstance(error, Refused):
        return f"{name}: {error.message}"
    given = error.ctx.meta.get(_GIVEN, {}).get(parameter.name) if error.ctx else None
    needed = _NUMBERS.get(parameter.metavar)
    if needed is None or given is None:
        return f"{name}: {error.message}"
    return f"{name}: it must be {needed}, got {str(given)[:40]!r}"


def show_word(parameter: Any, kind: Any) -> None:
    """Let help show the field's word for a value, not a type of Python.

    Args:
        parameter: An option or an argument.
        kind: Its annotation.
    """
    text = str(kind)
    if parameter.param_type_name == "argument":
        if parameter.metavar is None:
            name = parameter.name.upper()
            parameter.metavar = name if parameter.required else f"[{name}]"
        parameter.display_type_rich = lambda ctx: None
        parameter.get_usage_pieces = lambda ctx: [parameter.metavar]
    elif parameter.metavar is None and "bool" not in text:
        name = parameter.opts[0]
        numbers = (word for word, part in _TYPES.items() if part in text)
        named = "FOLDER" if "Path" in text else name.rpartition("-")[2].upper()
        parameter.metavar = _WORDS.get(name) or next(numbers, named)
    offer(parameter)


def examples(*commands: str) -> str:
    r"""The epilog of a command with its examples, one on each line.

    The ``\b`` tells click not to wrap them.
    """
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


NEW_COMMANDS: Mapping[str, str] = {
    "jobs submit": "pyreactant run --detach [--on PLACE] -- PROGRAM",
    "slurm submit": "pyreactant run --on slurm -- PROGRAM, or pyreactant crosscheck --on slurm",
    "slurm status": "pyreactant jobs status",
    "slurm logs": "pyreactant jobs logs",
    "slurm cancel": "pyreactant jobs cancel",
    "slurm": "pyreactant run --on slurm -- PROGRAM, crosscheck --on slurm, and jobs",
    "tpu run": "pyreactant run --on tpu -- PROGRAM, or pyreactant crosscheck --on tpu",
    "tpu logs": "pyreactant jobs logs",
}
"""What the commands of version 0.1 are called now."""

NEW_OPTIONS: Mapping[str, str] = {
    "--accelerator-type": "--topology",
    "--cpu-devices": "--devices-per-process",
    "--folder": "--out",
    "--max-requeues": "--max-restarts",
    "--num-slices": "--slices",
    "--output": "--out",
    "--programs": "an argument, such as: pyreactant crosscheck --on slurm matmul fft",
    "--retries": "--max-restarts",
    "--set": "an option of its own for each setting, such as --account proj01",
    "--slice-count": "--slices",
    "--worker": "--process",
}
"""What the options of version 0.1 are called now."""

LONG = 12
"""Options from which on a help has panels."""

PANELS = {
    "Data": "--size --m --k --n --x --y --shape --dtype --seed --precision",
    "Layout": "--mesh --device-ids --spec --y-spec --out-spec",
    "Devices": "--topology --slices --backend --backends --platform --processes "
    "--devices-per-process --devices",
    "Program": "",
    "Slurm": "",
    "Cloud TPU": "",
    "VMs": "--ray --process",
    "Ray": "",
    "Kubernetes": "",
    "Time limits": "--timeout",
    "Output": "--out --overwrite --report --html --hlo --json --request --follow --dry-run "
    "--quiet --verbose",
}
"""Options of each panel: one name means one thing, so it has one place in every help.

Those that are declared (`runs.spec.option`) have their panel there.
"""

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}
_OTHERS = "Options"

# The name in messages of each argument that some options do not go with.
_ARGUMENTS = {"program": "SCRIPT", "programs": "PROGRAM", "jobs": "ID"}

KEYWORDS = {
    "ACCELERATOR_TYPE": "--topology",
    "PROJECT": "--project",
    "QR_ID": "--name",
    "RUNTIME_VERSION": "--runtime-version",
    "SLICE_COUNT": "--slices",
    "ZONE": "--zone",
    "accelerator_type": "--topology",
    "differentiable": "--gradients",
    "folder": "--out",
    "gradients": "--modules",
    "num_cpu_devices": "--devices-per-process",
    "num_slices": "--slices",
    "shapes": "--shape",
}
"""Arguments of Python, and variables, that options of other names set."""

_SCALAR = "--shape"  # may be empty
_EMPTY = "it is empty; give a value, or leave it out"

MOST_WHOLE = 2**63 - 1
"""Largest whole number of an option: what 64 bits hold, as of a seed."""

_GIVEN = "pyreactant.given"
"""What the command line has, by the names of the parameters, in the context of a command."""

_TYPES = {"N": "int", "NUMBER": "float"}
_NUMBERS = {"N": "a whole number", "NUMBER": "a number"}
_FILES = "--report --html --hlo --request --x --y --requirements --stablehlo --manifest"
_WORDS = {
    **dict.fromkeys(_FILES.split(), "FILE"),
    "--backend": "RUNTIME",
    "--backends": "RUNTIMES",
    "--copy": "PATH",
    "--env": "NAME",
    "--on": "PLACE",
    "--profile": "STEP:COUNT",
    "--python": "EXECUTABLE",
    "--reach": "METHOD",
    "--sbatch": "OPTION",
    "--store": "FOLDER",
    "--topology": "SLICE",
}
"""The word for the value of each option whose last part, in capitals, does not say it."""

_DURATION = "TIME"
"""The metavar of an option that takes a duration."""

F = TypeVar("F", bound=Callable[..., Any])

NARROW = 50
"""Columns from which on a help is as wide as the terminal without help from here."""


class _Common:
    """A command or group: its help fits a narrow terminal, and its errors are like all others."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Parse the command line.

        Raises:
            InvalidArgumentError: It is wrong.
        """
        with usage_errors():
            return super().make_context(*arguments, **more)  # type: ignore[misc] # of typer's classes

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments; their values stay text in a line that a shell completes.

        To convert them takes pydantic, whose import is a third of a completion.
        """
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of typer's classes
        if ctx.resilient_parsing:
            for parameter in parameters:
                parameter.process_value = lambda ctx, value: value
        return parameters

    def get_help(self, ctx: Any) -> str:
        """The help."""
        columns = shutil.get_terminal_size().columns - 2
        if ctx.terminal_width is None and columns < NARROW:
            ctx.terminal_width = max(columns, NARROW // 2)
        return str(super().get_help(ctx))  # type: ignore[misc] # of typer's classes

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help: whole, since a narrow help breaks lines."""
        return str(super().get_short_help_str(max(limit, 2 * NARROW)))  # type: ignore[misc]


class Group(_Common, typer.core.TyperGroup):
    """A group of commands, which knows the old commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words name.

        Raises:
            InvalidArgumentError: It is a command of version 0.1; the message has the new one.
        """
        above = ctx.command_path.removeprefix(ctx.find_root().command_path).split()
        for name in (" ".join([*above, *args[:2]]), " ".join([*above, *args[:1]])):
            if name in NEW_COMMANDS:
                raise InvalidArgumentError(
                    f"pyreactant {name} is a command of version 0.1; it is now: "
                    f"{NEW_COMMANDS[name]}"
                )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the words name."""
        with usage_errors():
            return super().invoke(ctx)


class Command(_Common, typer.core.TyperCommand):
    """A command whose long help has panels, and that knows what its options were called."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        own = [*(settings.get("params") or []), *_loudness()]
        super().__init__(*arguments, **settings | {"params": own})
        options = [parameter for parameter in own if isinstance(parameter, typer.core.TyperOption)]
        kinds = {
            name: (get_args(parameter.annotation) or [str])[0]
            for name, parameter in inspect.signature(settings["callback"]).parameters.items()
        }
        for parameter in own:
            show_word(parameter, kinds.get(parameter.name, str))
        enabling = _enabling(_beside(settings["callback"], own))  # those of places load late
        for option in options:
            needed, text = enabling.get(option.opts[0], []), option.help or ""
            if needed and not any(name in text for name in needed):
                option.help = f"{text[:-1]}; needs {' or '.join(needed)}."
            if len(options) >= LONG:
                option.rich_help_panel = _PANEL_OF.get(option.opts[0], _OTHERS)
            if option.metavar == _DURATION and isinstance(option.default, float):
                option.show_default = duration_text(option.default)

    def make_parser(self, ctx: Any) -> Any:
        """The parser of the command line, which says what an old option is called now."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            words = list(args)  # the parser takes them out
            try:
                parsed = parse(args)
            except Exception as error:
                name = getattr(error, "option_name", "")
                new = NEW_OPTIONS.get(name, "")
                own = {
                    option: parameter
                    for parameter in self.params
                    for option in (*parameter.opts, *parameter.secondary_opts)
                }
                if new in own or (new and not new.startswith("--")):
                    raise InvalidArgumentError(
                        f"{name} is an option of version 0.1; it is now {new}"
                    ) from None
                if name and name not in own:
                    raise Refused(self.unknown_option(name, words), ctx) from None
                if name:
                    flag = getattr(own[name], "is_flag", False)
                    takes = "takes no value; leave it out" if flag else "needs a value"
                    raise Refused(f"{name} {takes}", ctx) from None
                raise
            ctx.meta[_GIVEN] = parsed[0]
            if not ctx.resilient_parsing:  # a line that a shell completes
                self.check_empty(ctx, parsed[0])
            return parsed

        parser.parse_args = parse_args
        return parser

    def unknown_option(self, name: str, args: Sequence[str]) -> str:
        """What is said of an option that there is not, with those of this command that are like it.

        Args:
            name: The option.
            args: The words of the command line.
        """
        known = [text for text in self.possible(args) if text.startswith("--")]
        near = [text for text in known if text.startswith(f"{name}-")][:3]
        near = near or difflib.get_close_matches(name, known, 3, 0.7)
        return f"no such option: {name}" + (f"; did you mean {' or '.join(near)}?" if near else "")

    def possible(self, args: Sequence[str]) -> list[str]:
        """The options that a command line may have."""
        return [
            name
            for parameter in self.params
            if parameter.param_type_name == "option"
            for name in (*parameter.opts, *parameter.secondary_opts)
        ]

    def check_empty(self, ctx: Any, values: Mapping[str, Any]) -> None:
        """Refuse an empty value of an option: often a variable of the shell that is not set.

        Raises:
            Refused: An option is empty.
        """
        for option in self.params:
            value = values.get(option.name)
            texts = value if isinstance(value, list) else [value]
            if option.param_type_name == "option" and "" in texts and option.opts[0] != _SCALAR:
                raise Refused(f"{option.opts[0]}: {_EMPTY}", ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, if its options are fine."""
        self.check(ctx)
        with named(self.options(ctx)), contextlib.ExitStack() as stack:
            given = self.given(ctx).values()
            if any(isinstance(value, Path) and is_stdout(value) for value in given):
                stack.enter_context(reserved_stdout())
            steps.level = _level(ctx.params.pop("quiet"), ctx.params.pop("verbose"))
            return super().invoke(ctx)

    def options(self, ctx: Any) -> dict[str, str]:
        """The option of each argument in Python that this command has under some name."""
        options = [
            parameter for parameter in self.params if isinstance(parameter, typer.core.TyperOption)
        ]
        names = {name[2:].replace("-", "_"): name for option in options for name in option.opts[:1]}
        names |= {
            keyword: name
            for keyword, name in KEYWORDS.items()
            if name in (self.given(ctx) if keyword.isupper() else names.values())
        }
        return names

    def given(self, ctx: Any) -> dict[str, Any]:
        """The options and arguments on the command line, with their values."""
        given = {}
        for parameter in self.params:
            source = ctx.get_parameter_source(parameter.name)
            if source is not None and source.name == "COMMANDLINE":
                value = ctx.params[parameter.name]
                given[_name(parameter, value is False)] = value
        return given

    def check(self, ctx: Any) -> None:
        """Check that options go together, and that numbers are finite.

        Raises:
            InvalidArgumentError: They are not.
        """
        given = self.given(ctx)
        typed = {
            _name(parameter): ctx.meta[_GIVEN].get(parameter.name) for parameter in self.params
        }
        for option, value in given.items():
            check_number(option, value)
            if option.startswith("-"):
                check_words(option, value, typed.get(option))
            if isinstance(value, Path) and is_stdout(value) and given.get("--json"):
                raise InvalidArgumentError(
                    f"give {option} {value} or --json, not both: each prints to standard output"
                )
        check_together(self.beside(), given.keys())

    def beside(self) -> dict[str, Beside]:
        """What each option or argument excludes and enables, by its name."""
        return _beside(self.callback, self.params)  # type: ignore[arg-type]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, those of a long help in the order of the panels."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        sections |= {panel: [] for panel in (*PANELS, _OTHERS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            panel = getattr(parameter, "rich_help_panel", None) or _OTHERS
            if record is not None:
                argument = parameter.param_type_name == "argument"
                sections["Arguments" if argument else panel].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, 30 if formatter.width >= NARROW else 12)


def made_option(keyword: str, annotation: Any) -> Any:
    """An option of the command line, as typer makes those of a command from its arguments."""
    parameter = inspect.Parameter(
        keyword, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )

    def template() -> None: ...

    template.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(template)
    return typer.main.get_command(app).params[0]


@functools.cache
def _loudness() -> Sequence[Any]:
    """The options of all commands that say how much they tell."""
    panel = _PANEL_OF["--quiet"]
    less = "Print no progress, only the result and errors."
    more = "Print each step with its time, and the tracebacks of errors."
    quiet = typer.Option("--quiet", "-q", help=less, rich_help_panel=panel)
    verbose = typer.Option("--verbose", "-v", help=more, rich_help_panel=panel)
    return (
        made_option("quiet", Annotated[bool, quiet]),
        made_option("verbose", Annotated[bool, verbose]),
    )


def _level(quiet: bool, verbose: bool) -> Level:
    if quiet and verbose:
        raise InvalidArgumentError("give --quiet or --verbose, not both")
    return Level.QUIET if quiet else Level.VERBOSE if verbose else Level.USUAL


def check_together(beside: Mapping[str, Beside], given: Set[str]) -> None:
    """Check the options and arguments of a command line, by name.

    Raises:
        InvalidArgumentError: One of them would be ignored; the message has both names.
    """
    for name, rule in beside.items():
        for other in rule.excludes.split():
            if {name, other} <= given:
                raise InvalidArgumentError(f"give {name} or {other}, not both")
    for name, needed in _enabling(beside).items():
        if name in given and not given & {*needed}:
            wanted = " or ".join(needed)
            raise InvalidArgumentError(f"{name} needs {wanted}; give both, or leave {name} out")


def _beside(function: Callable[..., Any], parameters: Sequence[Any]) -> dict[str, Beside]:
    """What is in the annotations of a command's function, by the names of its parameters."""
    named = {parameter.name: _name(parameter) for parameter in parameters}
    return {
        named[name]: rule
        for name, parameter in inspect.signature(function).parameters.items()
        for rule in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(rule, Beside)
    }


def _enabling(beside: Mapping[str, Beside]) -> dict[str, list[str]]:
    """The options of which each option needs one, by its name."""
    enabling: dict[str, list[str]] = {}
    for name, rule in beside.items():
        for other in rule.enables.split():
            enabling.setdefault(other, []).append(name)
    return enabling


def _name(parameter: Any, negative: bool = False) -> str:
    """The name of an option or argument in messages."""
    if parameter.param_type_name == "argument":
        return _ARGUMENTS.get(parameter.name, "")
    names: list[str] = parameter.secondary_opts if negative else parameter.opts
    return names[0]


def check_number(name: str, value: Any) -> None:
    """Refuse numbers that no clock and no array can have.

    Raises:
        InvalidArgumentError: It is NaN, infinite, too large, or a time limit that is over at once.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        raise InvalidArgumentError(f"{name} must be a number up to {MOST_WHOLE:g}, got {value}")
    if not math.isfinite(value):
        raise InvalidArgumentError(f"{name} must be a finite number, got {value}")
    if name.endswith(("-timeout", "-grace")) and value <= 0:
        raise InvalidArgumentError(f"{name} must be positive, got {duration_text(value)}")
    if name == "--workers" and value < 1:
        raise InvalidArgumentError(f"{name} must be 1 or more, got {value}")


def check_words(name: str, value: Any, typed: Any) -> None:
    """Refuse a value that was meant as the next option: the option's own value was forgotten.

    Args:
        name: The option.
        value: Its value, or a list of them.
        typed: The same as it was typed: the path of ./-x is -x.

    Raises:
        InvalidArgumentError: It is "--", or a path that begins with "-" but is not "-".
    """
    values, words = ([v] if not isinstance(v, list | tuple) else v for v in (value, typed))
    for one, text in zip(values, map(str, words), strict=False):
        path = isinstance(one, Path)
        if text == "--" or (path and text.startswith("-") and one != STDOUT):
            raise InvalidArgumentError(
                f"{name} has no value: {text!r} follows, which looks like an option; give a value"
                + (f", or write ./{text} for a file of that name" if path else "")
            )


class App(typer.Typer):
    """A group of commands of that class."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": Group, "rich_markup_mode": None, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """As typer's, with `Command` as the class."""
        return super().command(name, **{"cls": Command, **settings})


@contextlib.contextmanager
def interruptible(cache: bool) -> Iterator[None]:
    """After Ctrl-C within the block, say what is kept, and end with the exit code 130.

    Args:
        cache: Whether compilations are cached.
    """
    try:
        yield
    except KeyboardInterrupt:
        tell_interrupted(cache)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def tell_interrupted(cache: bool) -> None:
    """Say on standard error that the command was interrupted, and what is kept where."""
    from ..fit.compiler.ask import answers_folder

    kept = "nothing is kept"
    if cache:
        kept = (
            f"compilations that finished are kept in {answers_folder()}; the same command "
            "continues there"
        )
    print(f"interrupted: {kept}", file=sys.stderr)
