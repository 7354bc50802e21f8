"""A small disk, which only one command sees."""

import os
from pathlib import Path

from tests.harness import require


def small_disk(folder: Path, mebibytes: int) -> tuple[str, ...]:
    """The words before a command for which a new folder is a disk of its own."""
    require(os.geteuid() == 0, "root, to mount a small disk")
    folder.mkdir()
    mount = f'mount -t tmpfs -o size={mebibytes}m tmpfs "$0" && exec "$@"'
    return "unshare", "-m", "sh", "-c", mount, str(folder)
