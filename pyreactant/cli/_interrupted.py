"""What a command says after Ctrl-C."""

import contextlib
import sys
from collections.abc import Iterator

import typer

from ._command import INTERRUPTED


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
        raise typer.Exit(INTERRUPTED) from None


def tell_interrupted(cache: bool) -> None:
    """Say on standard error that the command was interrupted, and what is kept where."""
    from ..tpu._compiler.cache import folder

    kept = "nothing is kept"
    if cache:
        kept = (
            f"compilations that finished are kept in {folder()}; the same command continues there"
        )
    print(f"interrupted: {kept}", file=sys.stderr)
