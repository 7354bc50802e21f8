"""What the compiler says of a layout."""

from collections.abc import Mapping
from typing import Any

from .._array import Aval
from .._dtypes import as_dtype
from .._errors import PyReactantError, RequirementError
from .._mesh import Mesh
from .._program import Program
from .._sharding import NamedSharding
from ._hlo import Collective
from ._plan_layout import Layout
from ._plan_links import loads_of
from ._plan_machine import Machine
from ._plan_report import Candidate
from ._preflight import preflight
from ._preflight_report import Preflight


def compiled(
    layout: Layout,
    machine: Machine,
    program: Program | str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    precision: str | None,
    *,
    cache: bool,
    timeout: float,
    reference: bool = False,
) -> Candidate:
    """Compile a layout for its slice, in a child process, and say what that told.

    Raises:
        RequirementError: There is no compiler; every other error makes a candidate without a time.
    """
    assert machine.topology is not None
    common: dict[str, Any] = {
        "topology": machine.topology,
        "precision": precision,
        "cache": cache,
        "timeout": timeout,
        "alternatives": False,
    }
    try:
        if program == "matmul":
            (m, k), (_, n) = shapes
            report = preflight(
                size=(m, k, n),
                dtype=dtype,
                mesh=layout.mesh,
                spec=layout.specs[0],
                y_spec=layout.specs[1],
                out_spec=layout.out_spec,
                **common,
            )
        else:
            arguments = [
                Aval(shape, as_dtype(dtype), NamedSharding(layout.mesh, spec))
                for shape, spec in zip(shapes, layout.specs, strict=True)
            ]
            report = preflight(program, *arguments, **common)
    except RequirementError:
        raise
    except PyReactantError as error:
        return Candidate(layout=layout, trouble=str(error), fits=False, reference=reference)
    return _candidate(layout, machine, report, reference)


def _candidate(layout: Layout, machine: Machine, report: Preflight, reference: bool) -> Candidate:
    memory = report.bytes_per_device
    if not report.fits or memory is None or report.roofline is None:
        return Candidate(
            layout=layout,
            fits=False,
            trouble=report.refusal.partition("\n")[0],
            bytes_per_device=None if memory is None else memory.total,
            reference=reference,
        )
    links = link_seconds(report.collectives, layout.mesh, machine)
    return Candidate(
        layout=layout,
        seconds=max(report.seconds or 0.0, report.roofline.seconds, links),
        xla_seconds=report.seconds,
        link_seconds=links,
        sent_bytes=float(sum(c.wire_bytes * (c.times or 1) for c in report.collectives)),
        bytes_per_device=memory.total,
        reference=reference,
    )


def link_seconds(collectives: tuple[Collective, ...], mesh: Mesh, machine: Machine) -> float:
    """Until the busiest link of the slice has carried what a compiled program sends.

    What goes along several axes, or along axes that are not known, is shared out evenly to them.
    """
    assert machine.topology is not None
    amounts: dict[str, float] = dict.fromkeys(mesh.axis_names, 0.0)
    for one in collectives:
        if not one.across_slices:
            axes = one.axes or mesh.axis_names
            for axis in axes:
                amounts[axis] += one.wire_bytes * (one.times or 1) / len(axes)
    if not any(amounts.values()):
        return 0.0
    return loads_of(machine.topology, mesh).seconds(_ordered(amounts, mesh), machine.link_bandwidth)


def _ordered(amounts: Mapping[str, float], mesh: Mesh) -> list[float]:
    return [amounts[axis] for axis in mesh.axis_names]
