"""The request of a cross-check: a file that every process of every runtime reads."""

import functools
import importlib.util
import math
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .._version import __version__
from ..arrays.domain import Domain
from ..arrays.dtypes import as_dtype
from ..arrays.inputs import from_plain
from ..arrays.lowering.reactant import tuples
from ..arrays.matmul import default_mesh
from ..arrays.mesh import Mesh
from ..arrays.program import Program
from ..arrays.runtimes.known import BACKENDS, check_platform
from ..arrays.sharding import Axes, NamedSharding, as_spec
from ..arrays.text import specs_text
from ..base.counted import counted
from ..base.duration import seconds_word
from ..base.errors import (
    DeadlineError,
    FileError,
    InvalidArgumentError,
    PyReactantError,
    RequirementError,
    ShardingError,
    argument,
)
from ..base.facts import has_accelerator
from ..base.files import plain_json, read_json
from ..base.outputs import marked, write_output
from ..base.steps import step
from ..julia.place import find_place
from .bounds.typical import LEAST_SIGMAS, SIGMAS
from .inputs import SETS, input_sets
from .product.on_devices import check_place
from .programs import Case, Layout, find_case
from .programs.user import OracleError
from .records.plain import Plain
from .records.records import SCHEMA, check_version
from .variants import ALL, EXTENTS, ONE, SOME, cuts

Spec = tuple[Axes, ...]


