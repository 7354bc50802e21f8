"""`pyreactant explain`: this process's index in its run, and which resolver decided it."""

import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ._command import examples

if TYPE_CHECKING:
    from ..process_group import ProcessGroup
    from ..process_group._group import Resolution
    from ..process_group._resolve import Explanation

EXAMPLES = examples("pyreactant explain", "srun --nodes 2 pyreactant explain --json")

_WIDTH = 100


def explain(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Print this process's index, and what decided it.

    Start this command as you start your program, for instance with srun. It starts no runtime.
    """
    from ..process_group._resolve import explain as resolve_all

    explanation = resolve_all()
    if as_json:
        print(json.dumps(explanation.to_dict(), indent=2))
    else:
        print("\n".join(_lines(explanation)))
    if explanation.decider.error is not None:
        raise explanation.decider.error


def _lines(explanation: "Explanation") -> Iterator[str]:
    yield "the first of these that applies decides:"
    for resolution in explanation.resolutions:
        yield from _resolution(resolution, decides=resolution is explanation.decider)
    group = explanation.decider.group
    yield ""
    if group is None:
        yield f"{explanation.decider.name} decides, and the launch cannot work"
    else:
        yield from _group(group)
    for note in explanation.notes:
        yield from _wrapped("note: ", note)


def _resolution(resolution: "Resolution", *, decides: bool) -> Iterator[str]:
    mark = ">" if decides else " "
    yield f"{mark} {resolution.name:<18}  {resolution.reason}"
    for name, value in resolution.evidence.items():
        yield from _wrapped(f"    {name}=", value)
    error = resolution.error
    if error is not None and not decides:
        command = getattr(error, "command", None)
        problem = getattr(error, "problem", str(error))
        yield from _wrapped("    would be an error: ", problem + ":" * bool(command))
        if command:  # on a line of its own, for copying
            yield f"      {command}"


def _group(group: "ProcessGroup") -> Iterator[str]:
    yield f"process {group.process_index} of {group.num_processes}, decided by {group.source}"
    if group.coordinator_address:
        yield f"  coordinator    {group.coordinator_address}"
    if group.hosts:
        yield from _wrapped("  hosts          ", ", ".join(group.hosts))
    if group.run_id:
        yield f"  run            {group.run_id}"
    ids = group.local_device_ids
    yield f"  local devices  {'all visible' if ids is None else ', '.join(map(str, ids))}"


def _wrapped(start: str, text: str) -> list[str]:
    """Text wrapped at 100 characters, with the later lines indented below the text of the first."""
    indent = " " * min(len(start), 20)
    return textwrap.wrap(
        start + text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
