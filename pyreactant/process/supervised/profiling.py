"""Profiles of a program's steps by JAX, one for each process, in one session folder.

JAX names a profile after its host, so that of two processes of a host one would replace that of the
other. Here each process has a name of its own, which XProf and TensorBoard show as a host. JAX
itself is not imported here.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import FileError, InvalidArgumentError, PyReactantError, StateError
from ...base.settings import INDEX, PROFILE
from .. import supervised
from ..events import Profiled

_SESSIONS = Path("plugins", "profile")
"""Where XProf and TensorBoard look for sessions, below the folder that they are given."""

_KEPT = {".xplane.pb": "*.xplane.pb", ".trace.json.gz": "perfetto_trace.json.gz"}
"""The files that are kept, by their suffixes: the one for XProf, and the one for Perfetto."""


class Steps(NamedTuple):
    """The steps to profile: `number` of them, from `first` on."""

    first: int
    number: int

    @property
    def end(self) -> int:
        """The first step after them."""
        return self.first + self.number

    def __str__(self) -> str:
        return f"{self.first}:{self.number}"


def steps_of(text: str) -> Steps:
    """The steps that STEP:COUNT names.

    Raises:
        InvalidArgumentError: It is no such text, or names no step.
    """
    first, colon, count = text.partition(":")
    try:
        if not (colon and first.isdecimal() and count.isdecimal() and int(count)):
            raise ValueError
        return Steps(int(first), int(count))
    except ValueError:  # also a number of too many digits
        raise InvalidArgumentError(
            "--profile must be STEP:COUNT, such as 20:5 for steps 20 to 24, with 1 step or more, "
            f"got {text!r:.80}"
        ) from None


class _Recording:
    """A profile that JAX records now.

    Args:
        folder: The folder that XProf is given.
        session: Name of the session, the same on every process.

    Raises:
        StateError: JAX is not loaded, or records a profile already.
        FileError: The folder cannot be written.
    """

    def __init__(self, folder: Path, session: str) -> None:
        self._jax = _profiler()
        index = os.environ.get(INDEX) or str(sys.modules["jax"].process_index())
        self._name = f"{os.uname().nodename}-process-{index}"
        self._session = folder / _SESSIONS / session
        self._own = self._session / f".{self._name}"
        self._remove()  # what a process that was killed left
        with _writing(self._session):
            self._own.mkdir(parents=True)
        try:
            self._jax.start_trace(self._own, create_perfetto_trace=True)
        except RuntimeError as error:
            self._remove()
            raise StateError(f"JAX records no second profile: {error}") from None

    def stop(self) -> Path:
        """Write the profile; the file for XProf, which has this process's own name.

        Raises:
            FileError: It cannot be written.
            StateError: JAX does not record it any more.
        """
        try:
            self._jax.stop_trace()
            with _writing(self._session):
                found = {s: [*self._own.glob(f"{_SESSIONS}/*/{n}")] for s, n in _KEPT.items()}
                for suffix, files in found.items():
                    for file in files:
                        file.replace(self._session / f"{self._name}{suffix}")
        except PyReactantError:
            raise
        except Exception as error:  # XLA's own, of a full disk for instance
            raise StateError(f"JAX did not write the profile: {error}"[:500]) from None
        finally:
            self._remove()
        if not found[".xplane.pb"]:
            raise FileError(f"{self._session}: JAX wrote no profile there")
        return self._session / f"{self._name}.xplane.pb"

    def _remove(self) -> None:
        import shutil  # a program that is not profiled starts without it

        shutil.rmtree(self._own, ignore_errors=True)


def _profiler() -> Any:
    jax = sys.modules.get("jax")
    if jax is None:
        raise StateError(
            "a profile is recorded by JAX, which this process has not loaded; Reactant's programs "
            "are not recorded yet"
        )
    return jax.profiler


def _read(file: Path) -> tuple[int, str]:
    """Write the collectives of a profile beside it.

    Returns:
        When it began, as `Profiled` has it, and why its collectives are missing; "" if they are
        not.
    """
    from ...base.files import write_json  # a program that is not profiled starts without it
    from . import recorded

    began = 0
    try:
        data = _profiler().ProfileData.from_file(str(file))
        began = recorded.began_ns(data)
        write_json(recorded.collectives(data), collectives_of(file), indent=None)
    except Exception as error:  # a full disk, or whatever this version of JAX raises
        return began, f"without its collectives ({type(error).__name__}: {error})"[:500]
    return began, ""


def collectives_of(file: Path) -> Path:
    """The file of the collectives of a profile."""
    return file.with_name(f"{file.name.removesuffix('.xplane.pb')}.collectives.json")


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"{folder}: the profile cannot be written ({error.strerror}); name another folder"
        ) from None


_sessions = 0


@contextlib.contextmanager
def profile(folder: str | os.PathLike[str] = "profile") -> Iterator[None]:
    """Record a profile of what runs in the block, on each process that calls it.

    Every process writes ``plugins/profile/N/HOST-process-I.xplane.pb`` below the folder, where N
    counts the profiles of a process from 1. XProf and TensorBoard show these files as several hosts
    of one session: ``xprof FOLDER``. JAX must be the runtime.

    Args:
        folder: The folder for all profiles; machines that do not share it have a part each.

    Raises:
        FileError: The folder cannot be written. If the block raised, that is raised, with this as a
            note.
        StateError: JAX is not loaded, or records another profile already.

    Examples:
        >>> with pr.profile("profile"):
        ...     product = f(x)
    """
    global _sessions
    recording = _Recording(Path(folder).absolute(), str(_sessions + 1))
    _sessions += 1
    try:
        yield
    except BaseException as error:
        try:
            recording.stop()
        except PyReactantError as missing:  # the block's own failure is what counts
            error.add_note(f"the profile of the block is missing: {missing}")
        raise
    recording.stop()


# The steps that `pyreactant run --profile` names.


class Planned:
    """Records the steps that the user of a run named; it never stops the program.

    Args:
        steps: The steps.
        folder: The folder that XProf is given.
        tell: Takes what became of it.
    """

    def __init__(self, steps: Steps, folder: Path, tell: Callable[[Profiled], None]) -> None:
        self._steps, self._folder, self._tell = steps, folder, tell
        self._last: int | None = None
        self._recording: _Recording | None = None
        self._restore: Callable[[], None] = lambda: None
        self._done = False

    def step(self, number: int) -> None:
        """The program begins a step, or has ended the one before it."""
        if self._done:
            return
        self._last = number
        if self._recording is None and self._steps.first <= number < self._steps.end:
            self._start()
        elif number >= self._steps.end:
            self.end()

    def end(self) -> None:
        """Write what was recorded; the steps are over, or the program is."""
        if self._done:
            return
        self._done = True
        if self._recording is not None:
            self._stop("")
            return
        if self._last is None:
            why = (
                "no step was counted: the program calls none of pr.log, pr.reached_preemption and "
                "Checkpoints.save"
            )
        elif self._last < self._steps.first:
            why = f"step {self._steps.first} was not reached; the last one was {self._last}"
        else:
            why = (
                f"the program did not begin one of the steps {self._steps}; its first one from "
                f"there was {self._last}"
            )
        self._tell(Profiled("", why))

    def _start(self) -> None:
        try:
            self._recording = _Recording(self._folder, f"steps-{self._steps.first}")
        except (StateError, FileError) as error:
            self._done = True
            self._tell(Profiled("", str(error)))
            return
        self._tell(Profiled("", "the process ended while it recorded"))
        self._restore = _giving_way(self._give_way)

    def _give_way(self) -> None:
        """The program starts a profile of its own, of which JAX records one at a time."""
        self._done = True
        self._stop(f"it ends at step {self._last}, where the program began a profile of its own")

    def _stop(self, note: str) -> None:
        self._restore()
        recording, self._recording = self._recording, None
        assert recording is not None
        if not note and self._last is not None and self._last < self._steps.end:
            note = f"it ends at step {self._last}, with the program"
        try:
            file = recording.stop()
        except (StateError, FileError) as error:
            self._tell(Profiled("", str(error)))
            return
        began, missing = _read(file)
        self._tell(Profiled(str(file), "; ".join(filter(None, (note, missing))), began))


def _giving_way(end: Callable[[], None]) -> Callable[[], None]:
    """End our profile before the program starts its own; the result undoes this."""
    profiler = _profiler()
    module = sys.modules[profiler.start_trace.__module__]
    # Since jax 0.12 every profile starts in a session, that of `jax.profiler.trace`, too.
    session = getattr(module, "ProfileSession", None)
    name = "start" if session else "start_trace"
    places = [session] if session else [profiler, module]
    start = getattr(places[0], name)

    def started(*args: Any, **kwargs: Any) -> Any:
        end()
        return start(*args, **kwargs)

    def restore() -> None:
        for place in places:
            setattr(place, name, start)

    for place in places:
        setattr(place, name, started)
    return restore


def step(number: int) -> None:
    """Count a step of the program, which `pr.log` and other calls name."""
    planned = _plan()
    if planned is not None:
        planned.step(number)


def end() -> None:
    """The program ends."""
    planned = _plan()
    if planned is not None:
        planned.end()


@functools.cache
def _plan() -> Planned | None:
    """What PYREACTANT_PROFILE asks for, as STEP:COUNT:FOLDER, in a supervised program."""
    text = os.environ.get(PROFILE)
    if not text or supervised.connection is None:
        return None
    first, count, folder = text.split(":", 2)
    return Planned(Steps(int(first), int(count)), Path(folder), supervised.tell)
