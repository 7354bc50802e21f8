"""This user's folders of pyreactant: those of the XDG specification, or Apple's on macOS.

The variables XDG_CACHE_HOME, XDG_CONFIG_HOME and XDG_STATE_HOME come first on both; a relative path
in them is ignored, as the specification demands. The functions create no folder. They import
`platformdirs` when they are called: a command's --help does not wait for it.
"""

import sys
from pathlib import Path

_NAME = "pyreactant"


def cache_folder() -> Path:
    """Folder for files that can be recreated: ``~/.cache/pyreactant``."""
    import platformdirs

    return platformdirs.user_cache_path(_NAME)


def config_folder() -> Path:
    """Folder for settings: ``~/.config/pyreactant``."""
    import platformdirs

    return platformdirs.user_config_path(_NAME)


def state_folder() -> Path:
    """Folder for records that outlive a process: ``~/.local/state/pyreactant``."""
    import platformdirs

    return platformdirs.user_state_path(_NAME)


def earlier_state_folder() -> Path | None:
    """The `state_folder` of earlier versions on macOS; None on Linux."""
    return Path.home() / ".local" / "state" / _NAME if sys.platform == "darwin" else None
