"""One process of a cross-check's run: execute all programs on one runtime.

``python -m pyreactant.crosscheck REQUEST FOLDER``, started by a supervisor. It writes
``process-I.json`` and ``shards-I.npz`` into FOLDER. It only records verdicts, and exits with 0
even if results are wrong.
It runs each program on its further sets of inputs, and in further layouts and element types, too.
"""

import contextlib
import gc
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays.array import ShardedArray
from ..arrays.matmul import default_mesh
from ..arrays.mesh import Mesh
from ..arrays.program import Program
from ..arrays.runtimes.runtime import barrier, current, devices, initialize
from ..arrays.text import specs_text
from ..base.errors import DeadlineError, FileError, InvalidArgumentError, PyReactantError, code_of
from ..base.facts import facts
from ..base.files import write_json
from ..base.imports import users_place
from ..base.steps import step, told_to
from ..process import supervised
from .check import check_all, processes_where
from .execute import PRECISION, CaseRun, run_again, run_case
from .inputs import ORDINARY, input_sets
from .programs import Case, find_case
from .records.records import ProcessRecord, ShardWriter, record_name, shards_name
from .records.verdict import BlockVerdict, ProgramRecord, SetRecord
from .request import CheckRequest, choose_layout, read_request
from .variants import Variant, variants


class Where(str):
    """A note of an exception: in which layout, or on which inputs, it was raised."""

    __slots__ = ()


def further_sets(
    request: CheckRequest,
    run: CaseRun,
    blocks: Sequence[BlockVerdict],
    mesh: Mesh,
    chosen: Sequence[Variant],
) -> Iterator[SetRecord]:
    """Run and check everything beyond the ordinary inputs of the first variant. Collective.

    Args:
        request: What to run.
        run: The run on ordinary inputs; its arrays are not needed.
        blocks: The verdicts on its blocks.
        mesh: Mesh of the devices.
        chosen: The variants of the program; `run` is the first one.
    """
    # An estimated tolerance is no bound, and harder inputs are where estimates fail: then there are
    # only the sets without a tolerance.
    estimated = bool(processes_where(any(block.values.estimated for block in blocks)))
    yield from _harder_sets(request, run, estimated)
    for variant in chosen[1:]:
        specs = specs_text(variant.layout.in_specs)
        with _saying(f"in the layout and type {variant.dtype} {specs}"):
            run = _run_variant(request, run.case, run.size, mesh, variant, calls=1)
            yield _record(run)
            run = replace(run, arrays={})
            yield from _harder_sets(request, run, estimated)


def _run_variant(
    request: CheckRequest, case: Case, size: int, mesh: Mesh, variant: Variant, *, calls: int
) -> CaseRun:
    return run_case(
        case,
        size=size,
        dtype=variant.dtype,
        seed=request.seed,
        mesh=mesh,
        layout=variant.layout,
        calls=calls,
        typical=request.typical,
        check=request.check,
    )


@contextlib.contextmanager
def _saying(where: str) -> Iterator[None]:
    """Note where an exception of the block was raised."""
    try:
        yield
    except Exception as error:
        error.add_note(Where(where))
        raise


def _harder_sets(request: CheckRequest, run: CaseRun, estimated: bool) -> Iterator[SetRecord]:
    """Run a compiled program on the sets beyond the ordinary one that it defines."""
    sets = () if run.case.oracle is None else input_sets(run.case, run.size, run.dtype)
    for data in sets:
        if data.name in request.sets and (data.whole or not estimated):
            with _saying(f"on {data.name} inputs"):
                run = run_again(run, data)
            yield _record(run)
            run = replace(run, arrays={})


def _record(run: CaseRun) -> SetRecord:
    blocks = check_all(run)
    return SetRecord(
        inputs=run.data.name,
        text=run.data.text if run.data.name != ORDINARY else "",
        dtype=run.dtype,
        specs=run.layout.to_dict(),
        plans=run.plans,
        blocks=tuple(b for b in blocks if b.array.startswith("output") or not b.passed),
        repeats=run.repeats,
    )


AGREE_SECONDS = 20.0
"""How long a process that raised waits for the others to raise before it ends the run."""

PROGRESS_PREFIX = "crosscheck: "
"""Prefix of progress lines, to tell them from the runtime's output."""

STEP_PREFIX = "crosscheck step: "
"""Prefix of lines that say what process 0 does now."""


def main() -> None:
    """Run the programs of REQUEST; the environment has the settings of the run."""
    if len(sys.argv) != 3:
        raise InvalidArgumentError(
            "usage: python -m pyreactant.crosscheck REQUEST FOLDER, under pyreactant run"
        )
    request, folder = read_request(Path(sys.argv[1])), Path(sys.argv[2])
    initialize()
    try:
        run_member(request, folder)
    except FileError as error:
        supervised.end_with(error)
    gc.freeze()  # as at the end of a command


def run_member(request: CheckRequest, folder: Path) -> None:
    """Run every program, and write the record and blocks of this process. Collective.

    Raises:
        FileError: The folder cannot be written to.
        Exception: A program raised on some processes only. The others would wait forever in a
            collective operation, so the run must end.
    """
    running = current()
    process = running.group.process_index
    record = ProcessRecord(
        process=process,
        num_processes=running.group.num_processes,
        backend=running.backend.name,
        platform=devices()[0].platform,
        host=socket.gethostname(),
        devices=[asdict(device) for device in devices()],
        facts=facts() | running.backend.versions(),
        request=request.to_dict(),
    )
    target = folder / record_name(process)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shards = ShardWriter(folder / shards_name(process))
    except OSError as error:
        raise FileError(f"{folder}: cannot be written to ({error.strerror})") from None
    with told_to(_print_step if process == 0 else lambda text: None):
        record = _run_all(request, record, target, shards)
    shards.close()
    record = replace(record, running=None, finished=True, checksums=shards.checksums)
    write_json(record.to_dict(), target)


