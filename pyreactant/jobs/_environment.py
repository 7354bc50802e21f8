"""The environment of a job: a few variables of every login, and those that the user names."""

import os
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

from .._arguments import argument
from .._errors import InvalidArgumentError
from .._system.settings import SETTINGS

JOB = "PYREACTANT_JOB"
"""The id of the job, in every process of it."""

_ROOT = Path(__file__).resolve().parent.parent.parent
"""The folder from which pyreactant is imported."""
_LOGIN = ("HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_PREFIXES = ("LANG", "LC_", "XDG_", "NVIDIA_", "CUDA_")
_OURS = frozenset(name for name, setting in SETTINGS.items() if setting.reader == "tests") | {
    "PYREACTANT_DEBUG",
    "PYREACTANT_METADATA",
    "PYREACTANT_TPU_API",
}


def chosen(env: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
    """The variables that the user names: values, or names whose values are taken from here.

    Raises:
        InvalidArgumentError: A variable is not set here, or is no text.
    """
    if env is None:
        return {}
    if isinstance(env, str):
        env = [env]
    if not isinstance(env, Mapping):
        absent = [name for name in env if name not in os.environ]
        if absent:
            raise InvalidArgumentError(
                f"{argument('env')} names {absent[0]}, which is not set here; set it, or leave it "
                "out"
            )
        return {name: os.environ[name] for name in env}
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name:
            raise InvalidArgumentError(
                f"env= must be names, or a dict of text, got {name!r}: {type(value).__name__}"
            )
    return dict(env)


def of_login(*more: str) -> dict[str, str]:
    """The variables of this process that every job gets.

    Args:
        more: Further prefixes of names.
    """
    prefixes = (*_PREFIXES, *more)
    kept = {k: v for k, v in os.environ.items() if k in _LOGIN or k.startswith(prefixes)}
    kept |= {name: os.environ[name] for name in _OURS if name in os.environ}
    # Not sys.path, whose first folder is the script's: the job has its copy.
    parts = [] if Path(sysconfig.get_path("purelib")) == _ROOT else [str(_ROOT)]
    parts += filter(None, [os.environ.get("PYTHONPATH")])
    return {**kept, **({"PYTHONPATH": os.pathsep.join(parts)} if parts else {})}
