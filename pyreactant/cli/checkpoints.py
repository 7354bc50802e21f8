"""`pyreactant checkpoints`: look at checkpoints of ours and of Orbax, and read them whole."""

import dataclasses
import json
import time
from typing import Annotated

import typer

from ..base.counted import counted
from ..base.errors import MismatchError
from .command import App, AsJson, examples

app = App(
    name="checkpoints",
    no_args_is_help=True,
    help="Checkpoints in Orbax's format.",
    epilog=examples(
        "pyreactant checkpoints list run1",
        "pyreactant checkpoints show run1/900",
        "pyreactant checkpoints verify run1",
    ),
)
Steps = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of steps.")]
One = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of a step, or an item in it.")]
Both = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of steps, or of one.")]


@app.command("list", epilog=examples("pyreactant checkpoints list run1 --json"))
def list_steps(folder: Steps, as_json: AsJson = False) -> None:
    """List the whole steps in a folder, the latest last."""
    from ..arrays.checkpoint.folder import list_steps, parse

    steps = list_steps(parse(folder))
    if as_json:
        rows = [
            {"step": s.number, "written": s.written, "bytes": s.nbytes, "leaves": s.leaves}
            for s in steps
        ]
        print(json.dumps(rows))
        return
    for step in steps:
        at = "time not known"
        if step.written is not None:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step.written))
        size = "" if step.nbytes is None else _size(step.nbytes)
        leaves = "its metadata cannot be read"
        if step.leaves is not None:
            leaves = counted(step.leaves, "leaf", "leaves")
        print(f"{step.number:>10}  {at}  {size:>10}  {leaves}")


@app.command(epilog=examples("pyreactant checkpoints show run1/900"))
def show(folder: One, as_json: AsJson = False) -> None:
    """Print the leaves of a checkpoint: path, type, shape, chunks and bytes."""
    from ..arrays.checkpoint.folder import parse
    from ..arrays.checkpoint.inspect import show
    from ..arrays.tree import path_text

    item, leaves = show(parse(folder))
    rows = [
        {
            "path": path_text(entry.keys),
            "kind": entry.kind,
            "dtype": array and array.dtype,
            "shape": array and array.shape,
            "chunk": array and array.chunk,
            "keys_of": entry.key_impl,
        }
        for entry, array in leaves
    ]
    if as_json:
        print(json.dumps(rows))
        return
    total = 0
    for row, (entry, array) in zip(rows, leaves, strict=True):
        what = entry.kind
        if array is not None:
            total += array.nbytes
            what = f"{array.dtype}{list(array.shape)} in chunks of {list(array.chunk)}"
            what += f"  keys of {entry.key_impl}" if entry.key_impl else ""
        print(f"{row['path']}  {what}")
    by = "with checksums" if item.digests is not None else "written without checksums"
    print(f"{counted(len(rows), 'leaf', 'leaves')}, {_size(total)}, {by}")


@app.command(epilog=examples("pyreactant checkpoints verify run1"))
def verify(folder: Both, as_json: AsJson = False) -> None:
    """Read checkpoints whole, and compare all checksums.

    Ends with 5 if one is damaged.
    """
    from ..arrays.checkpoint.folder import parse
    from ..arrays.checkpoint.inspect import verify

    damaged, rows = 0, []
    for verdict in verify(parse(folder)):
        damaged += bool(verdict.damage)
        if as_json:
            rows.append(dataclasses.asdict(verdict) | {"folder": str(verdict.folder)})
        elif verdict.damage:
            print(verdict.damage, flush=True)
        elif verdict.checked:
            print(f"{verdict.folder}: whole, {_size(verdict.nbytes)}", flush=True)
        else:
            print(
                f"{verdict.folder}: can be read, {_size(verdict.nbytes)}, written without "
                "checksums: a flipped bit would not be seen",
                flush=True,
            )
    if as_json:
        print(json.dumps(rows))
    if damaged:
        raise MismatchError(f"{damaged} damaged; restore another step, and delete these")


def _size(nbytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"
