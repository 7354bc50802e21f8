"""What a cross-check is asked to run on, and what can be known to be wrong before it starts."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._dtypes import as_dtype
from .._errors import InvalidArgumentError, PyReactantError, RequirementError, ShardingError
from .._matmul import default_mesh
from .._mesh import Mesh
from .._runtime import BACKENDS, PLATFORMS, usable_backends
from ._layout import choose_layout, find
from ._request import Request

if TYPE_CHECKING:
    from ..programs import Case


def choose_backends(asked: str | Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The runtimes to run, and why others are not here."""
    if asked == "auto":
        usable = [name for name in BACKENDS if name in usable_backends()]
        if not usable:
            raise RequirementError(
                f"no runtime is here; {'; '.join(_how_to_get(name) for name in BACKENDS)}"
            )
        return usable, {name: _how_to_get(name) for name in BACKENDS if name not in usable}
    names = [name.strip() for name in (asked.split(",") if isinstance(asked, str) else asked)]
    for name in names:
        if name not in BACKENDS:
            raise InvalidArgumentError(
                f"unknown backend {name!r}; known are: auto, {', '.join(BACKENDS)}"
            )
        if names.count(name) > 1:
            raise InvalidArgumentError(f"backend {name!r} is named twice")
        if name not in usable_backends():
            raise RequirementError(
                f"backend {name!r} was asked for, but is not here: {_how_to_get(name)}"
            )
    if not names:
        raise InvalidArgumentError(f"no backend is named; known are: auto, {', '.join(BACKENDS)}")
    return names, {}


def _how_to_get(name: str) -> str:
    package = BACKENDS[name][1]
    if importlib.util.find_spec(package) is None:
        what = "pyreactant[reactant]" if package == "juliacall" else package
        more = ", then: pyreactant setup" if package == "juliacall" else ""
        return f"the package {package} is not installed; python -m pip install '{what}'{more}"
    from .._julia_place import find_place

    try:
        find_place()
    except PyReactantError as error:
        return str(error)
    return "it cannot be started; pyreactant doctor says why"


def device_options(
    processes: int | None, devices_per_process: int | None, platform: str | None
) -> list[str]:
    """Options of `pyreactant run` for processes and devices."""
    platform = platform or os.environ.get("PYREACTANT_PLATFORM") or None
    if platform is not None and platform not in PLATFORMS:
        raise InvalidArgumentError(
            f"unknown platform {platform!r}; known are: {', '.join(PLATFORMS)}"
        )
    if platform is None and not _accelerators():
        platform = "cpu"
    if platform == "cpu":
        processes, devices_per_process = processes or 2, devices_per_process or 4
    options = ["--processes", str(processes or 1)]
    if devices_per_process is not None:
        options += ["--devices-per-process", str(devices_per_process)]
    return options + (["--platform", platform] if platform else [])


def _accelerators() -> bool:
    """Whether there are device files of GPUs or TPUs; no runtime is asked."""
    files = ("nvidia[0-9]*", "kfd", "accel[0-9]*", "accel/accel[0-9]*", "vfio/[0-9]*")
    return any(any(Path("/dev").glob(name)) for name in files)


def check_request(request: Request, options: Sequence[str], backends: Sequence[str]) -> None:
    """What can be known to be wrong before anything is started."""
    count = _count(options)
    mesh = request.mesh or (default_mesh(count) if count else None)
    if mesh is not None and count is not None:
        _check_size(mesh, count)
    for program in request.programs:
        case = find(program)
        if request.dtype is not None:
            _check_dtype(request, case)
        if mesh is not None:
            choose_layout(case, mesh, request.size or case.size_for(mesh), request.specs)
        if case.oracle is None and len(backends) == 1:
            raise RequirementError(
                f"program {case.name!r} has no oracle, and only {backends[0]} is to run, so there "
                "is nothing to check it against; give it oracle=, or name a second backend"
            )


def _check_size(mesh: Mesh, count: int) -> None:
    if mesh.size == count if mesh.all_devices else max(mesh.device_ids) < count:
        return
    raise ShardingError(
        f"{mesh!r} does not fit the {count} devices of a run; give another mesh, or other "
        "--processes and --devices-per-process (a mesh over some devices names them)"
    )


def _check_dtype(request: Request, case: "Case") -> None:
    dtype = as_dtype(request.dtype).name
    if dtype in case.dtypes:
        return
    takes = [find(p).name for p in request.programs if dtype in find(p).dtypes]
    others = f"; of these programs {', '.join(takes)} take it" if takes else ""
    raise InvalidArgumentError(
        f"program {case.name!r} is checked with {', '.join(case.dtypes)}, got dtype {dtype}{others}"
    )


def _count(options: Sequence[str]) -> int | None:
    """Devices of a run, where it is known before it starts."""
    said = dict(zip(options[::2], options[1::2], strict=True))
    if "--devices-per-process" not in said:
        return None
    return int(said["--processes"]) * int(said["--devices-per-process"])
