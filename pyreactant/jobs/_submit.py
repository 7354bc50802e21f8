"""Submit a job: check everything, copy the code, write the record, then start."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._arguments import argument
from .._errors import FileError, InvalidArgumentError
from .._system.terminal import broken
from . import _code, _values
from ._call import Call, What, check_not_importing, resolve
from ._environment import chosen
from ._job import Job
from ._record import Record, Status, create, draft, private_file, private_folder, release, written
from ._target import Target

Env = Mapping[str, str] | Iterable[str] | None


def submit(
    what: What,
    arguments: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    on: Target | None = None,
    copies: Iterable[str | Path] = (),
    requirements: str | Path | None = None,
    env: Env = None,
) -> Job:
    """Start a function, or a program, on the processes of a target, and return at once.

    The function runs on every process, before `initialize`; its value on process 0 is the job's
    value. The code is copied when this is called: in a git repository its tracked files as they are
    on the disk, else the script.

    Args:
        what: A function at the top level of a file, its name as "train.py:main", a Julia script
            as "train.jl", or a program with its arguments as a list of words, such as
            ["train.py", "--steps", "9"] or ["julia", "--threads=4", "train.jl"].
        arguments: Arguments of the function: a dict by name, or a sequence. A tree of arrays and
            plain values; nothing is pickled.
        on: The target; None for one process on this machine.
        copies: Further files and folders that the job needs, relative to the working directory.
        requirements: A file for ``pip install -r``, installed where the job runs.
        env: Variables that the job gets: names to take from here, or a dict. They may be secrets:
            they travel in a file that only you can read.

    Returns:
        The job.

    Raises:
        InvalidArgumentError: The function or an argument cannot travel; nothing was started.
        RequirementError: A tool of the target is absent; nothing was started.
        FileError: A file is absent, or the code is larger than 100 MiB.
        StateError: A worker imports the calling file; nothing was started.

    Examples:
        >>> job = pr.submit(["hello.py"], on=pr.targets.Local(processes=2, platform="cpu"))
        >>> job.wait().state
        'done'
    """
    positional, named = _split(arguments)
    return start(what, positional, named, on=on, copies=copies, requirements=requirements, env=env)


def start(
    what: What,
    positional: Sequence[Any],
    named: Mapping[str, Any],
    *,
    on: Target | None,
    copies: Iterable[str | Path],
    requirements: str | Path | None,
    env: Env,
) -> Job:
    """As `submit`, with both kinds of arguments."""
    check_not_importing()
    target = _checked(on)
    call = resolve(what)
    if call.program and (positional or named):
        raise InvalidArgumentError("a program has its arguments in its list of words")
    encoder = _values.Encoder("the argument")
    tree = {
        "args": [encoder.encode(value, f" {i}") for i, value in enumerate(positional)],
        "kwargs": {name: encoder.encode(value, f" {name}") for name, value in named.items()},
    }
    variables = chosen(env)
    needed = _requirements(requirements)
    code = _code.find(call, copies)
    if call.julia:
        target.check_julia(call.program[0])
    target.check()
    record = create(call.text, target.kind, target.settings(), more={"code": str(code)})
    try:
        _prepare(record, call, code, target)
        with written(record.work):
            _values.write_encoded(record.work / "arguments", tree, encoder.arrays)
            if variables:
                with private_file(record.work / "env.json") as file:
                    file.write(json.dumps(variables).encode())
            if needed is not None:
                with private_file(record.work / "requirements.txt") as file:
                    file.write(needed)
        say(f"job {record.id} on {target.kind}, {code}")
        target.start(record)
    except KeyboardInterrupt:
        record.ask_to_cancel()  # whoever keeps it by now looks at this
        raise
    except Exception as error:
        exit_code = getattr(error, "exit_code", 1)
        record.write_status(Status("failed", f"not started: {error}", exit_code))
        raise
    finally:
        release(record)
    return Job(record)


def plan(
    what: What,
    *,
    on: Target | None = None,
    copies: Iterable[str | Path] = (),
    requirements: str | Path | None = None,
    env: Env = None,
) -> str:
    """What `submit` would copy and ask for, as text; nothing is started."""
    target = _checked(on)
    target.check_settings()
    call = resolve(what)
    chosen(env)
    _requirements(requirements)
    code = _code.find(call, copies)
    record = draft(call.text, target.kind, target.settings(), code=str(code))
    return f"# {call.text} on {target.kind}, {code}\n{target.plan(record)}"


def say(text: str) -> None:
    """Print a message for the user."""
    sys.stderr.write(f"{broken(f'pyreactant: {text}')}\n")
    sys.stderr.flush()


def _checked(on: Target | None) -> Target:
    if on is None:
        from .targets import Local

        return Local()
    if not isinstance(on, Target):
        raise InvalidArgumentError(
            f"on= must be a target, such as pr.targets.Slurm(nodes=2), got {on!r}"
        )
    return on


def _split(arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    if arguments is None:
        return [], {}
    if isinstance(arguments, dict) and all(isinstance(key, str) for key in arguments):
        return [], arguments
    if isinstance(arguments, (list, tuple)):
        return list(arguments), {}
    raise InvalidArgumentError(
        "arguments must be a dict by name, or a list, got "
        f"{type(arguments).__name__}; pass [x] for a single argument"
    )


def _requirements(file: str | Path | None) -> bytes | None:
    if file is None:
        return None
    if Path(file).exists() and not Path(file).is_file():
        raise FileError(f"{argument('requirements')} {str(file)!r} is not a file")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise FileError(
            f"{argument('requirements')} {str(file)!r} cannot be read ({error.strerror})"
        ) from None


def _prepare(record: Record, call: Call, code: _code.Code, target: Target) -> None:
    """Copy the code, and write what is to run."""
    with written(record.work):
        private_folder(record.work)
    code.copy(record.work / "code")
    cwd = code.inside(Path.cwd().resolve())
    with written(record.work):
        private_folder(record.work / "code" / cwd)  # it may have none of the files
    file = None if call.file is None else code.inside(_resolved(call.file))
    program = list(call.program)
    if program and file is not None:
        program[call.script] = os.path.relpath(file, cwd)
    data = {
        "text": call.text,
        "file": file,
        "module": call.module,
        "name": call.name,
        "program": program,
        "root": None if call.root is None else code.inside(call.root.resolve()),
        "cwd": cwd,
        "store": target.value_store(record),
    }
    with written(record.work), private_file(record.work / "call.json") as opened:
        opened.write(json.dumps(data).encode())


def _resolved(file: Path) -> Path:
    """The path as git lists it: a link keeps its own name."""
    return file.parent.resolve() / file.name
