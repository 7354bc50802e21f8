"""`pyreactant.crosscheck`: the same programs on every runtime, each in a run of its own."""

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._core.mesh import Mesh
from .._core.program import Program
from .._core.text import parse_mesh, parse_spec
from .._errors import FileError, InvalidArgumentError, RendezvousError, RequirementError
from .._system.environment import import_path, without
from ..process_group._environment import COORDINATOR, COUNT, INDEX, LOCAL_DEVICES
from ._member import PROGRESS_PREFIX
from ._records.records import read_run
from ._report.assemble import build_report
from ._report.report import Report
from ._request import Request, Spec, check_request, choose_backends, device_options, write_request

ALL = "all"
_PROCESS = (COORDINATOR, COUNT, INDEX, LOCAL_DEVICES, "PYREACTANT_NUM_CPU_DEVICES")


def crosscheck(
    program: str | Program | Sequence[str | Program] = "matmul",
    *,
    backends: str | Sequence[str] = "auto",
    processes: int | None = None,
    devices_per_process: int | None = None,
    mesh: Mesh | str | None = None,
    spec: str | Spec | Sequence[Spec] | None = None,
    size: int | None = None,
    dtype: str | None = None,
    seed: int = 0,
    platform: str | None = None,
    repeat: int = 3,
    out: str | Path | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Report:
    """Run programs on every runtime, check each against an oracle, and compare them.

    Each runtime gets processes of its own, one after the other, since an accelerator has one
    owner; this process starts none. All make the same seeded inputs, each process its own
    blocks, with products in the highest precision. A result that is wrong is in the report, not
    an exception.

    Args:
        program: Name of a built-in program, "package.module:object", a `Program`, several of
            these, or "all" for all that are built in.
        backends: Names of runtimes, or "auto" for those that can be started here; the report
            says which cannot.
        processes: Of each run; on CPU devices 2 unless said otherwise, else 1.
        devices_per_process: On CPU devices 4 unless said otherwise.
        mesh: None is all devices, as square as can be; a text as for ``--mesh``.
        spec: How the first input is cut, a text as for ``--spec``; a list of specs is for the
            first inputs. None is each program's own.
        size: The "n" of the programs' shapes; None is each program's own.
        dtype: Element type; None is each program's own first.
        seed: Of the inputs.
        platform: "cpu", "gpu" or "tpu"; None is what is here.
        repeat: Calls to time.
        out: Folder for what the runs leave: records, blocks, logs. None keeps nothing.
        timeout: Seconds for each run.
        progress: Say on standard error how far the runs are.

    Raises:
        InvalidArgumentError: Something is unknown, or does not fit.
        RequirementError: A runtime that was asked for is not here.
        FileError: `out` cannot be used.
    """
    request = Request(
        selected(program),
        size,
        dtype,
        seed,
        parse_mesh(mesh) if isinstance(mesh, str) else mesh,
        _specs(spec),
        repeat,
    )
    names, absent = choose_backends(backends)
    options = device_options(processes, devices_per_process, platform)
    check_request(request, options, names)
    if timeout is not None:
        options += ["--timeout", str(timeout)]
    with _folder(out) as folder:
        write_request(request, folder / "request.json")
        runs = []
        for name in names:
            _run(name, options, folder, progress)
            runs.append(read_run(folder / name))
        return build_report(runs, absent, request.names)


def compare(*folders: str | Path) -> Report:
    """Check finished runs, of this machine or copied from others, and compare them.

    Args:
        *folders: Each of one run, such as ``OUT/jax``.

    Raises:
        FileError: A folder is no whole run of this version.
        InvalidArgumentError: No folder is named, or one twice.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise InvalidArgumentError("name the folders of finished runs, such as OUT/jax")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidArgumentError("each folder once: a run agrees with itself")
    return build_report([read_run(path) for path in paths], {})


def selected(program: str | Program | Sequence[str | Program]) -> tuple[str | Program, ...]:
    """The programs that `crosscheck` means by its first argument."""
    if program == ALL:
        from ..programs import CASES

        return tuple(CASES)
    return (program,) if isinstance(program, (str, Program)) else tuple(program)


def _specs(spec: str | Spec | Sequence[Spec] | None) -> tuple[Spec, ...] | None:
    if spec is None:
        return None
    if isinstance(spec, str):
        return tuple(parse_spec(part) for part in spec.split(";"))
    return (spec,) if isinstance(spec, tuple) else tuple(spec)


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """An empty folder for the runs."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="pyreactant-") as made:
            yield Path(made)
        return
    path = Path(out)
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = any(path.iterdir())
    except OSError as error:
        raise FileError(f"{path}: cannot be made ({error.strerror}); name another folder") from None
    if taken:
        raise FileError(f"{path}: exists and is not empty; name another folder")
    yield path


def _run(name: str, options: Sequence[str], folder: Path, progress: bool) -> None:
    """One runtime's run, from start to end; how it ended is in its report.json."""
    run, request = folder.resolve() / name, folder.resolve() / "request.json"
    argv = [
        sys.executable,
        "-m",
        "pyreactant",
        "run",
        "--quiet",
        "--backend",
        name,
        *options,
        "--folder",
        str(run),
        "--",
        "-m",
        "pyreactant.crosscheck",
        str(request),
        str(run),
    ]
    environment = without(*_PROCESS)
    # Checking has threads of its own, and tiles that are too small for more.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A program's module may be where only this process looks, as under pytest.
    environment["PYTHONPATH"] = import_path()
    with tempfile.TemporaryFile() as said:
        code = _supervised(argv, environment, name if progress else None, said)
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    if code and not (run / "report.json").exists():
        kinds = {3: RequirementError, 4: RendezvousError}
        kind = kinds.get(code, InvalidArgumentError)
        raise kind(f"the run on {name} did not start: {text.removeprefix('error: ')}")


def _supervised(argv: Sequence[str], environment: Any, progress: str | None, said: Any) -> int:
    """Wait for a run; `progress` is what its lines of progress begin with."""
    process = subprocess.Popen(  # noqa: S603 - this Python, and arguments as they are
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _end) if here else None
    try:
        for line in process.stdout:
            if progress is not None and PROGRESS_PREFIX in line:
                sys.stderr.write(f"{progress}: {line.partition(PROGRESS_PREFIX)[2]}")
                sys.stderr.flush()
        return process.wait()
    except BaseException:
        # Ctrl-C reached it too, and it ends what it started; SIGTERM once more does no harm.
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    finally:
        process.stdout.close()
        if here:
            signal.signal(signal.SIGTERM, before)


def _end(number: int, _: Any) -> None:
    """SIGTERM would leave the run behind: first see it end."""
    raise SystemExit(128 + number)
