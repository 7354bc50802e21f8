"""What a shell offers for a value that is being typed: programs, slices, jobs and the like.

A shell asks at each press of its key, so nothing here imports NumPy or JAX.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..arrays.runtimes.known import BACKENDS, PLATFORMS

MOST = 50
"""Values that are offered at once."""

PROGRAMS = (
    "matmul matmul_transposed gram matvec batched_matmul row_sum full_sum softmax layer_norm "
    "attention heat fft fft2 transpose cumsum sort gather perceptron perceptron_gradient sgd_step "
    "random_fill"
)
"""Names of the built-in programs, whose modules need NumPy."""

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128 bfloat16 float8_e4m3fn float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz"
)
"""Element types, whose module needs NumPy."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A value, in the form that typer asks for."""

    value: str
    help: str | None = None
    type: str = "plain"


def _slices() -> Iterable[str]:
    from ..base.slices.topology import topologies

    return (slice_.name for slice_ in topologies())


def _places() -> Iterable[str]:
    from ..runs.targets import KINDS

    return KINDS


def _jobs() -> Iterable[str]:
    from ..runs.store import names

    return reversed(names())


def _preferences() -> Iterable[str]:
    from ..julia.preferences import NAMES

    return NAMES


_VALUES: dict[str, Callable[[], Iterable[str]]] = {
    "DTYPE": DTYPES.split,
    "ID": _jobs,
    "METHOD": lambda: ("gcloud", "ssh"),
    "PLACE": _places,
    "PLATFORM": lambda: PLATFORMS,
    "PRECISION": lambda: ("default", "high", "highest"),
    "PREFERENCE": _preferences,
    "PROGRAM": PROGRAMS.split,
    "PROVISIONING": lambda: ("on-demand", "spot", "reserved"),
    "RUNTIME": lambda: BACKENDS,
    "RUNTIMES": lambda: ("auto", *BACKENDS, ",".join(BACKENDS)),
    "SLICE": _slices,
    "TRANSPORT": lambda: ("rest", "grpc"),
}
"""What is offered for each word that help shows for a value."""


def offer(parameter: Any) -> None:
    """Let a shell offer the values of an option or argument, by the word that help shows for it."""
    word = re.fullmatch(r"\[?([A-Z]+)\]?[ .]*\]?", parameter.metavar or "")
    if word is None or (values := _VALUES.get(word[1])) is None:
        return

    def shell_complete(ctx: Any, incomplete: str) -> list[Offer]:
        with contextlib.suppress(Exception):  # a shell shows no messages
            matching = (value for value in values() if value.startswith(incomplete))
            return [Offer(value) for value, _ in zip(matching, range(MOST), strict=False)]
        return []

    parameter.shell_complete = shell_complete
