"""plan: the best mesh and specs of a program on a slice, or on this machine's devices."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.dtypes import as_dtype
from ...arrays.matmul import MATMUL, default_mesh, default_out_spec
from ...arrays.program import Program
from ...arrays.sharding import NamedSharding
from ...base.counted import counted
from ...base.errors import (
    ExitCode,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    argument,
    check_count,
)
from ...base.facts import available_memory
from ...base.slices.topology import EXAMPLE, Topology
from ..layouts.layouts import Choice, Layout, layout_of, product_layouts, program_layouts
from ..layouts.machine import Machine, local_machine, slice_machine
from ..layouts.model import Product
from ..request import find_program, find_slices, product_sizes
from .candidate import Candidate, ranked
from .evaluate import Pool, Trials, peak_of_children
from .report import Plan

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
    check_count("tried", tried)
    chosen = find_program(program, "jax")
    name = program if isinstance(program, str) else "matmul" if chosen is None else chosen.name
    program = "matmul" if chosen is None or chosen == MATMUL else chosen
    element = as_dtype(dtype)
    machine = _machine(topology, num_slices, platform, devices, element.name)
    product, given = _sizes(program, size, shapes, element.itemsize)
    reference = None
    if product is not None:
        choice = product_layouts(product, machine, tried)
        reference = _reference(product, machine)
    elif machine.topology is None:
        raise InvalidArgumentError(
            f"only matmul can be measured on this machine's devices; give {argument('topology')}"
        )
    else:
        choice = program_layouts(given, element.itemsize, machine, tried)
    if not choice.layouts:
        kind = NothingFitsError if choice.considered else InvalidArgumentError
        raise kind(_nothing(choice, machine, given))
    trials = Trials(machine, program, given, element.name, precision, cache, timeout)
    layouts = [*choice.layouts, *([] if reference is None else [reference])]
    pool: Pool[Candidate | PyReactantError] = Pool(1 if machine.topology is None else workers)
    done, interrupted = _evaluate(pool, trials, layouts, reference, progress)
    return Plan(
        program=name,
        shapes=given,
        dtype=element.name,
        precision=precision,
        topology=machine.topology,
        platform=machine.platform,
        devices=machine.devices * machine.num_slices,
        hbm_bytes=machine.memory_bytes,
        candidates=ranked([candidate for candidate in done if not candidate.reference]),
        reference=next((candidate for candidate in done if candidate.reference), None),
        considered=choice.considered,
        too_large=choice.too_large,
        interrupted=interrupted,
        peak_bytes=peak_of_children() or None,
        at_once=pool.at_once,
    )


def _evaluate(
    pool: "Pool[Candidate | PyReactantError]",
    trials: Trials,
    layouts: Sequence[Layout],
    reference: Layout | None,
    progress: Progress | None,
) -> tuple[list[Candidate], bool]:
    """The candidates that were tried, and whether this was interrupted.

    Raises:
        PyReactantError: All layouts fail with this error, so the program is wrong, not they.
    """

    def outcome(layout: Layout) -> Candidate | PyReactantError:
        try:
            return trials.candidate(layout)
        except RequirementError:
            raise
        except PyReactantError as error:
            return error

    done: list[Candidate] = []
    errors: list[PyReactantError] = []
    try:
        for number, result in pool.run([functools.partial(outcome, one) for one in layouts]):
            if isinstance(result, PyReactantError):
                errors.append(result)
                result = Candidate(layout=layouts[number], trouble=str(result), fits=False)
            of_default = layouts[number] is reference
            done.append(dataclasses.replace(result, reference=of_default))
            if progress is not None:
                best = ranked([one for one in done if one.seconds is not None])
                progress(len(done), len(layouts), best[0] if best else None)
    except KeyboardInterrupt:  # the child processes end with this process
        return done, True
    if len(errors) == len(layouts) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return done, False


def _machine(
    topology: str | Topology | None,
    num_slices: int,
    platform: str | None,
    devices: int | None,
    dtype: str,
) -> Machine:
    if topology is not None and platform is None:
        if devices is not None:
            raise InvalidArgumentError(
                f"{argument('devices')} is for this machine's devices; a slice has a fixed number"
            )
        return slice_machine(find_slices(topology, num_slices), dtype)
    if platform is None or topology is not None:
        got = "got neither" if topology is None else "not both"
        raise InvalidArgumentError(
            f"give {argument('topology')} to plan for a TPU slice, {EXAMPLE}, or "
            f"{argument('platform')} to measure on this machine's devices; {got}"
        )
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
        m, k, n = product_sizes(None if shapes else size)
        return Product(m, k, n, itemsize), ((m, k), (k, n))
    if size is not None or not shapes:
        raise InvalidArgumentError(
            f"a program other than matmul needs the shape of each argument, as {argument('shapes')}"
        )
    sides = [side for shape in shapes for side in shape]
    if any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in sides):
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
    # Its axes may run within and across slices.
    flat = dataclasses.replace(machine, num_slices=1)
    return layout_of(product, flat, mesh, specs, out)


def _nothing(choice: Choice, machine: Machine, shapes: tuple[tuple[int, ...], ...]) -> str:
    sizes = " and ".join("x".join(map(str, shape)) for shape in shapes)
    if not choice.considered:
        return (
            f"no mesh of {counted(machine.devices * machine.num_slices, 'device')} has specs that "
            f"divide {sizes}; use sizes with more factors (blocks must be equal: nothing is padded)"
        )
    some = f"none of {choice.considered} layouts" if choice.considered > 1 else "the only layout"
    fits = "fits" if choice.considered > 1 else "does not fit"
    return (
        f"{some} of {sizes} {fits}: the blocks alone need more than "
        f"the {(machine.memory_bytes or 0) / 2**30:.2f} GiB of a device; use more devices"
    )
