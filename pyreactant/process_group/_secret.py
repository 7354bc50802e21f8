"""The run's secret: a process that knows it may join the roll-call."""

import hashlib
import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from .._errors import FileError, InvalidArgumentError
from .._system.files import config_folder
from . import ProcessGroup

SECRET = "PYREACTANT_SECRET"  # noqa: S105 - the variable's name
SECRET_FILE = "PYREACTANT_SECRET_FILE"  # noqa: S105
MEETING_SECRET = "PYREACTANT_MEETING_SECRET"  # noqa: S105
"""The variable with the secret that a supervisor gives its programs, for their connections."""
SAME_SECRET = f"set {SECRET} or {SECRET_FILE} to the same on every process"
"""What to do if two processes have different secrets."""

_MIN_LENGTH = 16


def run_secret(group: ProcessGroup, environ: Mapping[str, str] = os.environ) -> bytes:
    """The secret of this run, the same on every process.

    It is ``PYREACTANT_SECRET``, or in the file that ``PYREACTANT_SECRET_FILE`` names. If neither is
    set, it is in the user's key file (``~/.config/pyreactant/key``, created on first use), which
    the machines of a cluster share with the home directory.

    Raises:
        InvalidArgumentError: The secret is too short.
        FileError: The file cannot be read or created, or other users can read it.
    """
    path = environ.get(SECRET_FILE)
    if environ.get(SECRET):
        base, source = os.fsencode(environ[SECRET]), SECRET
    elif path:
        base, source = _read(Path(path)), f"{SECRET_FILE} ({path})"
    else:
        key = _key_file()
        base, source = _read(key), str(key)
    if len(base) < _MIN_LENGTH:
        raise InvalidArgumentError(
            f"{source} must hold a secret of {_MIN_LENGTH} characters or more, got {len(base)}; "
            "make one with: python -c 'import secrets; print(secrets.token_hex())'"
        )
    # Each run has its own key, so messages of one run prove nothing in another.
    this_run = f"{group.run_id} {group.coordinator_address}".encode()
    return hmac.digest(base, this_run, hashlib.sha256)


def meeting_secret(secret: bytes) -> str:
    """The secret of a run's programs; the run's own secret cannot be derived from it."""
    return hmac.digest(secret, b"the programs among themselves", hashlib.sha256).hex()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(4096).strip()
    except OSError as error:
        raise FileError(
            f"the run's secret cannot be read from {path} ({error.strerror}); set {SECRET}, the "
            "same on every process"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise FileError(
            f"{path} holds the run's secret, but other users can read it; run: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
    return content


def _key_file() -> Path:
    path = config_folder() / "key"
    partial = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        if path.exists():
            return path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        try:
            os.link(partial, path)  # of several processes at once one succeeds, also on NFS
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    except OSError as error:
        raise FileError(
            f"no secret for this run is set, and the key file {path} cannot be created "
            f"({error.strerror}); set {SECRET}, the same on every process"
        ) from None
    return path
