"""A way to run a module, or a program: what `--good` and `--bad` say, as data."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...arrays.runtimes.known import BACKENDS, check_platform
from ...base.child import LAUNCHERS, import_path, without
from ...base.errors import InvalidArgumentError, RequirementError
from ...base.files import cache_folder, check_home, writing

KINDS = (
    "platform=cpu|gpu|tpu, flags=--xla_..., plugin=FILE (a PJRT plugin), python=FILE (the Python "
    "of another environment), jax==VERSION, backend=reactant|jax (the program's body on that "
    "runtime), or interpreter"
)

_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,rocm", "tpu": "tpu"}
_PLUGIN = "bisected"
"""The name of the platform of a PJRT plugin that is given as a file."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a module.

    Attributes:
        words: What was given, such as ("jax==0.10.2", "platform=cpu"); others may say the same.
        python: The interpreter that runs `worker`.
        settings: Environment variables that differ from this process's.
        flags: Further words of XLA_FLAGS.
        interpret: Whether jaxlib's reference interpreter runs it, without a compiler.
        backend: The runtime that runs the program's body; "" runs the module.
        platform: Its platform.
        options: Compile options, beside those of a step.
    """

    words: tuple[str, ...] = field(compare=False)
    python: str = sys.executable
    settings: tuple[tuple[str, str], ...] = field(default=(("JAX_PLATFORMS", "cpu"),))
    flags: str = ""
    interpret: bool = False
    backend: str = ""
    platform: str = "cpu"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The way in reports."""
        return " ".join(self.words)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that a command needs to run in this way."""
        flags = {"XLA_FLAGS": self.flags} if self.flags else {}
        return {**dict(self.settings), **flags}

    @property
    def argv(self) -> list[str]:
        """The command of its process."""
        if self.backend:
            return [self.python, "-P", "-m", "pyreactant.check.bisect.program_child"]
        return [self.python, "-P", str(Path(__file__).with_name("worker.py"))]

    def environment(self, devices: int) -> dict[str, str]:
        """All of a process's environment.

        Args:
            devices: Virtual CPU devices.
        """
        own = without(*LAUNCHERS, "JAX_NUM_CPU_DEVICES", "PYTHONPATH")
        if self.backend:  # `initialize` sets the number of devices
            own |= {"PYTHONPATH": import_path(current_folder=True), "XLA_FLAGS": self.flags}
            return {**own, **dict(self.settings)}
        count = f"--xla_force_host_platform_device_count={devices}"
        flags = " ".join([own.get("XLA_FLAGS", ""), self.flags, count]).strip()
        return {**own, **dict(self.settings), "XLA_FLAGS": flags}


INTERPRETER = Way(("interpreter",), interpret=True)
LOWERING = Way(("lowered by JAX",), flags="--xla_backend_optimization_level=0", backend="jax")
COMPILED = Way(("platform=cpu",))
NOT_OPTIMIZED = Way(
    ("platform=cpu", "without optimizations"),
    options=(("xla_backend_optimization_level", "0"), ("xla_disable_hlo_passes", "algsimp,fusion")),
)


def parse_way(words: Sequence[str], option: str) -> Way:
    """The way that an option's words say; an environment of another version is made here.

    Args:
        words: Such as ["jax==0.10.2", "flags=--xla_cpu_enable_fast_math=true"].
        option: Name of the option, for messages.

    Raises:
        InvalidArgumentError: A word is none of `KINDS`.
        RequirementError: A version cannot be installed.
    """
    python, flags, interpret, backend, platform = sys.executable, "", False, "", "cpu"
    settings = {"JAX_PLATFORMS": "cpu"}
    others = [word for word in words if not word.startswith(("backend=", "platform=", "flags="))]
    if others and any(word.startswith("backend=") for word in words):
        raise InvalidArgumentError(
            f"{option} backend= runs in this environment, so it takes platform= and flags= "
            f"beside it, got {others[0]}; leave one of them out"
        )
    for word in words:
        name, _, value = word.partition("=")
        if word == "interpreter":
            interpret = True
        elif name == "jax" and re.fullmatch(r"=\d+(\.\w+)*", value):
            python = environment_of(value[1:])
        elif name == "platform" and value:
            check_platform(value, f"{option} platform")
            settings["JAX_PLATFORMS"], platform = _PLATFORMS[value], value
        elif name == "flags" and value.startswith("--"):
            flags = f"{flags} {value}".strip()
        elif name == "plugin" and value:
            settings["JAX_PLATFORMS"] = _PLUGIN
            settings["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"{_PLUGIN}:{_file(value, option)}"
        elif name == "python" and value:
            python = _file(value, option)
        elif name == "backend" and value in BACKENDS:
            backend = value
        else:
            raise InvalidArgumentError(f"{option} must be {KINDS}; got {word!r}")
    if interpret and len(words) > 1:
        raise InvalidArgumentError(f"{option} interpreter must stand alone, got {' '.join(words)}")
    return Way(tuple(words), python, tuple(settings.items()), flags, interpret, backend, platform)


def _file(path: str, option: str) -> str:
    if not Path(path).is_file():
        raise InvalidArgumentError(f"{option}: there is no file {path}; correct its path")
    return os.path.abspath(path)  # noqa: PTH100 - an environment's python is a link to follow not


def environment_of(version: str) -> str:
    """The Python of an environment with a version of jax, in the user's cache folder.

    Raises:
        RequirementError: It cannot be made.
    """
    folder = cache_folder() / "bisect" / f"jax-{version}-py{sys.version_info.minor}"
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists():
        return str(python)
    with writing(folder, "set XDG_CACHE_HOME to a folder that you can write"):
        check_home(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
    install = [str(python), "-m", "pip", "install", "--quiet", f"jax=={version}"]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
        ended = subprocess.run(  # noqa: S603 - an argument list, no shell
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if ended.returncode:
            last = (ended.stderr or ended.stdout).strip().splitlines() or ["no output"]
            why = next((line for line in last if line.startswith("ERROR")), last[-1])
            raise RequirementError(
                f"jax {version} cannot be installed in an environment of its own: {why}; name a "
                "version that pip finds, or an environment that has it: python=FILE"
            )
    with writing(done, "set XDG_CACHE_HOME to a folder that you can write"):
        done.touch()
    return str(python)
