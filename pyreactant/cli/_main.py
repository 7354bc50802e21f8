"""The command tree, and how errors become messages and exit codes."""

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from .._errors import PyReactantError
from ._matmul import matmul

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Sharded array programs on many processes, on JAX.",
    epilog="Exit codes: 0 done, 1 a program failed, 2 usage, 3 something required is missing here, "
    "4 rendezvous failed, 5 a mismatch was found, 7 timeout.",
)
app.command()(matmul)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"pyreactant {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; the process ends with the exit codes above."""
    code = 1
    try:
        app()
    except PyReactantError as error:
        code = error.exit_code
        _explain(f"error: {error}")
    except KeyboardInterrupt:
        code = 130
        _explain("interrupted")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`; nobody is left to tell.
        code = 1
    except Exception as error:
        _explain(f"internal error: {type(error).__name__}: {error}")
        _explain("PYREACTANT_DEBUG=1 prints where; please report it with that")
    _end(code)


def _explain(message: str) -> None:
    if os.environ.get("PYREACTANT_DEBUG") == "1" and sys.exc_info()[0] is not None:
        import traceback

        traceback.print_exc()
    print(message, file=sys.stderr)


def _end(code: int) -> None:
    """Leave; at once when something failed, as the runtime would wait for the other processes."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass
    if code:
        os._exit(code)
