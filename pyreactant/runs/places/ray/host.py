"""One host of a job on Ray: an actor that runs our supervisor, and gets text and files only.

Ray carries this class to the cluster as code, so the module needs nothing but Python there. The
package itself, the user's code and the arguments come in the job's archive.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import Any

_RUN = """
"$@" </dev/null >"$LOG" 2>&1 &
child=$!
trap 'kill -TERM "$child"' TERM
# Standard input closes when the actor is gone; then the processes must end, too.
{ while IFS= read -r _; do :; done; kill -KILL "$child"; } <&0 2>/dev/null &
watcher=$!
while true; do
  wait "$child"
  code=$?
  if ! kill -0 "$child" 2>/dev/null; then break; fi # else a signal came
done
kill "$watcher" 2>/dev/null
exit "$code"
"""
_REMOVE = """
{
  while IFS= read -r _; do :; done
  for pause in 0 1 2 4 8; do # programs that still end may write files
    sleep "$pause"
    rm -rf "$1" && break
  done
  if [ -n "$2" ] && [ -z "$(ls -d "$2"/host-*)" ]; then rm -rf "$2"; fi
} <&0 >/dev/null 2>&1 &
"""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_PIECE = 4 << 20


def remove_at_end(folder: Path, shared: str = "") -> Any:
    """Remove a folder when this process is gone, however it ends.

    Args:
        folder: The folder.
        shared: Folder of all hosts of a job on this machine, which the last one removes.

    Returns:
        What the process must hold until its end. Ray kills the children of an actor, so it is a
        grandchild that waits for the end of its standard input.
    """
    remover = subprocess.Popen(
        ["bash", "-c", _REMOVE, "_", str(folder), shared],  # noqa: S607 - as the worker's script
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    remover.wait()
    return remover.stdin


class Host:
    """The job's part on one host. Its folder exists as long as the actor.

    Supervisors write logs under one path on every machine, which hosts of one machine share.

    Args:
        name: Name of the job's folder; other users cannot guess it.
    """

    def __init__(self, name: str) -> None:
        self._job = Path(tempfile.gettempdir(), name)
        self._folder = self._job / f"host-{os.getpid()}"
        for folder in (self._job, self._folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._remover = remove_at_end(self._folder, str(self._job))
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def describe(self) -> str:
        """Where this is, as JSON: node, address, host name, process id, and the TPU's worker."""
        import ray

        context = ray.get_runtime_context()
        found = {
            "node": context.get_node_id(),
            "address": ray.util.get_node_ip_address(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        return json.dumps(found)

    def unpack(self, archive: bytes) -> str:
        """Unpack the job's archive, and install the requirements in it; "" or what is wrong."""
        # Python 3.11.0 to 3.11.3 has no filter. The user's own machine has packed the archive.
        how: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        try:
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
                opened.extractall(self._folder, **how)  # noqa: S202 - it is ours
        except (OSError, tarfile.TarError) as error:
            return f"the job's archive cannot be unpacked ({error})"
        wanted = self._folder / "code" / "work" / "requirements.txt"
        if not wanted.exists():
            return ""
        target = str(self._folder / "requirements")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", target]
        ran = subprocess.run(
            [*pip, "-r", str(wanted)], capture_output=True, text=True, errors="replace", check=False
        )
        return f"pip cannot install the requirements: {ran.stderr[-500:]}" if ran.returncode else ""

    def free_port(self) -> int:
        """A port of this host that nobody listens on."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    def run(self, text: str) -> int:
        """Run the supervisor of one process until its end.

        Args:
            text: JSON with "arguments" of ``pyreactant`` and with "settings", the environment.

        Returns:
            Its exit code, negative for a signal.
        """
        asked: dict[str, Any] = json.loads(text)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.lower() not in _PROXIES and not name.startswith("PYREACTANT_")
        }
        code = self._folder / "code"
        # Julia crashes with some preloaded libraries, and gRPC hangs behind proxies.
        settings = {
            **kept,
            "LD_PRELOAD": "",
            "PYTHONPATH": f"{code}{os.pathsep}{self._folder / 'requirements'}",
            "LOG": str(self._folder / "supervisor.log"),
            **asked["settings"],
        }
        supervisor = [sys.executable, "-m", "pyreactant", *asked["arguments"]]
        self._process = subprocess.Popen(
            ["bash", "-c", _RUN, "_", *supervisor],  # noqa: S607 - as the worker's script
            stdin=subprocess.PIPE,
            cwd=code,
            env=settings,
            start_new_session=True,
        )
        ended = self._process.wait()
        self._ended.set()
        return ended

    def end(self) -> None:
        """Ask the supervisor to end its program."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder in the job's folder."""
        return self._path(name).exists()

    def _path(self, name: str) -> Path:
        return (self._job if name.startswith("runs/") else self._folder) / name

    def read(self, name: str, offset: int) -> bytes:
        """A piece of a file in the job's folder; b"" at its end, or if there is none."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(offset)
                return file.read(_PIECE)
        except OSError:
            return b""

    def pack(self, name: str) -> str:
        """Pack a folder of the job's folder into ``NAME.tar``; "" or what is wrong."""
        if not (self._folder / name).is_dir():
            return ""
        try:
            with tarfile.open(self._folder / f"{name}.tar", "w") as archive:
                archive.add(self._folder / name, name)
        except OSError as error:
            return f"{name} cannot be packed ({error.strerror})"
        return ""

    def close(self) -> None:
        """End what still runs, and remove the folder."""
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._ended.wait(5)
        shutil.rmtree(self._folder, ignore_errors=True)
        if not any(self._job.glob("host-*")):
            shutil.rmtree(self._job, ignore_errors=True)
