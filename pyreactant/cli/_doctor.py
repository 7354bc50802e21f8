"""`pyreactant doctor`: what is here, what is missing, and the commands that mend it."""

import json
import signal
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ..doctor import Check, Diagnosis

_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red"}
_WORDS = {"pass": "pass", "warn": "warn", "fail": "FAIL"}  # seen also without colours


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also multiply and check on every runtime.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="The runtime that must work: jax or reactant.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each runtime to start.")] = 60.0,
) -> None:
    """Say what is here and what is missing, with the command that mends it.

    Runtimes are started in child processes, which are ended in time. Exit code 3: something
    required is missing.
    """
    from rich.console import Console

    from ..doctor import diagnose

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of the children's end
    waiting = Console(stderr=True)
    if waiting.is_terminal and not as_json:
        with waiting.status("looking around") as status:
            diagnosis = diagnose(backend, deep=deep, timeout=timeout, tell=status.update)
    else:
        diagnosis = diagnose(backend, deep=deep, timeout=timeout)
    if as_json:
        print(json.dumps(diagnosis.to_dict(), indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        if not console.is_terminal:
            console.width = 80  # a file or pipe has no width of its own
        _show(console, diagnosis)
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


def _show(console: "Console", diagnosis: "Diagnosis") -> None:
    width = max(len(check.name) for check in diagnosis.checks)
    group = None
    for check in diagnosis.checks:
        if check.group != group:
            console.print(f"{'' if group is None else chr(10)}{check.group}", style="bold")
            group = check.group
        _show_check(console, check, width)
    counts = (f"{diagnosis.count(status)} {status}" for status in ("pass", "warn", "fail"))
    console.print(f"\n{', '.join(counts)}, in {diagnosis.seconds:.1f} s")
    if diagnosis.missing:
        names = ", ".join(check.name for check in diagnosis.missing)
        console.print(f"required and missing: {names}", style=_STYLES["fail"])


def _show_check(console: "Console", check: "Check", width: int) -> None:
    """The status in words, what was found, and the command on a line of its own, to be copied."""
    from rich.text import Text

    start = f"  {_WORDS[check.status]}  {check.name:<{width}}  "
    room = max(console.width - len(start), 30)
    lines = textwrap.wrap(check.found, room, break_long_words=False, break_on_hyphens=False)
    text = Text(start + f"\n{' ' * len(start)}".join(lines))
    text.stylize(_STYLES[check.status], 2, 6)
    if check.mend:
        text.append("\n        mend: ").append(check.mend, "cyan")
    console.print(text)