def _run_all(
    request: CheckRequest, record: ProcessRecord, target: Path, shards: ShardWriter
) -> ProcessRecord:
    """Run every program, and write the record after each; the record with all programs."""
    for program, name in zip(request.programs, request.names, strict=True):
        record = replace(record, running=name)
        write_json(record.to_dict(), target)  # shows what was running if the process is killed
        try:
            done = _run(request, program, name, shards)
        except Exception as error:
            done = ProgramRecord(program=name, error=error_facts(error))
            record = replace(record, programs=(*record.programs, done))
            write_json(record.to_dict(), target)
            if not _all_raised(name):
                raise
            wrong: list[int] = []
        else:
            record = replace(record, programs=(*record.programs, done))
            blocks = [*done.blocks, *(block for of_set in done.sets for block in of_set.blocks)]
            wrong = processes_where(not all(block.passed for block in blocks))
        if record.process == 0:
            _print_progress(done, wrong)
    return record


def _print_step(text: str) -> None:
    sys.stdout.write(f"{STEP_PREFIX}{text}\n")
    sys.stdout.flush()


def _all_raised(name: str) -> bool:
    """Whether all processes raised, so that the next program can start."""
    try:
        barrier(f"{name} raised", timeout=AGREE_SECONDS)
    except DeadlineError:
        return False
    return True


def error_facts(error: BaseException) -> dict[str, Any]:
    """An exception as plain data for a record."""
    code = code_of(error)
    text = "".join(traceback.format_exception(error))
    notes = getattr(error, "__notes__", ())
    message = "; ".join([str(error), *(note for note in notes if isinstance(note, Where))])
    place = "" if isinstance(error, PyReactantError) else users_place(error)
    return {
        "exception": type(error).__name__,
        "message": message[:2000] + (f" ({place})" if place else ""),
        "exit_code": code,
        "traceback": text[-8000:],
        "failed_process": getattr(error, "failed_process", None),
    }


def _run(
    request: CheckRequest, program: str | Program, name: str, shards: ShardWriter
) -> ProgramRecord:
    case = find_case(program)
    mesh = request.mesh or default_mesh(len(devices()))
    size = request.size or case.size_for(mesh)
    layout = choose_layout(case, mesh, size, request.specs)
    first = Variant(request.dtype or case.dtypes[0], layout)
    chosen = variants(
        case,
        mesh,
        size,
        request.extent,
        first,
        specs=request.specs is not None,
        dtype=request.dtype is not None,
    )
    step(f"compiling and running {name}")
    run = _run_variant(request, case, size, mesh, first, calls=request.repeat)
    start = time.perf_counter()
    step(f"checking {name}")
    blocks = check_all(run)
    checked = time.perf_counter() - start
    keys = _write(shards, name, run.arrays)
    run = replace(run, arrays={})  # one set of arrays is held at a time
    start = time.perf_counter()
    sets = tuple(further_sets(request, run, blocks, mesh, chosen))
    more = time.perf_counter() - start
    return ProgramRecord(
        program=name,
        summary=case.summary,
        problem={
            "size": run.size,
            "dtype": run.dtype,
            "seed": run.seed,
            "mesh": mesh.to_dict(),
            **layout.to_dict(),
        },
        inputs=run.digests,
        oracle=case.oracle is not None,
        exact=run.exact,
        precision=PRECISION,
        seconds={**run.seconds, "check": checked, "further sets": more},
        plans=run.plans,
        blocks=tuple(blocks),
        repeats=run.repeats,
        keys=keys,
        sets=sets,
    )


def _write(
    shards: ShardWriter, name: str, arrays: Mapping[str, ShardedArray]
) -> dict[str, dict[str, str]]:
    """Write the blocks of the outputs; copies with equal bits are written once."""
    keys: dict[str, dict[str, str]] = {}
    for array, value in arrays.items():
        if not array.startswith("output"):
            continue
        written: dict[tuple[tuple[int, int], ...], tuple[str, np.ndarray]] = {}
        keys[array] = {}
        for shard in value.addressable_shards:
            data = shard.data
            where = tuple((s.start, s.stop) for s in shard.index)
            key = f"{name}/{array}/{shard.device.position}"
            if where in written and _same_bits(written[where][1], data):
                key = written[where][0]
            else:
                shards.add(key, data)
                written.setdefault(where, (key, data))
            keys[array][str(shard.device.position)] = key
    return keys


def _same_bits(one: np.ndarray, two: np.ndarray) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (one, two))
    return bool(np.array_equal(a, b))


def _print_progress(record: ProgramRecord, wrong: list[int]) -> None:
    error = record.error
    if error is not None:
        text = f"raised {error['exception']}: {error['message'].partition(chr(10))[0]}"
    else:
        seconds = record.seconds
        text = f"compiled in {seconds['compile']:.2f} s, checked in {seconds['check']:.2f} s"
        if record.sets:
            sets = "set" if len(record.sets) == 1 else "sets"
            text += f", {len(record.sets)} further {sets} in {seconds['further sets']:.2f} s"
        if wrong:
            plural = "es" if len(wrong) > 1 else ""
            text += f", WRONG on process{plural} {', '.join(map(str, wrong))}"
    sys.stdout.write(f"{PROGRESS_PREFIX}{record.program}: {text}\n")
    sys.stdout.flush()
