"""The run's secret: who has it may join the roll-call."""

import hashlib
import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from .._errors import FileError, InvalidArgumentError
from .._system.folders import config_folder
from . import ProcessGroup

SECRET = "PYREACTANT_SECRET"  # noqa: S105 - the variable's name
SECRET_FILE = "PYREACTANT_SECRET_FILE"  # noqa: S105
MEETING_SECRET = "PYREACTANT_MEETING_SECRET"  # noqa: S105
"""What a supervisor gives its programs, for connections among themselves."""
SAME_SECRET = f"set {SECRET} or {SECRET_FILE} to the same on every process"
"""What to do where two processes have different secrets."""
_SHORTEST = 16


def run_secret(group: ProcessGroup, environ: Mapping[str, str] = os.environ) -> bytes:
    """The secret of this run, the same on every process.

    ``PYREACTANT_SECRET`` or the file that ``PYREACTANT_SECRET_FILE`` names; where neither is
    set, this user's key file (``~/.config/pyreactant/key``, made at first use), which the
    machines of a cluster share with the home directory.

    Raises:
        InvalidArgumentError: The secret is too short.
        FileError: The file cannot be read or made, or others can read it.
    """
    path = environ.get(SECRET_FILE)
    if environ.get(SECRET):
        base, where = os.fsencode(environ[SECRET]), SECRET
    elif path:
        base, where = _read(Path(path)), f"{SECRET_FILE} ({path})"
    else:
        key = _key_file()
        base, where = _read(key), str(key)
    if len(base) < _SHORTEST:
        raise InvalidArgumentError(
            f"{where} must hold a secret of {_SHORTEST} characters or more, got {len(base)}; make "
            "one with: python -c 'import secrets; print(secrets.token_hex())'"
        )
    # Each run has its own, so that what was said in one proves nothing in another.
    this_run = f"{group.run_id} {group.coordinator_address}".encode()
    return hmac.digest(base, this_run, hashlib.sha256)


def meeting_secret(secret: bytes) -> str:
    """What the programs of a run get; the run's own secret cannot be told from it."""
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
            f"{path} holds the run's secret but others can read it; do: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
    return content


def _key_file() -> Path:
    path = config_folder() / "key"
    own = path.with_name(f".key.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        if path.exists():
            return path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        try:
            os.link(own, path)  # of several processes at once one wins, also on NFS
        except FileExistsError:
            pass
        finally:
            own.unlink()
    except OSError as error:
        raise FileError(
            f"no secret for this run is set, and the key file {path} cannot be made "
            f"({error.strerror}); set {SECRET}, the same on every process"
        ) from None
    return path
