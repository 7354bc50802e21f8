"""`pyreactant doctor`: what works, what is missing, and the commands that fix it."""

import json
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .._core.text import hanging
from ._command import examples

if TYPE_CHECKING:
    from rich.console import Console

    from ..doctor import Check, Diagnosis

_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red"}
_LABELS = {"pass": "pass", "warn": "warn", "fail": "FAIL"}  # distinct without colors too

EXAMPLES = examples(
    "pyreactant doctor --backend jax", "pyreactant doctor --deep --json > doctor.json"
)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also multiply matrices on every runtime.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(help="Runtime that must work: jax or reactant.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each runtime to start.")] = 60.0,
) -> None:
    """Check this machine; print the commands that mend it.

    The runtimes start in child processes, which are ended after the timeout. The exit code is 3
    if a required check fails.
    """
    from ..doctor import diagnose
    from ._console import output, working

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the children on the way
    with working("checking this machine") as tell:
        diagnosis = diagnose(backend, deep=deep, timeout=timeout, tell=tell)
    if as_json:
        print(json.dumps(diagnosis.to_dict(), indent=2))
    else:
        _print_table(output(80, soft_wrap=True), diagnosis)
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


def _print_table(console: "Console", diagnosis: "Diagnosis") -> None:
    width = max(len(check.name) for check in diagnosis.checks)
    group = None
    for check in diagnosis.checks:
        if check.group != group:
            console.print(f"{'' if group is None else chr(10)}{check.group}", style="bold")
            group = check.group
        _print_row(console, check, width)
    counts = (f"{diagnosis.count(status)} {status}" for status in ("pass", "warn", "fail"))
    console.print(f"\n{', '.join(counts)}, in {diagnosis.seconds:.1f} s")
    if diagnosis.missing:
        names = ", ".join(check.name for check in diagnosis.missing)
        console.print(f"required and missing: {names}", style=_STYLES["fail"])


def _print_row(console: "Console", check: "Check", width: int) -> None:
    """The status, what was found, and the command on a line of its own, for copying."""
    from rich.text import Text

    start = f"  {_LABELS[check.status]}  {check.name:<{width}}  "
    text = Text(hanging(start, check.found, console.width))
    text.stylize(_STYLES[check.status], 2, 6)
    if check.mend:
        text.append("\n        fix: ").append(check.mend, "cyan")
    console.print(text)
