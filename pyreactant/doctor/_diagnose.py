"""diagnose: every check in its order, with the runtimes' child processes beside them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from .._errors import InvalidArgumentError
from .._system.hardware import tpu_chips
from . import _accelerators, _julia, _launch, _python, _runtimes, _settings, _system
from ._check import Check, Diagnosis, Found, Status, without_secrets
from ._children import Answer, Child
from ._machine import Machine
from ._runtimes import TITLES

BACKENDS = ("jax", "reactant")


class Row(NamedTuple):
    """A check's place in the table.

    Attributes:
        name: Of the row.
        look: The check.
        needed_by: The runtimes that do not work without it; "any" where it is asked for no
            particular one.
    """

    name: str
    look: Callable[[Machine], Found]
    needed_by: tuple[str, ...] = ()


_ALWAYS = ("any", *BACKENDS)
_JAX, _REACTANT = ("jax",), ("reactant",)

BEFORE = {
    "installation": (
        Row("Python", _python.python, _ALWAYS),
        Row("pyreactant", _python.pyreactant, _ALWAYS),
        Row("numpy", _python.numpy, _ALWAYS),
    ),
    "JAX": (
        Row("jax", _python.jax, _JAX),
        Row("jaxlib", _python.jaxlib, _JAX),
        Row("GPU plugins", _python.plugins),
        Row("libtpu", _python.libtpu),
    ),
    "Reactant": (
        Row("juliacall", _julia.juliacall, _REACTANT),
        Row("Julia", _julia.julia, _REACTANT),
        Row("Julia project", _julia.project, _REACTANT),
        Row("Reactant", _julia.reactant, _REACTANT),
        Row("Reactant_jll", _julia.libraries),
    ),
    "accelerators": (
        Row("NVIDIA driver", _accelerators.driver),
        Row("GPU users", _accelerators.users),
        Row("TPU", _accelerators.tpu),
    ),
}
"""The groups above that of the runtimes."""

AFTER = {
    "settings": (
        Row("proxies", _settings.proxies),
        Row("LD_PRELOAD", _settings.preload),
        Row("LD_LIBRARY_PATH", _settings.library_path),
        Row("XLA_FLAGS", _settings.xla_flags),
        Row("LIBTPU_INIT_ARGS", _settings.libtpu_args),
        Row("GPU memory", _settings.gpu_memory),
        Row("hidden devices", _settings.hidden),
    ),
    "machine": (
        Row("host name", _system.host_name),
        Row("clock", _system.clock),
        Row(_system.SHM, _system.shared_memory),
        Row("open files", _system.open_files),
        Row("disk", _system.disk),
    ),
    "launch": (
        Row("who am I", _launch.who_am_i),
        Row("Slurm", _launch.slurm),
        Row("gcloud", _launch.gcloud),
    ),
}
"""The groups below it."""


def check(machine: Machine, backend: str | None, group: str, row: Row) -> Check:
    """Look, whatever happens: a check that fails itself is a row, too."""
    required = (backend or "any") in row.needed_by
    try:
        found = row.look(machine)
    except Exception as error:  # the doctor goes on, and says so
        found = Found("warn", f"could not be checked: {type(error).__name__}: {error}")
    status: Status
    if found.status == "absent":
        status = "fail" if required else "warn"
    elif found.status == "unknown":
        status = "warn" if required else "pass"
    else:
        status = found.status
    # One line each, so that a name with a line break cannot forge a row.
    text, mend = (
        " ".join(without_secrets(part, machine.environ).split())
        for part in (found.found, found.mend)
    )
    return Check(row.name, group, status, required, text, mend)


GROUP = "runtimes"
_PACKAGE = {"jax": "jax", "reactant": "juliacall"}


def diagnose(
    backend: str | None = None,
    *,
    deep: bool = False,
    timeout: float = 60.0,
    machine: Machine | None = None,
    tell: Callable[[str], None] = lambda what: None,
) -> Diagnosis:
    """Look at all that pyreactant needs here; raises nothing for what it finds.

    Each runtime is started in a child process, which is ended after `timeout` seconds: this
    process loads none, and takes no accelerator.

    Args:
        backend: "jax" or "reactant", which then must work; None where either will do. Reactant,
            which takes long to start, is started only where it is named, or with `deep`.
        deep: Multiply two sharded matrices on every runtime that starts, and check the product.
        timeout: Seconds for each runtime to start; a product has five times as long.
        machine: What to look at; None is this machine.
        tell: Gets what is waited for.

    Raises:
        InvalidArgumentError: There is no such runtime, or `timeout` is not positive.
    """
    if backend not in (None, *BACKENDS):
        known = ", ".join(BACKENDS)
        raise InvalidArgumentError(f"unknown backend {backend!r}; known are: {known}")
    if not timeout > 0:
        raise InvalidArgumentError(f"timeout must be positive seconds, got {timeout}")
    begin, machine = time.monotonic(), machine or Machine()
    try:
        names = list(_to_start(machine, backend, deep))
    except Exception:  # the rows of packages and projects say what is broken
        names = []
    # A TPU belongs to one process at a time, so there the runtimes start one after the other.
    together = not tpu_chips(machine.root)
    with ExitStack() as stack:
        started: dict[str, Child] = {}
        for name in names if together else ():
            started[name] = stack.enter_context(_runtimes.start(machine, name, timeout))
        tell("looking around")
        before, after = (_quick(machine, backend, groups) for groups in (BEFORE, AFTER))
        answers: dict[str, Answer] = {}
        for name in names:
            tell(f"waiting for {TITLES[name]} to start, {timeout:g} s at most")
            with started.get(name) or _runtimes.start(machine, name, timeout) as child:
                answers[name] = child.answer()
    runtimes = list(_runtime_rows(machine, backend, answers, deep, timeout, tell))
    seconds = time.monotonic() - begin
    return Diagnosis((*before, *runtimes, *after), backend, deep, seconds)


def _to_start(machine: Machine, backend: str | None, deep: bool) -> Iterator[str]:
    if backend != "reactant" and machine.version("jax") is not None:
        yield "jax"
    asked = backend == "reactant" or (deep and backend is None)
    if asked and machine.version("juliacall") is not None and _julia.place_of(machine) is not None:
        yield "reactant"


def _quick(
    machine: Machine, backend: str | None, groups: Mapping[str, tuple[Row, ...]]
) -> list[Check]:
    return [check(machine, backend, group, row) for group, rows in groups.items() for row in rows]


def _runtime_rows(
    machine: Machine,
    backend: str | None,
    answers: Mapping[str, Answer],
    deep: bool,
    timeout: float,
    tell: Callable[[str], None],
) -> Iterator[Check]:
    look = partial(check, machine, backend, GROUP)
    rows: dict[str, list[Check]] = {name: [] for name in answers}
    for name in BACKENDS:
        answer = answers.get(name)
        if answer is None:
            why = partial(_not_started, backend=backend, name=name)
            yield look(Row(f"{TITLES[name]} devices", why, (name,)))
        else:
            devices = partial(_runtimes.devices, backend=name, answer=answer)
            rows[name].append(look(Row(f"{TITLES[name]} devices", devices, (name,))))
            yield rows[name][0]
    as_loaded = partial(_runtimes.xla_runtime, answer=answers.get("reactant"))
    yield look(Row("XLA runtime", as_loaded))
    for name, answer in answers.items() if deep else ():
        for processes in (1, 2):
            tell(f"multiplying on {TITLES[name]} with {processes} processes")
            title = f"{TITLES[name]}, 2 processes" if processes > 1 else f"{TITLES[name]} product"
            product = partial(
                _runtimes.product, backend=name, processes=processes, seconds=5 * timeout
            )
            works = "platform" in answer.content
            rows[name].append(look(Row(title, product if works else _not_computed, (name,))))
            yield rows[name][-1]
    usable = partial(_runtimes.usable, rows=rows)
    yield look(Row("usable runtime", usable, ("any",)))


def _not_computed(machine: Machine) -> Found:
    return Found("unknown", "not computed: the runtime did not start")


def _not_started(machine: Machine, backend: str | None, name: str) -> Found:
    if backend is not None and backend != name:
        return Found("pass", f"not started: {TITLES[backend]} was asked for")
    if machine.version(_PACKAGE[name]) is None:
        return Found("unknown", f"not started: {_PACKAGE[name]} is not installed")
    if name == "reactant" and _julia.place_of(machine) is None:
        return Found("unknown", "not started: no Julia project is settled")
    return Found("pass", "not started, since it takes long; --backend reactant or --deep does it")
