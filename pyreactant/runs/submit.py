"""Start a run as a job: check everything, copy the code, write the record, then start.

A job runs a copy of the user's code, made when it is submitted.
"""

import contextlib
import functools
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import FileError, InvalidArgumentError, argument, code_of
from ..base.say import say
from . import values
from .call import Call, check_not_importing, chosen, resolve, signature_in, signature_of
from .code import Code, check_imports, find_code, resolved
from .job import Job
from .queued.signals import Interrupted
from .record import (
    Record,
    Status,
    create,
    draft,
    new_id,
    private_file,
    private_folder,
    release,
    written,
)
from .spec import Env, RunSpec, What
from .targets import Target


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
    spec = RunSpec(
        what=what,
        on=on,
        arguments=positional,
        named=named,
        copies=copies,
        requirements=requirements,
        env=env,
    )
    return start(spec)


def start(spec: RunSpec, *, stay: bool = False) -> Job:
    """Start a run at its place.

    Args:
        spec: The run.
        stay: Whether this process keeps the run until its end, if the place allows it; else this
            returns at once.
    """
    check_not_importing()
    target = _target(spec)
    work = check(spec)
    if work.call.kind == "julia":
        target.check_julia(work.call.program[0])
    target.check()
    record = create(work.call.text, target.kind, target.settings(), **_noted(spec, work))
    try:
        work.write(record, target)
        say(f"job {record.id} on {target.kind}, {work.code}")
        if stay and target.stays:
            target.stay(record)
        else:
            target.start(record)
    except (KeyboardInterrupt, Interrupted):
        record.ask_to_cancel()  # whoever keeps it by now looks at this
        raise
    except Exception as error:
        exit_code = code_of(error)
        record.write_status(Status("failed", f"not started: {error}", exit_code))
        raise
    finally:
        release(record)
    return Job(record)


def write_manifest(spec: RunSpec, file: Path) -> str:
    """Write what a run on Kubernetes needs to a file that only the user can read; start nothing.

    Returns:
        The name of the JobSet.

    Raises:
        InvalidArgumentError: The place is another one, or the code does not fit in a Secret.
        FileError: The file exists, or cannot be written.
    """
    from .places.kubernetes import Kubernetes
    from .places.kubernetes.manifest import name_of, text

    check_not_importing()
    target = spec.on
    if not isinstance(target, Kubernetes):
        raise InvalidArgumentError("a manifest is for a run on kubernetes; add --on kubernetes")
    target.check_settings()
    work = check(spec)
    if work.call.kind == "julia":
        target.check_julia(work.call.program[0])
    with tempfile.TemporaryDirectory() as folder:
        made = Record(
            folder=Path(folder),
            id=new_id(),
            what=work.call.text,
            target=target.kind,
            settings=target.settings(),
        )
        work.write(made, target)
        with target.objects(made) as objects:
            _write_new(file, text(objects))
    return name_of(made)


def _write_new(file: Path, content: str) -> None:
    """Write a file that only the user can read."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise FileError(f"{file} exists, and is not replaced; name another file") from None
    except OSError as error:
        raise FileError(f"{file}: cannot be written ({error.strerror})") from None
    with written(file, "free some space"), os.fdopen(descriptor, "w") as opened:
        opened.write(content)


@dataclass(frozen=True, slots=True)
class Work:
    """What a run needs, checked but not yet copied.

    Attributes:
        call: What runs.
        code: Its files.
        tree: The arguments of a function, encoded.
        arrays: Their arrays.
        variables: The user's variables.
        needed: The content of the file of requirements.
    """

    call: Call
    code: Code
    tree: Any
    arrays: list[Any]
    variables: Mapping[str, str]
    needed: bytes | None

    def write(self, record: Record, target: Target) -> None:
        """Write the folder `work` of a record."""
        with written(record.work):
            private_folder(record.work)
        self.code.copy(record.work / "code")
        cwd = self.code.inside(Path.cwd().resolve())
        call = json.dumps({**self._what(cwd), "store": target.value_store(record)})
        with written(record.work):
            private_folder(record.work / "code" / cwd)  # it may have none of the files
            values.write(record.work / "arguments", self.tree, self.arrays)
            files = {"call.json": call.encode()}
            if self.variables:
                files["env.json"] = json.dumps(self.variables).encode()
            if self.needed is not None:
                files["requirements.txt"] = self.needed
            for name, content in files.items():
                with private_file(record.work / name) as file:
                    file.write(content)

    def _what(self, cwd: str) -> dict[str, Any]:
        """What is to run in a folder of the copy, as the worker reads it."""
        call, code = self.call, self.code
        file = None if call.file is None else code.inside(resolved(call.file))
        program = list(call.program)
        if program and file is not None:
            program[call.script] = os.path.relpath(file, cwd)
            if call.kind == "command" and os.sep not in program[0]:
                program[0] = f"./{program[0]}"  # else the PATH may have another one of that name
        return {
            "text": call.text,
            "file": file,
            "module": call.module,
            "name": call.name,
            "program": program,
            "kind": call.kind,
            "root": None if call.root is None else code.inside(call.root.resolve()),
            "cwd": cwd,
        }


def check(spec: RunSpec) -> Work:
    """Check what a run needs, wherever it runs."""
    call = resolve(spec.what)
    if call.program and (spec.arguments or spec.named):
        raise InvalidArgumentError("a program has its arguments in its list of words")
    encoder = values.Encoder("the argument")
    tree = {
        "args": [encoder.encode(value, f" {i}") for i, value in enumerate(spec.arguments)],
        # Pairs, because a name may look like a mark of the encoding, such as "$array".
        "kwargs": {"$dict": [[k, encoder.encode(v, f" {k}")] for k, v in spec.named.items()]},
    }
    if call.kind == "function":
        _check_arguments(spec.what, call, spec.arguments, spec.named)
    variables = chosen(spec.env)
    needed = _requirements(spec.requirements)
    code = find_code(call, spec.copies)
    check_imports(call, code)
    return Work(call, code, tree, encoder.arrays, variables, needed)


def _noted(spec: RunSpec, work: Work) -> dict[str, Any]:
    """What `Record.spec` holds."""
    return {
        "program": list(work.call.program),
        "kind": work.call.kind,
        "copies": [str(path) for path in spec.copies],
        "requirements": None if spec.requirements is None else str(spec.requirements),
        "env": sorted(work.variables),
        "out": None if spec.out is None else str(Path(spec.out).absolute()),
    }


def _check_arguments(
    what: What, call: Call, positional: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Check that a function takes these arguments."""
    signature = signature_of(what) if callable(what) else signature_in(call)
    try:
        if signature is not None:
            signature.bind(*positional, **named)
    except TypeError as error:
        raise InvalidArgumentError(f"{call.name}(): {error}") from None


