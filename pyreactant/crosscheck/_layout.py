"""Programs by name, and the layout that a request means."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._errors import InvalidArgumentError, ShardingError
from .._mesh import Mesh
from .._program import Program
from .._sharding import Axes, NamedSharding

if TYPE_CHECKING:
    from ..programs import Case, Layout

Spec = tuple[Axes, ...]


def find(program: str | Program) -> "Case":
    """What a program needs to be checked.

    Raises:
        InvalidArgumentError: There is no program of that name.
    """
    from ..programs import Case, find_case

    return Case.of(program) if isinstance(program, Program) else find_case(program)


def choose_layout(case: "Case", mesh: Mesh, size: int, specs: Sequence[Spec] | None) -> "Layout":
    """The layout of a program on a mesh that begins with these specs; without any its default.

    The default is that of the size which fits the mesh: another size does not choose another
    one, let alone one that cuts nothing.

    Raises:
        InvalidArgumentError: It takes no such layout, or nothing would be cut.
        ShardingError: The size is not divisible by the mesh's axes.
    """
    layouts = case.layouts(mesh, size)
    if specs is None:
        first = (*case.layouts(mesh, case.size_for(mesh))[:1], *layouts[:1])
        default = next((one for one in first if mesh.size == 1 or _cuts(one, mesh)), None)
        if default is None:
            raise InvalidArgumentError(
                f"nothing of program {case.name!r} can be cut evenly over {mesh!r} at size {size}; "
                f"use another size, such as {case.size_for(mesh)}, or another mesh"
            )
        if default not in layouts:
            _explain_uneven(case, mesh, size, default)
        return default
    wanted = [NamedSharding(mesh, spec) for spec in specs]
    for layout in layouts:
        if len(wanted) <= len(layout.in_specs) and all(
            _same(sharding, NamedSharding(mesh, spec))
            for sharding, spec in zip(wanted, layout.in_specs, strict=False)
        ):
            return layout
    takes = "; or ".join(dict.fromkeys(" and ".join(map(spec_text, x.in_specs)) for x in layouts))
    got = " and ".join(map(spec_text, specs))
    raise InvalidArgumentError(
        f"program {case.name!r} takes at size {size} on {mesh!r} inputs cut {takes}; got {got}"
    )


def _cuts(layout: "Layout", mesh: Mesh) -> bool:
    """Whether any array is cut at all."""
    specs = (*layout.in_specs, *layout.out_specs)
    return any(cut > 1 for spec in specs for cut in NamedSharding(mesh, spec).cuts(len(spec)))


def _explain_uneven(case: "Case", mesh: Mesh, size: int, layout: "Layout") -> None:
    dtype = case.dtypes[0]
    shapes = [one.shape for one in case.inputs(size, dtype)]
    shapes += [one.shape for one in (case.outputs(size, dtype) if case.outputs else ())]
    for shape, spec in zip(shapes, (*layout.in_specs, *layout.out_specs), strict=False):
        try:
            NamedSharding(mesh, spec).shard_shape(shape)
        except ShardingError as error:
            raise ShardingError(f"program {case.name!r} at size {size}: {error}") from None
    raise InvalidArgumentError(f"program {case.name!r} takes no layout on {mesh!r} at size {size}")


def spec_text(spec: Sequence[Any]) -> str:
    """A partition spec as the command line takes it: "x,None", "x+y,None"; "-" for a scalar."""
    entries = ["+".join(e) if isinstance(e, (tuple, list)) else str(e) for e in spec]
    return ",".join(entries) or "-"


def _same(one: NamedSharding, two: NamedSharding) -> bool:
    ndim = max(len(one.spec), len(two.spec))
    return one.axes(ndim) == two.axes(ndim)