def choose_layout(case: Case, mesh: Mesh, size: int, specs: Sequence[Spec] | None) -> Layout:
    """The program's layout whose first specs are `specs`, or its default layout without specs.

    The default layout is the first that shards an array at a size which the mesh divides. Other
    sizes use the same one, so that a size never silently selects a layout without sharding.

    Raises:
        InvalidArgumentError: The program has no such layout, or nothing would be sharded.
        ShardingError: The mesh's axes do not divide the size.
    """
    layouts = case.layouts(mesh, size)
    if specs is None:
        usual = (*case.layouts(mesh, case.size_for(mesh)), *layouts)
        shapes = case.shapes(size)
        default = next((x for x in usual if mesh.size == 1 or cuts(x, shapes, mesh)), None)
        if default is None:
            raise InvalidArgumentError(
                f"no array of program {case.name!r} can be sharded over {mesh!r} at size {size}; "
                "use one device"
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
    takes = "; or ".join(dict.fromkeys(specs_text(x.in_specs, " and ") for x in layouts))
    got = specs_text(specs, " and ")
    raise InvalidArgumentError(
        f"program {case.name!r} at size {size} on {mesh!r} takes inputs sharded {takes}; got {got}"
    )


def _explain_uneven(case: Case, mesh: Mesh, size: int, layout: Layout) -> None:
    specs = (*layout.in_specs, *layout.out_specs)
    for shape, spec in zip(case.shapes(size), specs, strict=False):
        try:
            NamedSharding(mesh, spec).shard_shape(shape)
        except ShardingError as error:
            raise ShardingError(f"program {case.name!r} at size {size}: {error}") from None
    raise InvalidArgumentError(
        f"program {case.name!r} has no layout on {mesh!r} at size {size}; use another size, such "
        f"as {case.size_for(mesh)}, or another mesh"
    )


def _same(one: NamedSharding, two: NamedSharding) -> bool:
    ndim = max(len(one.spec), len(two.spec))
    return one.axes(ndim) == two.axes(ndim)


@dataclass(frozen=True, slots=True)
class CheckRequest(Plain):
    """What to run, equally on every runtime.

    Attributes:
        programs: Names of built-in programs, "package.module:object", or `Program` objects.
        size: The "n" of the programs' shapes; None means each program's default.
        dtype: Element type; None means each program's first.
        seed: Seed of the inputs, 0 or more.
        mesh: Mesh of the devices; None means all devices, as square as their number allows.
        specs: Partition specs of the first inputs, which select one of a program's layouts;
            None selects the first layout that shards an array.
        repeat: Number of timed calls, 1 or more.
        sets: Sets of inputs, some of `SETS`; a program gets those that it defines.
        typical: Standard deviations of rounding that a result may be off; 0 for no such limit.
        extent: Whether each program runs in one layout and element type, in some, or in all: one
            of `EXTENTS`.
        check: Where large products are checked: one of `product.on_devices.PLACES`; None chooses by
            platform.
        id: Random identifier, which tells this cross-check's files from those of others.
    """

    programs: tuple[str | Program, ...]
    size: int | None = None
    dtype: str | None = None
    seed: int = 0
    mesh: Mesh | None = None
    specs: tuple[Spec, ...] | None = None
    repeat: int = 5
    sets: tuple[str, ...] = SETS
    extent: str = ONE
    typical: float = SIGMAS
    check: str | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        if not self.programs:
            raise InvalidArgumentError(
                "nothing to cross-check: name programs, or give --all for all built-in ones "
                "(pyreactant crosscheck --list prints them)"
            )
        names = self.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidArgumentError(f"name each program only once, got {', '.join(twice)} twice")
        for name, least in (("size", 1), ("seed", 0), ("repeat", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidArgumentError(f"{argument(name)} must be {least} or more, got {value}")
        if self.typical and not LEAST_SIGMAS <= self.typical < math.inf:
            raise InvalidArgumentError(
                f"{argument('typical')} must be 0, for no typical limit, or {LEAST_SIGMAS:g} or "
                f"more standard deviations of rounding, got {self.typical:g}"
            )
        check_place(self.check)
        if self.dtype is not None:
            as_dtype(self.dtype)
        for what, given, known in (("inputs", self.sets, SETS), ("extent", [self.extent], EXTENTS)):
            for name in given:
                if name not in known:
                    raise InvalidArgumentError(
                        f"unknown {what} {name!r}; known are: {', '.join(known)}"
                    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the programs in reports."""
        return tuple(p.name if isinstance(p, Program) else p for p in self.programs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        head = {"schema": SCHEMA, "pyreactant": __version__}
        return marked("crosscheck request", head | Plain.to_dict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CheckRequest":
        """The request that `to_dict` described."""
        programs = [p if isinstance(p, str) else program_of(p) for p in data["programs"]]
        specs = data["specs"] and tuple(map(as_spec, data["specs"]))
        return super(CheckRequest, cls).from_dict({**data, "programs": programs, "specs": specs})


QUICK, USUAL, THOROUGH = "quick", "usual", "thorough"


def coverage(name: str, every: bool) -> tuple[tuple[str, ...], str]:
    """The sets of inputs and the extent of a request.

    Args:
        name: "quick": ordinary inputs in one layout and type; "usual"; "thorough": all layouts and
            types.
        every: Whether all built-in programs run, which is a small matrix of layouts and types
            unless `name` says otherwise.

    Raises:
        InvalidArgumentError: There is no such coverage.
    """
    known = {
        QUICK: (SETS[:1], ONE),
        USUAL: (SETS, SOME if every else ONE),
        THOROUGH: (SETS, ALL),
    }
    if name not in known:
        raise InvalidArgumentError(f"unknown coverage {name!r}; known are: {', '.join(known)}")
    return known[name]


def write_request(request: CheckRequest, path: Path, *, overwrite: bool = False) -> None:
    """Write the request file.

    Raises:
        FileError: The file cannot be written, or must not be replaced.
    """
    write_output(plain_json(request.to_dict()), path, overwrite=overwrite)


def read_request(path: Path) -> CheckRequest:
    """Read a request file.

    Raises:
        FileError: The file is missing, damaged or of another version.
    """
    data = read_json(path, "a request of pyreactant crosscheck")
    check_version(data, path)
    try:
        return CheckRequest.from_dict(data)
    except PyReactantError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path}: not a request of pyreactant crosscheck ({error!r})") from None


def program_of(data: Mapping[str, Any]) -> Program:
    """The program that `asdict` described, as JSON holds it."""
    known = {f.name for f in fields(Program)}
    given = {key: tuples(value) for key, value in data.items() if key in known}
    given["inputs"] = from_plain(given.get("inputs", ()))
    if given.get("domain") is not None:
        given["domain"] = Domain(**{key: tuples(value) for key, value in given["domain"].items()})
    return Program(**given)


def choose_backends(requested: str | Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The runtimes to run, and how to install those that are not available."""
    absent = {name: how for name in BACKENDS if (how := how_to_get(name))}
    if requested == "auto":
        if len(absent) == len(BACKENDS):
            raise RequirementError(f"no runtime is available: {'; '.join(absent.values())}")
        return [name for name in BACKENDS if name not in absent], absent
    parts = requested.split(",") if isinstance(requested, str) else requested
    names = [name.strip() for name in parts]
    for name in names:
        if name == "auto":
            raise InvalidArgumentError(
                "auto stands for all available runtimes, and cannot be among others, got "
                f"{','.join(names)}; write auto alone, or name each runtime"
            )
        if name not in BACKENDS:
            raise InvalidArgumentError(
                f"unknown backend {name!r}; known are: auto, {', '.join(BACKENDS)}"
            )
        if names.count(name) > 1:
            raise InvalidArgumentError(f"backend {name!r} is named twice; name it once")
        if name in absent:
            raise RequirementError(
                f"backend {name!r} was requested but is not available: {absent[name]}"
            )
    if not names:
        raise InvalidArgumentError(f"no backend is named; known are: auto, {', '.join(BACKENDS)}")
    return names, {}


def how_to_get(name: str) -> str:
    """How to install a runtime; "" if it is installed and set up. It is not started."""
    package = BACKENDS[name][1]
    julia = package == "juliacall"
    if importlib.util.find_spec(package) is None:
        what = "pyreactant[reactant]" if julia else package
        more = ", then: pyreactant setup" if julia else ""
        return f"the package {package} is not installed; run python -m pip install '{what}'{more}"
    if julia:
        try:
            find_place()
        except PyReactantError as error:
            return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class RunDevices:
    """Processes and devices of each run; None leaves the choice to the run."""

    processes: int
    each: int | None
    platform: str | None

    @classmethod
    def of(
        cls, processes: int | None, devices_per_process: int | None, platform: str | None
    ) -> "RunDevices":
        """The requested ones, or those that are usual on the platform here."""
        for name, count in (("processes", processes), ("devices_per_process", devices_per_process)):
            if count is not None and count < 1:
                raise InvalidArgumentError(f"{argument(name)} must be 1 or more, got {count}")
        platform = platform or os.environ.get("PYREACTANT_PLATFORM") or None
        if platform is not None:
            check_platform(platform)
        if platform is None and not has_accelerator():
            platform = "cpu"
        if platform == "cpu":
            processes, devices_per_process = processes or 2, devices_per_process or 4
        return cls(processes or 1, devices_per_process, platform)

    @property
    def count(self) -> int | None:
        """Number of devices of a run; None if it is unknown before the start."""
        return None if self.each is None else self.processes * self.each

    @property
    def options(self) -> list[str]:
        """Options of `pyreactant run`."""
        options = ["--processes", str(self.processes)]
        if self.each is not None:
            options += ["--devices-per-process", str(self.each)]
        return options + (["--platform", self.platform] if self.platform else [])


def check_request(
    request: CheckRequest,
    count: int | None,
    backends: Sequence[str],
    timeout: float | None = None,
) -> None:
    """Check what can be checked of the request before anything starts.

    Args:
        request: The request.
        count: Number of devices of a run; None if it is unknown.
        backends: The runtimes.
        timeout: Time limit in seconds of the calls of each oracle.
    """
    mesh = request.mesh or (default_mesh(count) if count else None)
    if mesh is not None and count is not None:
        _check_size(mesh, count)
    broken = []
    for program in request.programs:
        case = find_case(program)
        if request.dtype is not None:
            _check_dtype(request, case)
        if mesh is not None:
            try:
                _within(timeout, case.name, functools.partial(_check_layout, request, case, mesh))
            except OracleError as error:  # each process finds it, too; the other programs run
                broken.append(error)
        if case.oracle is None and len(backends) == 1:
            raise RequirementError(
                f"program {case.name!r} has no oracle, and only {backends[0]} is to run, so its "
                "values cannot be checked; give it oracle=, or name a second backend"
            )
    if len(broken) == len(request.programs):
        raise broken[0]


def _within(timeout: float | None, name: str, check: Callable[[], None]) -> None:
    """Make a check that calls an oracle, which may take long.

    Raises:
        DeadlineError: It takes longer than the limit. Its thread goes on until this process ends.
    """
    if timeout is None:
        check()
        return
    ended: Future[None] = Future()

    def work() -> None:
        try:
            check()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=work, name="pyreactant oracle", daemon=True).start()
    if not wait([ended], timeout).done:
        raise DeadlineError(
            f"Program {name!r}: its oracle is called before the runs, and must return within "
            f"{argument('timeout')} of {seconds_word(timeout)} s, got no result; give a smaller "
            f"{argument('size')}, or a longer {argument('timeout')}"
        )
    ended.result()


def _check_layout(request: CheckRequest, case: Case, mesh: Mesh) -> None:
    size = request.size or case.size_for(mesh)
    choose_layout(case, mesh, size, request.specs)
    if case.oracle is not None:  # a wrong statement about a program is an error here
        step(f"trying what is stated of {case.name}")
        input_sets(case, size, request.dtype or case.dtypes[0])


def _check_size(mesh: Mesh, count: int) -> None:
    if mesh.size == count if mesh.all_devices else max(mesh.device_ids) < count:
        return
    raise ShardingError(
        f"{mesh!r} does not fit the {counted(count, 'device')} of a run; give another mesh, "
        f"or other {argument('processes')} and {argument('devices_per_process')} (a mesh "
        "over some devices names them)"
    )


def _check_dtype(request: CheckRequest, case: Case) -> None:
    dtype = as_dtype(request.dtype).name
    if dtype in case.dtypes:
        return
    takes = [find_case(p).name for p in request.programs if dtype in find_case(p).dtypes]
    others = f"; programs that accept {dtype}: {', '.join(takes)}" if takes else ""
    accepted = ", ".join(case.dtypes)
    raise InvalidArgumentError(
        f"program {case.name!r} accepts the dtypes {accepted}, got {dtype}{others}"
    )
