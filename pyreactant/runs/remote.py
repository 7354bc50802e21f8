"""A function that runs on the processes of a target when it is called."""

import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..base.errors import FileError
from . import submit as _submit
from .call import check_not_importing
from .job import Job
from .keeper import say
from .spec import Env, RunSpec
from .targets import Target


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
        check_not_importing()
        job = self.submit(*args, **kwargs)
        try:
            show(job)
            return job.result()
        except KeyboardInterrupt:
            say(f"cancelling the job {job.id} ...")
            job.cancel()
            raise

    def submit(self, *args: Any, **kwargs: Any) -> Job:
        """Start a job and return at once; as `pyreactant.submit`."""
        check_not_importing()
        spec = RunSpec(
            what=self.local,
            on=self.on,
            arguments=args,
            named=kwargs,
            **self._options,
        )
        return _submit.start(spec)


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
    options = {"copies": copies, "requirements": requirements, "env": env}
    if function is None:
        return lambda given: Remote(given, on, **options)
    return Remote(function, on, **options)


def show(job: Job, process: int = 0) -> None:
    """Print the output of one process as it comes, until the job has ended."""
    try:
        for text in job.logs(process, follow=True):
            sys.stdout.write(text)
            sys.stdout.flush()
    except FileError:
        pass  # it ended before the process began; the result says why
