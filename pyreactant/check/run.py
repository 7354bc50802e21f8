"""`pyreactant.crosscheck`: run the same programs on every runtime, one run per runtime.

Then, if wanted, compare the gradients of Julia bodies by Enzyme inside JAX with jax.grad and with
oracles: each program in a child process (`gradients_child`), on the CPU, on one device.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..arrays.lowering.enzyme import check_enzyme
from ..arrays.lowering.reactant import environment as environment_of_julia
from ..arrays.mesh import Mesh
from ..arrays.program import Program, with_names
from ..arrays.text import parse_mesh, parse_spec
from ..base.child import Activity, ask_child, import_path, without
from ..base.duration import seconds_word
from ..base.errors import (
    ExitCode,
    FileError,
    InvalidArgumentError,
    PyReactantError,
    RendezvousError,
    RequirementError,
    argument,
    code_of_signal,
)
from ..base.files import is_full
from ..base.settings import COORDINATOR, COUNT, INDEX, LOCAL_DEVICES
from ..base.steps import step
from .bounds.typical import SIGMAS
from .member import PROGRESS_PREFIX, STEP_PREFIX
from .product.on_devices import check_place
from .programs import CASES, Case, find_case
from .records.records import check_shards, read_run
from .report.data import GradientResult
from .report.report import Report, build_report
from .request import (
    QUICK,
    USUAL,
    CheckRequest,
    RunDevices,
    Spec,
    check_request,
    choose_backends,
    how_to_get,
    write_request,
)
from .request import coverage as choose_coverage

ALL = "all"
_GRACE = "5"  # seconds: a program of a cross-check has nothing to save
_PROCESS = (
    *(COORDINATOR, COUNT, INDEX, LOCAL_DEVICES, "PYREACTANT_NUM_CPU_DEVICES"),
    *("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_"),
)


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
    repeat: int = 5,
    typical: float = SIGMAS,
    check: str | None = None,
    coverage: str = USUAL,
    gradients: bool | str | Path | None = None,
    out: str | Path | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> Report:
    """Run programs on every runtime, check each against an oracle, and compare the runtimes.

    The runtimes run one after the other in processes of their own, because an accelerator has
    one owner; this process starts no runtime. All runs use the same seeded inputs, each process
    generates its own blocks, and products use the highest precision. Wrong results are in the
    report and raise no exception.

    Args:
        program: Name of a built-in program, "package.module:object", a `Program`, a sequence of
            these, or "all" for all built-in programs.
        backends: Names of runtimes, or "auto" for all available ones; the report lists the
            others.
        processes: Number of processes of each run; by default 2 on CPU devices, otherwise 1.
        devices_per_process: Number of devices of each process; by default 4 on CPU devices,
            otherwise all.
        mesh: A mesh or a text as for ``--mesh``; None means all devices, as square as their
            number allows.
        spec: Partition spec of the first input, or a text as for ``--spec``; a list has the
            specs of the first inputs. None means each program's default.
        size: The "n" of the programs' shapes; None means each program's default.
        dtype: Element type; None means each program's first.
        seed: Seed of the inputs, 0 or more.
        platform: "cpu", "gpu" or "tpu"; None means the best available one.
        repeat: Number of timed calls.
        typical: How many standard deviations of rounding an element of a user's program may be off
            (docs/checks.md), 6 or more; 0 leaves only the derived bound.
        check: Where products of more than 2048³ multiplications are checked: "device" or "host".
            None means the devices on GPU and TPU, with JAX (docs/checks.md).
        coverage: "quick": ordinary inputs in one layout and element type. "usual": all sets of
            inputs that a program defines; if `program` is "all", in a small matrix of layouts and
            types. "thorough": in all layouts and types.
        gradients: Whether to compare the gradients of Julia bodies, by Enzyme inside JAX, with
            jax.grad of the JAX bodies and with oracles. None does so if both runtimes run and the
            package enzyme-ad is installed, but for "quick"; a folder has lowered modules,
            NAME.mlir, to use in place of Julia.
        out: Folder for records, blocks and logs of the runs. None keeps nothing.
        timeout: Time limit of each run in seconds, and of the calls of an oracle before the runs.
        progress: Whether to print progress on standard error.

    Returns:
        The report.

    Raises:
        InvalidArgumentError: An argument is unknown or does not fit the others.
        RequirementError: A requested runtime is not available.
        FileError: `out` cannot be used.
        DeadlineError: An oracle takes longer than `timeout`.

    Examples:
        >>> report = pr.crosscheck(["transpose"], size=8, platform="cpu", backends="jax")
        >>> report.passed
        True
    """
    request = request_of(
        program,
        coverage=coverage,
        size=size,
        dtype=dtype,
        seed=seed,
        mesh=mesh,
        spec=spec,
        repeat=repeat,
        typical=typical,
        check=check,
    )
    names, absent = choose_backends(backends)
    check_place(check, names)
    given = RunDevices.of(processes, devices_per_process, platform)
    check_request(request, given.count, names, timeout)
    differentiate = gradients_wanted(gradients, names, coverage)
    if gradients:
        check_gradients(request, gradients)
    options = given.options + ([] if timeout is None else ["--timeout", seconds_word(timeout)])
    with _folder(out) as folder:
        write_request(request, folder / "request.json")
        runs = []
        for name in names:
            step(f"checking on {name}")
            last = _run(name, options, folder, progress, len(request.programs))
            run = read_run(folder / name)
            if run.ended and run.exit_code == ExitCode.TIMEOUT and last:
                summary = run.ended["summary"]
                run = replace(
                    run, ended={**(run.ended or {}), "summary": f"{summary}; it was {last}"}
                )
            runs.append(run)
        report = build_report(runs, absent, request.names)
    if not differentiate:
        return report
    return replace(report, gradients=compare_gradients(request, gradients))


def compare(*folders: str | Path) -> Report:
    """Compare finished runs, which may be copied from other machines.

    Args:
        *folders: Folders of one run each, such as ``OUT/jax``.

    Returns:
        The report.

    Raises:
        FileError: A folder does not contain a complete run of this version.
        InvalidArgumentError: No folder is named, or one is named twice.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise InvalidArgumentError("name the folders of finished runs, such as OUT/jax")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidArgumentError("name each folder only once, got one twice")
    runs = [read_run(path) for path in paths]
    for run in runs:
        check_shards(run)
    return build_report(runs, {})


