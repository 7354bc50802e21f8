"""plan: the best mesh and specs of a program on a slice, or on this machine's devices."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.dtypes import as_dtype
from ...arrays.matmul import MATMUL, default_mesh, default_out_spec
from ...arrays.program import Program
from ...arrays.sharding import NamedSharding
from ...base.errors import ExitCode, InvalidArgumentError, PyReactantError, argument
from ...base.slices.topology import Topology
from ...base.slices.topology import topology as find_topology
from ..request import find_program, no_size
from .evaluate import Pool, available_memory, compiled, end_running, measured, peak_of_children
from .layouts import Choice, Layout, layout_of, product_layouts, program_layouts
from .machine import Machine, local_machine, slice_machine
from .model import Product
from .report import Candidate, Plan, ranked

Progress = Callable[[int, int, Candidate | None], None]
"""Called with the number of finished candidates, their total, and the best one so far."""


class NothingFitsError(InvalidArgumentError):
    """No layout of the program fits the memory of the devices."""

    exit_code = ExitCode.MISMATCH


TRIED = 8
CPU_DEVICES = 8


def plan(
    program: Program | str = "matmul",
    *,
    topology: str | Topology | None = None,
    num_slices: int = 1,
    size: int | tuple[int, int, int] | None = None,
    shapes: Sequence[Sequence[int]] = (),
    dtype: Any = "float32",
    precision: str | None = None,
    platform: str | None = None,
    devices: int | None = None,
    tried: int = TRIED,
    workers: int | None = None,
    cache: bool = True,
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> Plan:
    """Find the mesh and the specs with which a program takes the least time and memory.

    It combines all meshes over the devices with all specs that divide the sizes. Closed forms of
    memory, and for a product of computation and communication, choose a few candidates. These are
    compiled for the slice (see `preflight`) or run on this machine's devices, and ranked by time,
    bytes sent and memory. Runtimes run in child processes only.

    Args:
        program: "matmul", a Program, or the name of a JAX function, "package.module:function".
        topology: An absent slice, as for `pyreactant.topology`; None measures on this machine.
        num_slices: Number of slices, joined by the data-center network.
        size: Size of a square product, or (m, k, n).
        shapes: Shapes of the arguments of another program.
        dtype: Element type of the arguments.
        precision: "default", "high" or "highest"; None is the runtime's default.
        platform: Platform of this machine's devices: "cpu" or "gpu".
        devices: Number of this machine's devices; 8 by default on the CPU.
        tried: Number of candidates to compile or run.
        workers: Most compilations at a time; fewer if memory is short. None is one per processor.
            Runs follow one another.
        cache: As for `preflight`.
        timeout: Seconds for each candidate.
        progress: Called after each candidate.

    Returns:
        The plan. After a KeyboardInterrupt it has the candidates finished by then.

    Raises:
        InvalidArgumentError: The arguments do not fit together.
        RequirementError: There is no compiler for the slice, or the devices are absent.

    Examples:
        >>> found_plan = pr.plan("matmul", platform="cpu", size=64, tried=1)
        >>> found_plan.best.mesh.size
        8
    """
    if not isinstance(tried, int) or tried < 1:
        raise InvalidArgumentError(
            f"{argument('tried')} must be a whole number from 1, got {tried!r}"
        )
    chosen = find_program(program, "jax")
    name = program if isinstance(program, str) else "matmul" if chosen is None else chosen.name
    program = "matmul" if chosen is None or chosen == MATMUL else chosen
    element = as_dtype(dtype)
    machine = _machine(topology, num_slices, platform, devices, element.name)
    product, given = _sizes(program, size, shapes, element.itemsize)
    if product is not None:
        found = product_layouts(product, machine, tried)
        reference = _reference(product, machine)
    else:
        if machine.topology is None:
            raise InvalidArgumentError(
                "only matmul can be measured on this machine's devices; give "
                f"{argument('topology')}"
            )
        found, reference = program_layouts(given, element.itemsize, machine, tried), None
    if not found.layouts:
        kind = NothingFitsError if found.considered else InvalidArgumentError
        raise kind(_nothing(found, machine, given))
    errors: list[PyReactantError] = []
    evaluate = _evaluator(machine, program, given, element.name, precision, cache, timeout, errors)
    layouts = [*found.layouts, *([] if reference is None else [reference])]
    jobs = [functools.partial(evaluate, one, reference=one is reference) for one in layouts]
    pool: Pool[Candidate] = Pool(1 if machine.topology is None else workers)
    done, interrupted = _evaluate(pool, jobs, progress)
    if len(errors) == len(jobs) and len({str(error) for error in errors}) == 1:
        raise errors[0]  # the program is wrong, not its layouts
    return Plan(
        program=name,
        shapes=given,
        dtype=element.name,
        precision=precision,
        topology=machine.topology,
        platform=machine.platform,
        devices=machine.devices * machine.num_slices,
        hbm_bytes=machine.memory_bytes,
        candidates=ranked([one for one in done if not one.reference]),
        reference=next((one for one in done if one.reference), None),
        considered=found.considered,
        too_large=found.too_large,
        interrupted=interrupted,
        peak_bytes=peak_of_children() or None,
        at_once=pool.at_once,
    )


def _evaluate(
    pool: Pool[Candidate], jobs: Sequence[Callable[[], Candidate]], progress: Progress | None
) -> tuple[list[Candidate], bool]:
    done: list[Candidate] = []
    try:
        for _, candidate in pool.run(jobs):
            done.append(candidate)
            if progress is not None:
                best = ranked([one for one in done if one.seconds is not None])
                progress(len(done), len(jobs), best[0] if best else None)
    except KeyboardInterrupt:
        end_running()  # compilers end with this process
        return done, True
    return done, False


def _machine(
    topology: str | Topology | None,
    num_slices: int,
    platform: str | None,
    devices: int | None,
    dtype: str,
) -> Machine:
    if (topology is None) == (platform is None):
        got = "got neither" if topology is None else "not both"
        raise InvalidArgumentError(
            f"give {argument('topology')} to plan for a TPU slice, or {argument('platform')} to "
            f"measure on this machine's devices; {got}"
        )
    if topology is not None:
        if devices is not None:
            raise InvalidArgumentError(
                f"{argument('devices')} is for this machine's devices; a slice has a fixed number"
            )
        found = topology if isinstance(topology, Topology) else find_topology(topology, num_slices)
        return slice_machine(found, dtype)
    assert platform is not None
    if platform == "gpu" and devices is None:
        raise InvalidArgumentError(
            f"give the number of this machine's GPUs as {argument('devices')}"
        )
    machine = local_machine(platform, CPU_DEVICES if devices is None else devices)
    memory = available_memory() if platform == "cpu" else None
    each = None if memory is None else memory // machine.devices
    return dataclasses.replace(machine, memory_bytes=each)


def _sizes(
    program: Program | str, size: Any, shapes: Sequence[Sequence[int]], itemsize: int
) -> tuple[Product | None, tuple[tuple[int, ...], ...]]:
    if program == "matmul":
        if size is None or shapes:
            raise no_size()
        m, k, n = (size, size, size) if isinstance(size, int) else size
        if min(m, k, n) < 1:
            raise InvalidArgumentError(f"sizes must be 1 or more, got m={m}, k={k}, n={n}")
        return Product(m, k, n, itemsize), ((m, k), (k, n))
    if size is not None or not shapes:
        raise InvalidArgumentError(
            f"a program other than matmul needs the shape of each argument, as {argument('shapes')}"
        )
    if any(
        isinstance(side, bool) or not isinstance(side, int) or side < 1
        for s in shapes
        for side in s
    ):
        raise InvalidArgumentError(
            f"shapes must be whole numbers from 1, got {', '.join(str(tuple(s)) for s in shapes)}"
        )
    return None, tuple(tuple(shape) for shape in shapes)


def _reference(product: Product, machine: Machine) -> Layout | None:
    """The default layout of `matmul_sharded`; None if it does not divide the sizes."""
    mesh = default_mesh(machine.devices * machine.num_slices)
    specs = (("x", "y"), ("x", "y"))
    out = default_out_spec(*(NamedSharding(mesh, spec) for spec in specs))
    rows, columns = mesh.shape
    if product.m % rows or product.k % (rows * columns) or product.n % columns:
        return None
    one = dataclasses.replace(machine, num_slices=1)  # its axes may run within and across slices
    return layout_of(product, one, mesh, specs, out)


def _evaluator(
    machine: Machine,
    program: Program | str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    precision: str | None,
    cache: bool,
    timeout: float,
    errors: list[PyReactantError],
) -> Callable[..., Candidate]:
    if machine.topology is None:
        return functools.partial(
            measured,
            machine=machine,
            shapes=shapes,
            dtype=dtype,
            precision=precision,
            timeout=timeout,
        )
    return functools.partial(
        compiled,
        machine=machine,
        program=program,
        shapes=shapes,
        dtype=dtype,
        precision=precision,
        cache=cache,
        timeout=timeout,
        errors=errors,
    )


def _nothing(found: Choice, machine: Machine, shapes: tuple[tuple[int, ...], ...]) -> str:
    sizes = " and ".join("x".join(map(str, shape)) for shape in shapes)
    if not found.considered:
        return (
            f"no mesh of {machine.devices * machine.num_slices} devices has specs that divide "
            f"{sizes}; use sizes with more factors (blocks must be equal: nothing is padded)"
        )
    return (
        f"none of {found.considered} layouts of {sizes} fits: their blocks alone need more than "
        f"the {(machine.memory_bytes or 0) / 2**30:.2f} GiB of a device; use more devices"
    )
