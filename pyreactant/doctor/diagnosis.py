"""diagnose: every check in its order; the runtimes start in child processes."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..arrays.runtimes.known import BACKENDS
from ..base.counted import counted
from ..base.errors import InvalidArgumentError, argument
from . import accelerators, kubernetes, software, system
from . import runtimes as _runtimes
from .check import Check, CheckResult, Diagnosis, Machine, Status, without_secrets
from .runtimes import TITLES, Answer

if TYPE_CHECKING:
    from ..runs.places.kubernetes import Kubernetes


class Row(NamedTuple):
    """A check's place in the table.

    Attributes:
        name: The name of the row.
        check: The check.
        needed_by: The runtimes that do not work without it; "any" if it is also needed when no
            particular runtime is requested.
    """

    name: str
    check: Callable[[Machine], CheckResult]
    needed_by: tuple[str, ...] = ()


_ALWAYS = ("any", *BACKENDS)
_JAX, _REACTANT = ("jax",), ("reactant",)

BEFORE_RUNTIMES = {
    "installation": (
        Row("Python", software.python, _ALWAYS),
        Row("pyreactant", software.pyreactant, _ALWAYS),
        Row("numpy", software.numpy, _ALWAYS),
    ),
    "JAX": (
        Row("jax", software.jax, _JAX),
        Row("jaxlib", software.jaxlib, _JAX),
        Row("GPU plugins", software.plugins),
        Row("libtpu", software.libtpu),
    ),
    "Reactant": (
        Row("juliacall", software.juliacall, _REACTANT),
        Row("Julia", software.julia, _REACTANT),
        Row("Julia project", software.project, _REACTANT),
        Row("Reactant", software.reactant, _REACTANT),
        Row("Reactant_jll", software.libraries),
    ),
    "accelerators": (
        Row("NVIDIA driver", accelerators.driver),
        Row("GPU users", accelerators.users),
        Row("TPU", accelerators.tpu),
    ),
}
"""The groups of the table before the runtimes."""

AFTER_RUNTIMES = {
    "settings": (
        Row("proxies", accelerators.proxies),
        Row("LD_PRELOAD", accelerators.preload),
        Row("LD_LIBRARY_PATH", accelerators.library_path),
        Row("XLA_FLAGS", accelerators.xla_flags),
        Row("LIBTPU_INIT_ARGS", accelerators.libtpu_args),
        Row("GPU memory", accelerators.gpu_memory),
        Row("hidden devices", accelerators.hidden_devices),
        Row("compile cache", system.compile_cache),
    ),
    "machine": (
        Row("host name", system.host_name),
        Row("clock", system.clock),
        Row(system.SHM, system.shared_memory),
        Row("open files", system.open_files),
        Row("disk", system.disk),
    ),
    "launch": (
        Row("who am I", system.who_am_i),
        Row("Slurm", system.slurm),
        Row("gcloud", system.gcloud),
    ),
}
"""The groups of the table after the runtimes."""


KUBERNETES = {
    "Kubernetes": (
        Row("client", kubernetes.client, _ALWAYS),
        Row("cluster", kubernetes.cluster, _ALWAYS),
        Row("JobSet", kubernetes.jobset, _ALWAYS),
        Row("rights", kubernetes.rights, _ALWAYS),
        Row("queues", kubernetes.queues),
        Row("nodes", kubernetes.nodes),
    )
}
"""The group of the cluster, if it is asked for."""


def run_check(machine: Machine, backend: str | None, group: str, row: Row) -> Check:
    """Run one check; an exception in it becomes a row too."""
    required = (backend or "any") in row.needed_by
    try:
        result = row.check(machine)
    except Exception as error:  # the doctor continues with the next check
        result = CheckResult("warn", f"could not be checked: {type(error).__name__}: {error}")
    status: Status
    if result.status == "absent":
        status = "fail" if required else "warn"
    elif result.status == "unknown":
        status = "warn" if required else "pass"
    else:
        status = result.status
    # One line each, so that a name with a line break cannot forge a row.
    text, mend = (
        " ".join(without_secrets(part, machine.environ).split())
        for part in (result.found, result.mend)
    )
    return Check(row.name, group, status, required=required, found=text, mend=mend)


GROUP = "runtimes"


def diagnose(
    backend: str | None = None,
    *,
    deep: bool = False,
    cluster: "bool | Kubernetes" = False,
    timeout: float = 60.0,
    machine: Machine | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Diagnosis:
    """Check everything that pyreactant needs on this machine; problems are rows, not exceptions.

    Each runtime starts in a child process, which is ended after `timeout` seconds: this process
    loads no runtime and takes no accelerator.

    Args:
        backend: The runtime that must work, "jax" or "reactant"; None if either will do. Reactant
            takes long to start, so it is started only if it is named, or with `deep`.
        deep: Whether to multiply two sharded matrices on every runtime that starts, and check the
            product.
        cluster: Whether to check the cluster with Kubernetes of the current context, too; or a
            target, whether the nodes for such a job are there.
        timeout: Seconds for each runtime to start; a product has five times as long.
        machine: The machine to check; None for this one.
        tell: Called with a description of each step.

    Raises:
        InvalidArgumentError: There is no such runtime, or `timeout` is not positive.
    """
    if backend not in (None, *BACKENDS):
        known = ", ".join(BACKENDS)
        raise InvalidArgumentError(f"unknown backend {backend!r}; known are: {known}")
    if not timeout > 0:
        raise InvalidArgumentError(f"{argument('timeout')} must be positive seconds, got {timeout}")
    begin, machine = time.monotonic(), machine or Machine()
    tell("checking this machine")
    before = _run_groups(machine, backend, BEFORE_RUNTIMES)
    runtimes = list(_runtime_rows(machine, backend, deep=deep, timeout=timeout, tell=tell))
    after = _run_groups(machine, backend, AFTER_RUNTIMES)
    if cluster:
        tell("asking the cluster")
        after += _run_groups(machine, backend, KUBERNETES)
    if cluster and not isinstance(cluster, bool):
        after.append(
            run_check(machine, backend, "Kubernetes", Row("job", kubernetes.fits(cluster)))
        )
    seconds = time.monotonic() - begin
    return Diagnosis((*before, *runtimes, *after), backend, deep, seconds)


def _run_groups(
    machine: Machine, backend: str | None, groups: Mapping[str, tuple[Row, ...]]
) -> list[Check]:
    return [
        run_check(machine, backend, group, row) for group, rows in groups.items() for row in rows
    ]


def _runtime_rows(
    machine: Machine,
    backend: str | None,
    *,
    deep: bool,
    timeout: float,
    tell: Callable[[str], None],
) -> Iterator[Check]:
    run = partial(run_check, machine, backend, GROUP)
    answers: dict[str, Answer] = {}
    rows: dict[str, list[Check]] = {}

    def devices(machine: Machine, name: str) -> CheckResult:
        if reason := _not_started(machine, backend, name, deep=deep):
            return reason
        tell(f"waiting up to {timeout:g} s for {TITLES[name]} to start")
        answers[name] = _runtimes.start(machine, name, timeout)
        return _runtimes.devices(machine, name, answers[name])

    for name in BACKENDS:
        check = run(Row(f"{TITLES[name]} devices", partial(devices, name=name), (name,)))
        if name in answers:
            rows[name] = [check]
        yield check
    reactant = answers.get("reactant")
    loaded = None if reactant is None else reactant.content.get("xla_runtime")
    yield run(Row("XLA runtime", partial(software.xla_runtime, loaded=loaded)))
    for name, answer in answers.items() if deep else ():
        for processes in (1, 2):
            tell(f"multiplying on {TITLES[name]} with {counted(processes, 'process')}")
            title = f"{TITLES[name]}, 2 processes" if processes > 1 else f"{TITLES[name]} product"
            product = partial(
                _runtimes.product, backend=name, processes=processes, seconds=5 * timeout
            )
            works = "platform" in answer.content
            rows[name].append(run(Row(title, product if works else _not_computed, (name,))))
            yield rows[name][-1]
    usable = partial(_runtimes.usable, rows=rows)
    yield run(Row("usable runtime", usable, ("any",)))


def _not_computed(machine: Machine) -> CheckResult:
    return CheckResult("unknown", "not computed: the runtime did not start")


def _not_started(
    machine: Machine, backend: str | None, name: str, *, deep: bool
) -> CheckResult | None:
    """Why a runtime is not started; None if it is to start."""
    if backend is not None and backend != name:
        return CheckResult("pass", f"not started: only {TITLES[backend]} is requested")
    _, package = BACKENDS[name]
    if machine.version(package) is None:
        return CheckResult("unknown", f"not started: {package} is not installed")
    if name == "reactant" and software.place_of(machine) is None:
        return CheckResult("unknown", "not started: no Julia project is set up")
    if name == "reactant" and backend is None and not deep:
        return CheckResult(
            "pass", "not started because it takes long; --backend reactant or --deep starts it"
        )
    return None