def so_far(folder: Path) -> tuple[Report | None, dict[str, list[str]]]:
    """What an interrupted cross-check in a folder has finished.

    Returns:
        The report on the finished programs, None without any; and their names by runtime.
    """
    runs = []
    for path in sorted(folder.glob("*/report.json"), key=lambda path: path.stat().st_mtime):
        with suppress(FileError):  # ended before its supervisor could write all
            runs.append(read_run(path.parent))
    finished = {
        run.name: [
            record.program
            for record in run.records[0].programs
            if len(run.of(record.program)) == run.records[0].num_processes
        ]
        for run in runs
        if run.records
    }
    done = {program for programs in finished.values() for program in programs}
    if not done:
        return None, finished
    report = build_report([run for run in runs if run.records], {})
    return replace(report, rows=tuple(r for r in report.rows if r.program in done)), finished


def request_of(
    program: str | Program | Sequence[str | Program],
    *,
    coverage: str,
    mesh: Mesh | str | None,
    spec: str | Spec | Sequence[Spec] | None,
    **fields: Any,
) -> CheckRequest:
    """The request of a cross-check with the arguments of `crosscheck`."""
    sets, extent = choose_coverage(coverage, program == ALL)
    programs: Sequence[str | Program] = tuple(CASES)
    if program != ALL:
        programs = (program,) if isinstance(program, (str, Program)) else program
    if isinstance(spec, str):
        spec = [parse_spec(part) for part in spec.split(";")]
    elif isinstance(spec, tuple):
        spec = [spec]
    return CheckRequest(
        tuple(with_names(item) if isinstance(item, Program) else item for item in programs),
        mesh=parse_mesh(mesh) if isinstance(mesh, str) else mesh,
        specs=None if spec is None else tuple(spec),
        sets=sets,
        extent=extent,
        **fields,
    )


