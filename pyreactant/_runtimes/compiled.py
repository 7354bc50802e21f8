"""A compiled program, as the user calls it."""

from collections.abc import Sequence
from typing import Any

from .._core import progress
from .._core.array import ShardedArray
from .._core.backend import AbstractBackend, Executable
from .._core.program import Program
from .._errors import InvalidArgumentError


class Compiled:
    """A compiled program; call it with arrays like those it was compiled for."""

    __slots__ = ("_avals", "_backend", "_executable", "program")

    def __init__(
        self,
        program: Program,
        args: Sequence[ShardedArray],
        executable: Executable,
        backend: AbstractBackend,
    ) -> None:
        self.program = program
        self._avals = tuple(a.aval for a in args)
        self._executable = executable
        self._backend = backend

    def __call__(self, *args: ShardedArray) -> Any:
        """Run the program: a ShardedArray, or a tuple of them. Collective.

        Raises:
            InvalidArgumentError: Number, shape, dtype or sharding of the arguments differ
                from those it was compiled for.
        """
        avals, executable, backend = self._avals, self._executable, self._backend
        if len(args) != len(avals):
            raise InvalidArgumentError(
                f"program {self.program.name!r} takes {len(avals)} arrays, got {len(args)}"
            )
        for position, aval in enumerate(avals):
            arg = args[position]
            # Identity first: comparing shardings takes longer than starting a small program.
            if type(arg) is not ShardedArray or (arg.aval is not aval and arg.aval != aval):
                raise InvalidArgumentError(self._mismatch(position, arg))
        # `with progress.collective()` would take longer than starting a small program.
        progress.collectives += 1
        progress.waiting += 1
        try:
            out = executable.run(*[arg.value for arg in args])
        finally:
            progress.waiting -= 1
        if executable.single:
            return ShardedArray(out, executable.avals[0], backend)
        return tuple(
            ShardedArray(value, aval, backend)
            for value, aval in zip(out, executable.avals, strict=True)
        )

    def as_text(self, stage: str = "stablehlo") -> str:
        """The program as text.

        Args:
            stage: "stablehlo" as lowered, with its shardings, or "hlo" as optimised for the
                devices, with its collectives.
        """
        if stage not in ("stablehlo", "hlo"):
            raise InvalidArgumentError(f"stage is 'stablehlo' or 'hlo', got {stage!r}")
        return self._executable.text(stage)

    def _mismatch(self, position: int, arg: object) -> str:
        shape, dtype, sharding = self._avals[position]
        if isinstance(arg, ShardedArray):
            got = f"{arg.dtype}{list(arg.shape)} with {arg.sharding}"
        else:
            got = f"a {type(arg).__name__}; place it with pyreactant.device_put first"
        return (
            f"argument {position} of program {self.program.name!r}: compiled for "
            f"{dtype}{list(shape)} with {sharding}, got {got}"
        )

    def __repr__(self) -> str:
        return f"Compiled({self.program.name!r}, backend={self._backend.name!r})"
