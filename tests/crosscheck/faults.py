"""Faults that change the blocks of a finished run: no second run, so that many are cheap."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

import pyreactant as pr
from pyreactant.arrays.sharding import Index, NamedSharding, Shard
from pyreactant.check.execute import CaseRun, run_case
from pyreactant.check.oracle.sources import Stale, exchanged
from pyreactant.check.programs import find_case
from pyreactant.check.programs.case import Layout
from pyreactant.check.records.verdict import Kind

Blocks = dict[int, np.ndarray]
MESH = pr.Mesh((2, 4), ("x", "y"))


@dataclass(frozen=True)
class Scene:
    """A finished run without a fault, whose blocks faults replace.

    Attributes:
        run: The run.
        inputs: Its inputs, whole.
        before: The inputs of the calls before, whole.
        right: The right blocks of the output, by device.
    """

    run: CaseRun
    inputs: list[np.ndarray]
    before: list[np.ndarray]
    right: Blocks

    @classmethod
    def of(
        cls,
        program: Any,
        size: int,
        layout: Layout | None = None,
        *,
        mesh: pr.Mesh = MESH,
        **more: Any,
    ) -> "Scene":
        case = find_case(program)
        run = run_case(case, size=size, mesh=mesh, layout=layout, calls=1, **more)
        inputs, before = (
            [one.read(tuple(slice(0, n) for n in one.shape)) for one in sources]
            for sources in (run.sources(), run.sources(before=True))
        )
        shards = run.arrays["output 0"].addressable_shards
        right = {shard.device.position: np.array(shard.data) for shard in shards}
        return cls(run, inputs, before, right)

    def index(self, device: int) -> Index:
        """The block that a device holds."""
        plan = self.run.plans["output 0"]
        return plan.sharding.devices_indices_map(plan.shape)[device]

    def cut(self, whole: np.ndarray) -> Blocks:
        """The blocks of another result."""
        return {d: whole[self.index(d)].astype(b.dtype) for d, b in self.right.items()}

    def with_blocks(self, blocks: Blocks) -> CaseRun:
        """The run with these blocks instead of its own."""

        def replaced(shard: Shard) -> Shard:
            return Shard(shard.device, shard.index, lambda: blocks[shard.device.position])

        shards = [replaced(s) for s in self.run.arrays["output 0"].addressable_shards]
        arrays: Any = {**self.run.arrays, "output 0": SimpleNamespace(addressable_shards=shards)}
        return replace(self.run, arrays=arrays)


def scene_of(
    function: Callable[..., Any], body: Callable[..., Any] | None = None, **more: Any
) -> Scene:
    """A run at n = 32 of a function of x (n, n) and of the module that computes it, JAX or NumPy.

    Args:
        function: The oracle, and the body.
        body: Another body; None if it is the same function.
    """
    import jax.numpy as jnp

    def of_jax(x: Any) -> Any:
        return (body or function)(x, jnp)

    def oracle(x: Any) -> Any:
        return function(x, np)

    program = pr.Program(function.__name__, jax=of_jax, oracle=oracle, inputs=(("n", "n"),))
    return Scene.of(program, 32, **more)


def wide(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Copies in float64."""
    return [array.astype(np.float64) for array in arrays]


Change = Callable[[Scene], Blocks]
Fault = tuple[str, Kind, Change]


def only_on(device: int, change: Change) -> Change:
    """A fault on one device, if all have it else."""
    return lambda scene: {**scene.right, device: change(scene)[device]}


def every(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """A change of each block."""
    return lambda scene: {
        device: change(block.copy()).astype(block.dtype) for device, block in scene.right.items()
    }


def weighted(
    function: Callable[..., np.ndarray], weights: dict[int, int], number: int = 0
) -> Change:
    """A sum over devices in which the parts of some devices have other weights than 1.

    Args:
        function: The program in NumPy, linear in input `number`.
        weights: Weight of a device's part.
        number: The input whose blocks make the parts.
    """

    def change(scene: Scene) -> Blocks:
        plan = scene.run.plans["input 0"]
        held = plan.sharding.devices_indices_map(plan.shape)
        first, *others = wide(scene.inputs)
        for device, weight in weights.items():
            first[held[device]] *= weight
        return scene.cut(np.asarray(function(first, *others)))

    return change


def instead(function: Callable[..., np.ndarray]) -> Change:
    """Another program in NumPy."""
    return lambda scene: scene.cut(
        np.asarray(function(*(x.astype(np.float64) for x in scene.inputs)))
    )


def by_blocks(function: Callable[[Scene, int], np.ndarray]) -> Change:
    """Another program for each device."""
    return lambda scene: {
        device: function(scene, device).astype(block.dtype) for device, block in scene.right.items()
    }


def stale(part: Index, function: Callable[..., np.ndarray]) -> Change:
    """A part of device 1's block holds the result of the previous call."""

    def change(scene: Scene) -> Blocks:
        old = scene.cut(np.asarray(function(*wide(scene.before))))
        block = scene.right[1].copy()
        block[part] = old[1][part]
        return {**scene.right, 1: block}

    return change


def halo(kind: str, width: int, function: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Each device takes wrong elements from its neighbours along the last dimension."""

    def of_device(scene: Scene, device: int) -> np.ndarray:
        index = scene.index(device)
        now, old = scene.run.sources()[0], scene.run.sources(before=True)[0]
        whole = tuple(slice(0, n) for n in now.shape)
        taken: Any = (
            exchanged(now, index[1], 1, width)
            if kind == "exchanged"
            else Stale(now, index[1], 1, old)
        )
        return np.asarray(function(taken.read(whole).astype(np.float64)))[index]

    return by_blocks(of_device)


def cut_along(program: str, size: int, number: int, dimension: int) -> Layout:
    """The first layout of a program that cuts a dimension of an input."""
    case = find_case(program)
    shape = case.inputs(size, case.dtypes[0])[number].shape
    for layout in case.layouts(MESH, size):
        if NamedSharding(MESH, layout.in_specs[number]).cuts(len(shape))[dimension] > 1:
            return layout
    raise LookupError(program)