_NO_SPACE = "its disk has no space left; free some there"


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """An empty folder for the runs."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="pyreactant-") as made:
            yield Path(made)
        return
    path, label = Path(out), argument("out", str(out))
    new = not os.path.lexists(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = any(path.iterdir())
    except OSError as error:
        why = f"cannot be made ({error.strerror})"
        if os.path.lexists(path) and not path.is_dir():
            why = "is not a folder"
        raise FileError(f"{label}: {why}; name another folder") from None
    if taken:
        raise FileError(f"{label}: exists and is not empty; name another folder")
    if is_full(path):
        if new:
            path.rmdir()
        raise FileError(f"{label}: {_NO_SPACE}, or name another folder")
    yield path


def _run(name: str, options: Sequence[str], folder: Path, progress: bool, count: int) -> str:
    """Execute the run of one runtime; its report.json has the outcome.

    Returns:
        What process 0 did last.
    """
    run, request = folder.resolve() / name, folder.resolve() / "request.json"
    argv = [
        sys.executable,
        "-m",
        "pyreactant",
        "run",
        "--quiet",
        "--grace",
        _GRACE,
        "--backend",
        name,
        *options,
        "--out",
        str(run),
        "--",
        "-m",
        "pyreactant.crosscheck",
        str(request),
        str(run),
    ]
    environment = without(*_PROCESS)
    # The check runs its own threads, and its tiles are too small for BLAS threads.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A program's module may be on this process's import path only, as under pytest.
    environment["PYTHONPATH"] = import_path()
    environment["PYTHONSAFEPATH"] = "1"  # the user's files are not found before Python's own
    with tempfile.TemporaryFile() as errors:
        lines = _Lines(name, count, shown=progress)
        code = _supervise(argv, environment, lines, errors)
        errors.seek(0)
        text = errors.read().decode(errors="replace").strip()
    if code and is_full(folder):
        raise FileError(f"{folder}: {_NO_SPACE}, or name another folder with {argument('out')}")
    if code and not (run / "report.json").exists():
        kinds: dict[int, type[PyReactantError]] = {
            ExitCode.MISSING: RequirementError,
            ExitCode.RENDEZVOUS: RendezvousError,
        }
        kind = kinds.get(code, InvalidArgumentError)
        raise kind(f"the run on {name} did not start: {text.removeprefix('error: ')}")
    return lines.last


class _Lines:
    """What the run of a runtime says of each program that is done, and of what it does now.

    Attributes:
        last: What it did last.
    """

    def __init__(self, name: str, count: int, *, shown: bool) -> None:
        self._name, self._count, self._shown, self._done = name, count, shown, 0
        self.last = ""

    def read(self, line: str) -> None:
        """Show a line, if it is about a program, and tell of one about a step."""
        _, prefix, text = line.partition(STEP_PREFIX)
        if prefix:
            self.last = text.strip()
            step(f"{self.last} on {self._name}")
            return
        _, prefix, text = line.partition(PROGRESS_PREFIX)
        if not prefix:
            return
        self._done += 1
        step(f"checked on {self._name}", self._done, self._count)
        if self._shown:
            count = f" {self._done} of {self._count}" if self._count > 1 else ""
            sys.stderr.write(f"{self._name}{count}: {text}")
            sys.stderr.flush()


def _supervise(argv: Sequence[str], environment: Any, lines: _Lines, errors: Any) -> int:
    """The exit code of a run."""
    process = subprocess.Popen(  # noqa: S603 - this Python, and arguments as they are
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _exit_on_signal) if in_main_thread else None
    try:
        for line in process.stdout:
            lines.read(line)
        return process.wait()
    except BaseException:
        # Ctrl-C also reaches the supervisor, which ends its processes; SIGTERM is then harmless.
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    finally:
        process.stdout.close()
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)


def _exit_on_signal(number: int, _: Any) -> None:
    """Turn SIGTERM into an exception, so that the run is ended before this process."""
    raise SystemExit(code_of_signal(number))


GRADIENTS = {"perceptron": "perceptron_gradient"}
"""The program whose oracle is the gradient of a program's loss."""

