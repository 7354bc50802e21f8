"""diagnose: every check in its order, with the runtimes' child processes beside them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from .._errors import InvalidArgumentError
from ..process_group._metadata import tpu_chips
from . import _deep, _julia, _runtimes
from ._check import Check, Diagnosis, Found
from ._children import Answer, Child
from ._machine import Machine
from ._runtimes import TITLES
from ._table import AFTER, BACKENDS, BEFORE, Row, check

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
    together = not tpu_chips(str(machine.file("/sys/bus/pci/devices")))
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
            product = partial(_deep.product, backend=name, processes=processes, seconds=5 * timeout)
            works = "platform" in answer.said
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
