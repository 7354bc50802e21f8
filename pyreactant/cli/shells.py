"""Completion in the user's shell: which shell it is, and the files that it loads completion from.

typer writes the scripts. Its own installation truncates the start-up file before it writes it, so
that a full disk would leave it empty, and ends with 1 for a shell that it does not know.
"""

from pathlib import Path

import typer
import typer.completion

from ..base.errors import FileError, InvalidArgumentError
from ..base.files import check_home, write

OPTIONS = ("--install-completion", "--show-completion")

# For each shell its script, its start-up file, and the line there that loads the script. Files are
# in the home folder. fish loads its script itself.
_FILES = {
    "bash": (
        ".bash_completions/pyreactant.sh",
        ".bashrc",
        ". ~/.bash_completions/pyreactant.sh",
    ),
    "zsh": (".zfunc/_pyreactant", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/pyreactant.fish", "", ""),
}


def check_alone(words: list[str]) -> None:
    """Check that nothing follows these options, which end the command.

    Raises:
        InvalidArgumentError: A word would be ignored.
    """
    if len(words) > 1 and words[0] in OPTIONS:
        raise InvalidArgumentError(
            f"{words[0]} takes no value, got {words[1]!r}; type it alone, in the shell that shall "
            "complete"
        )


def install(requested: bool) -> None:
    """Install the script for the shell in which the command was typed, and end it.

    Raises:
        InvalidArgumentError: It is none of the three shells.
        FileError: A file cannot be written; then the start-up file is as it was.
    """
    if not requested:
        return
    shell = _shell(OPTIONS[0])
    script, startup, line = _FILES[shell]
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and no entry of the account, as in some containers
        raise FileError("this account must have a home folder, but has none; set HOME") from None
    _replace(home / script, _script(shell).encode())
    typer.echo(f"the completion of {shell} is in {home / script}")
    if startup:
        _load(home / startup, line)
    typer.echo(f"it takes effect in the next {shell}")
    raise typer.Exit


def show(requested: bool) -> None:
    """Print the script for the shell in which the command was typed, and end it.

    Raises:
        InvalidArgumentError: It is none of the three shells.
    """
    if requested:
        typer.echo(_script(_shell(OPTIONS[1])), nl=False)
        raise typer.Exit


def _shell(option: str) -> str:
    import shellingham

    try:
        shell: str = shellingham.detect_shell()[0]
    except (shellingham.ShellDetectionFailure, OSError):
        shell = ""
    if shell not in _FILES:
        got = repr(shell) if shell else "a shell that cannot be found out"
        raise InvalidArgumentError(
            f"{option} must be typed in bash, zsh or fish, got {got}; start one of them, and type "
            "it there"
        )
    return shell


def _script(shell: str) -> str:
    variable = "_PYREACTANT_COMPLETE"
    text = typer.completion.get_completion_script(  # type: ignore[attr-defined] # it imports it
        prog_name="pyreactant", complete_var=variable, shell=shell
    )
    return f"{text}\n"


def _load(startup: Path, line: str) -> None:
    """Add a line to a start-up file, unless it is there; the file is replaced whole."""
    if startup.exists() and not startup.is_file():
        raise FileError(f"{startup}: must be a file; load completion elsewhere by: {line}")
    before = startup.read_bytes() if startup.exists() else b""
    if line.encode() not in before:
        end = b"\n" if before and not before.endswith(b"\n") else b""
        _replace(startup, before + end + line.encode() + b"\n")
    typer.echo(f"{startup} loads it: {line}")


def _replace(path: Path, data: bytes) -> None:
    try:
        check_home(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, data)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written ({error.strerror}); change that, or load the output of "
            f"pyreactant {OPTIONS[1]} in your start-up file"
        ) from None