_TIMEOUT = 1200.0  # Julia and Enzyme may each need minutes


def gradients_wanted(
    gradients: bool | str | Path | None, backends: Sequence[str], coverage: str
) -> bool:
    """Whether to compare gradients; without a choice, if Enzyme and both runtimes are here.

    Raises:
        RequirementError: They are asked for, but Enzyme's package is not installed.
        FileError: The folder of modules does not exist.
    """
    if gradients is None:
        both = {"jax", "reactant"} <= set(backends)
        return both and coverage != QUICK and importlib.util.find_spec("enzyme_ad") is not None
    if gradients is False:
        return False
    check_enzyme()
    if gradients is not True and not Path(gradients).is_dir():
        raise FileError(
            f"{argument('gradients', str(gradients))} is not a folder; give one with a lowered "
            "module for each program, NAME.mlir, as as_jax(...).as_text() writes it, or none to "
            "use Julia"
        )
    return True


def check_gradients(request: CheckRequest, gradients: bool | str | Path) -> None:
    """Check before the runs that the gradients which are asked for can be compared.

    Raises:
        InvalidArgumentError: No program has both bodies.
        RequirementError: Their Julia bodies need Reactant, which is not available.
    """
    if not any(_has_both_bodies(find_case(program)) for program in request.programs):
        raise InvalidArgumentError(
            "gradients are compared for programs with a Julia body and a JAX body, and "
            f"{', '.join(request.names)} lacks one; name another program, or leave gradients= "
            "(--gradients) out"
        )
    if gradients is True and (how := how_to_get("reactant")):
        raise RequirementError(
            f"the gradients of Julia bodies need Reactant: {how}; or give a folder of lowered "
            "modules as gradients= (--gradients --modules)"
        )


def _has_both_bodies(case: Case) -> bool:
    return case.program.julia is not None and case.program.jax is not None


def compare_gradients(
    request: CheckRequest, modules: bool | str | Path | None
) -> tuple[GradientResult, ...]:
    """The gradients of all programs of a request that have both bodies.

    Args:
        request: The request of the cross-check.
        modules: Folder of modules to use in place of Julia, if it is a path.
    """
    folder = Path(modules) if isinstance(modules, (str, Path)) else None
    results: list[GradientResult] = []
    for program, name in zip(request.programs, request.names, strict=True):
        case = find_case(program)
        if not _has_both_bodies(case):
            continue
        question = {
            "program": asdict(program) if isinstance(program, Program) else program,
            "size": request.size or case.default_size,
            "dtype": request.dtype or case.dtypes[0],
            "seed": request.seed,
            "module": None if folder is None else str(folder / f"{name}.mlir"),
            "gradient": GRADIENTS.get(name),
        }
        try:
            reply = ask_child(
                "pyreactant.check.gradients_child",
                {**environment_of_julia(), "JAX_PLATFORMS": "cpu"},
                question,
                timeout=_TIMEOUT,
                activity=Activity(f"the gradient of {name}", "differentiates", "XLA"),
            )
        except PyReactantError as error:
            reply = {"failed": str(error)}
        if "failed" in reply:
            results.append(GradientResult(name, "", "", text=reply["failed"]))
        else:
            about = {"program": name, "text": ""}
            results += [GradientResult.from_dict(result | about) for result in reply["results"]]
    return tuple(results)
