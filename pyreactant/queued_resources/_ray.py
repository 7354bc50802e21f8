"""A Ray cluster on the VMs of new slices, for `pyreactant tpu create --ray`."""

import secrets
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .._errors import FileError
from .._system.files import state_folder
from ._job import Job
from ._reach import SshOptions
from ._request import Request
from ._resource import Worker
from ._workers import RAY_CLIENT_PORT, start_ray


def start(
    request: Request,
    ssh: SshOptions,
    python: str | None,
    workers: Sequence[Worker],
    *,
    check: Callable[[], None],
    tell: Callable[[str], None],
) -> str:
    """Start a cluster whose token only this user has.

    Args:
        request: The slices.
        ssh: How the VMs are reached.
        python: Interpreter on the VMs that has Ray; None installs one.
        workers: The VMs of the ACTIVE slices.
        check: Raises if the slices are gone.
        tell: Prints a message for the user.

    Returns:
        What to do to use the cluster, as lines of text.

    Raises:
        PyReactantError: A step failed on a VM.
        FileError: The token cannot be written.
    """
    token = secrets.token_hex(32)
    file = state_folder() / "ray" / f"{request.project}-{request.zone}-{request.name}.token"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(token)
    except OSError as error:
        raise FileError(f"the token cannot be written to {file} ({error.strerror})") from None
    with tempfile.TemporaryDirectory(prefix="pyreactant-ray-") as folder:
        job = Job(request=request, out=Path(folder), backends=("jax",), ssh=ssh, python=python)
        address = start_ray(job, workers, Path(folder), token, check=check, tell=tell)
    forward = f"-L{RAY_CLIENT_PORT}:{workers[0].internal}:{RAY_CLIENT_PORT}"
    slices = (
        f"--name {request.name} --project {request.project} --zone {request.zone} "
        f"--topology {request.accelerator_type}"
    )
    return "\n".join(
        [
            f"Ray runs at {address} in the slices' network. From this machine, keep a tunnel open:",
            f"  pyreactant tpu ssh {slices} --ssh-flag={forward}",
            "and in the shell of the driver:",
            "  export RAY_AUTH_MODE=token",
            f"  export RAY_AUTH_TOKEN_PATH={shlex.quote(str(file))}",
            f"  export RAY_ADDRESS=ray://127.0.0.1:{RAY_CLIENT_PORT}",
        ]
    )
