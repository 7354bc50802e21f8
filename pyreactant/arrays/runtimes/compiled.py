"""A compiled program, as the user calls it."""

from collections.abc import Callable, Sequence
from typing import Any

from ...base.counted import counted
from ...base.errors import InvalidArgumentError
from ...process import progress
from ..array import DonatedArray, ShardedArray, mark_donated
from ..backend import AbstractBackend, Call, Executable
from ..dtypes import is_traced
from ..program import Program
from ..sharding import Aval, intern
from ..tree import outline, path_text
from .guard.operation import Calls, Operation


class Compiled:
    """A compiled program; call it with arrays like those it was compiled for.

    Args:
        call: The program and the arguments that it was compiled for.
        executable: What the runtime compiled.
        backend: The runtime.
        operation: The compilation, as the guard compares it; None without a guard.
        ran: The guard's `ran`, which gets every call.
        run: What runs it in place of the executable, such as a `Replayed`.

    Attributes:
        program: The program.
        executable: What the runtime compiled.
        operation: The compilation, as the guard compares it; None without a guard.

    Examples:
        >>> f = pr.compile(lambda x: x @ x.T, x, out_sharding=sharding)
        >>> f(x).shape, f.output_shardings.spec
        ((8, 8), ('x', 'y'))
        >>> "stablehlo" in f.as_text()
        True
    """

    def __init__(
        self,
        call: Call,
        executable: Executable,
        backend: AbstractBackend,
        operation: Operation | None = None,
        ran: Callable[[Operation, tuple[int, ...], int], int] | None = None,
        run: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        trees = backend.trees
        self.program: Program = call.program
        self._avals = tuple(map(intern, call.avals))
        self._outputs = tuple(map(intern, executable.avals))
        self._structure = call.structure
        self.executable = executable
        self.operation = operation
        self._calls = None if operation is None else Calls(operation)
        self._ran = ran
        self._run = executable.run if run is None else run
        self._backend = backend
        # Whether each argument is one array, so that nothing need be flattened.
        positions = trees.unflatten(call.structure, range(len(call.avals)))
        self._flat = tuple(positions) == tuple(range(len(call.avals)))
        self._single = trees.is_leaf(executable.structure)
        self._donated = call.donated(trees)

    def __call__(self, *args: Any) -> Any:
        """Run the program on arrays, or trees of arrays. Collective.

        Returns:
            ShardedArrays, in the structure that the program's body returned.

        Raises:
            InvalidArgumentError: Number, structure, shape, dtype or sharding of the arguments
                differ from those it was compiled for.
            StateError: An argument was donated before.
        """
        leaves = args if self._flat and len(args) == len(self._avals) else self._leaves(args)
        avals, executable, backend = self._avals, self.executable, self._backend
        values = []
        for position, aval in enumerate(avals):
            leaf = leaves[position]
            # Identity first: comparing shardings takes longer than starting a small program.
            if type(leaf) is not ShardedArray or (leaf.aval is not aval and leaf.aval != aval):
                self._refuse(position, leaf, args)
            values.append(leaf._value)
        if self._donated:
            self._check_donated(leaves)
        first = 0
        if self._calls is not None and self._ran is not None:
            arrays = tuple([leaf._number for leaf in leaves])
            first = self._ran(self._calls.here(), arrays, len(self._outputs))
        # `with progress.collective()` would take longer than starting a small program.
        progress.collectives += 1
        progress.waiting += 1
        try:
            out = self._run(*values)
        except Exception:
            # The collectives of this process fail when one that differs has ended.
            if progress.failed is not None:
                progress.failed()
            raise
        finally:
            progress.waiting -= 1
        for number in self._donated:
            mark_donated(leaves[number], self.program.name)
        if self._single:
            return ShardedArray(out[0], self._outputs[0], backend, first)
        numbers = range(first, first + len(out))
        results = list(map(ShardedArray, out, self._outputs, [backend] * len(out), numbers))
        return backend.trees.unflatten(executable.structure, results)

    @property
    def output_shardings(self) -> Any:
        """The sharding of each result, in the structure of the results."""
        shardings = [aval.sharding for aval in self._outputs]
        return self._backend.trees.unflatten(self.executable.structure, shardings)

    @property
    def outputs(self) -> Any:
        """Shape, dtype and sharding of each result, in the structure of the results."""
        return self._backend.trees.unflatten(self.executable.structure, self._outputs)

    def memory_analysis(self) -> Any:
        """The runtime's own analysis of the program's memory, in bytes for one device.

        For JAX this is what `jax.stages.Compiled.memory_analysis` returns; None where the runtime
        has no analysis.
        """
        return self.executable.memory()

    def as_text(self, stage: str = "stablehlo") -> str:
        """The program as text.

        Args:
            stage: "stablehlo" as lowered, with its shardings, or "hlo" as optimised for the
                devices, with its collectives.
        """
        if stage not in ("stablehlo", "hlo"):
            raise InvalidArgumentError(f"stage is 'stablehlo' or 'hlo', got {stage!r}")
        return self.executable.text(stage)

    def _leaves(self, args: tuple[Any, ...]) -> Any:
        trees = self._backend.trees
        leaves, structure = trees.flatten(args)
        if structure == self._structure:
            return leaves
        wanted = trees.unflatten(self._structure, self._avals)
        if len(args) != len(wanted):
            raise InvalidArgumentError(
                f"program {self.program.name!r} takes {counted(len(wanted), 'argument')}, "
                f"got {len(args)}"
            )
        raise InvalidArgumentError(
            f"program {self.program.name!r} was compiled for arguments of the structure "
            f"{outline(trees, wanted)}, got {outline(trees, args)}; compile it for these"
        )

    def _check_donated(self, leaves: Any) -> None:
        values = [leaf._value for leaf in leaves]  # two arrays may share one (`from_jax`)
        if len(set(map(id, values))) == len(values):
            return
        for number in self._donated:
            others = [i for i, v in enumerate(values) if v is values[number] and i != number]
            if others:
                raise InvalidArgumentError(
                    f"program {self.program.name!r}: array {number} of the arguments is donated "
                    f"and also given as array {others[0]}; donate an array only once, and give it "
                    "only there"
                )

    def _refuse(self, position: int, leaf: object, args: tuple[Any, ...]) -> None:
        if isinstance(leaf, DonatedArray):
            leaf.donate()
        wanted, advice = self._avals[position], ""
        if isinstance(leaf, ShardedArray):
            same = (leaf.shape, leaf.dtype) == (wanted.shape, wanted.dtype)
            move = "move it with pyreactant.reshard, or " if same else ""
            advice = f"; {move}compile the program for it"
        raise InvalidArgumentError(
            f"{place_of(self._backend, args, position)} of program {self.program.name!r}: compiled "
            f"for {wanted}, got {describe(leaf)}{advice}"
        )

    def __repr__(self) -> str:
        return f"Compiled({self.program.name!r}, backend={self._backend.name!r})"


def place_of(backend: AbstractBackend, args: tuple[Any, ...], number: int) -> str:
    """Where a leaf is among the arguments: "argument 0", "argument 1['w']"."""
    first, *inside = backend.trees.keys(args)[number]
    return f"argument {first}{path_text(inside)}"


def describe(leaf: object) -> str:
    """An argument, in the words of an error message."""
    if isinstance(leaf, ShardedArray):
        return str(leaf.aval)
    if isinstance(leaf, Aval):
        return f"a description ({leaf}); it can be compiled for, but not computed with"
    if is_traced(leaf):
        return (
            f"a {type(leaf).__name__}; in a function that is traced (jax.jit, jax.grad, another "
            "program) call the Python function itself"
        )
    if type(leaf).__name__ == "ArrayImpl":
        return "a jax.Array; convert it with pyreactant.from_jax first"
    return f"a {type(leaf).__name__}; place it with pyreactant.device_put first"