def plan(spec: RunSpec) -> str:
    """What `start` would copy and ask for, as text; nothing is started."""
    target = _target(spec)
    target.check_settings()
    work = check(spec)
    record = draft(work.call.text, target.kind, target.settings(), **_noted(spec, work))
    return f"# {work.call.text} on {target.kind}, {work.code}\n{target.plan(record)}"


def _target(spec: RunSpec) -> Target:
    on = spec.on
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


class Remote:
    """A function whose call runs on the processes of a target; made by `remote`.

    ``f(...)`` waits and shows the output of process 0; ``f.submit(...)`` gives the `Job`;
    ``f.local(...)`` calls the function here.
    """

    def __init__(self, function: Callable[..., Any], on: Target | None, **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.local = function
        """The function itself."""
        self.on = on
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on every process, show the output of process 0, and return its value.

        Ctrl-C cancels the job and waits until it is gone; a second one returns at once, and the
        keeper goes on cancelling.

        Raises:
            RemoteError: The function raised on some process, or the run broke.
        """
        job = self.submit(*args, **kwargs)
        with cancelled_by_interrupt(job):
            show(job)
            return job.result()

    def submit(self, *args: Any, **kwargs: Any) -> Job:
        """Start a job and return at once; as `pyreactant.submit`."""
        spec = RunSpec(
            what=self.local,
            on=self.on,
            arguments=args,
            named=kwargs,
            **self._options,
        )
        return start(spec)


def remote(
    function: Callable[..., Any] | None = None,
    *,
    on: Target | None = None,
    copies: Iterable[str | Path] = (),
    requirements: str | Path | None = None,
    env: Env = None,
) -> Any:
    """Make a function run on the processes of a target when it is called.

    Args:
        function: The function, at the top level of a file; None with ``@remote(on=...)``.
        on: The target; None for one process on this machine.
        copies: As for `submit`.
        requirements: As for `submit`.
        env: As for `submit`.

    Returns:
        A `Remote`: ``f(...)`` waits, shows the output of process 0 and returns its value;
        ``f.submit(...)`` gives the job; ``f.local(...)`` runs here.

    Raises:
        InvalidArgumentError: The function cannot travel.

    Examples:
        >>> @pr.remote(on=pr.targets.Local(processes=2))
        ... def train(rate):
        ...     return rate / 2
        >>> train.local(0.5)  # here; train(0.5) runs on the target
        0.25
    """
    options = {"copies": tuple(copies), "requirements": requirements, "env": env}
    if function is None:
        return lambda given: Remote(given, on, **options)
    return Remote(function, on, **options)


@contextlib.contextmanager
def cancelled_by_interrupt(job: Job) -> Iterator[None]:
    """Cancel the job, and wait until it is gone, at Ctrl-C or `Interrupted` in the block."""
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        with contextlib.suppress(OSError):  # a terminal that is gone
            say(f"cancelling the job {job.id} ...")
        job.cancel()
        raise


def show(job: Job, waiting: AbstractContextManager[object] | None = None) -> None:
    """Print the output of process 0 as it comes, until the job has ended.

    Args:
        job: The job.
        waiting: Is open until the first output comes.
    """
    try:
        texts = job.logs(follow=True)
        with waiting or contextlib.nullcontext():
            first = next(texts, "")
        for text in itertools.chain([first], texts):
            sys.stdout.write(text)
            sys.stdout.flush()
    except FileError:
        pass  # it ended before the process began; the result says why
