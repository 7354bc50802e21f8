"""Random runs without a fault: program, mesh, layout, dtype, size and seed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import pyreactant as pr
from pyreactant.check.execute import run_again, run_case
from pyreactant.check.inputs import input_sets
from pyreactant.check.programs import CASES, find_case
from pyreactant.check.programs.case import Case, Layout
from pyreactant.check.records.verdict import Diagnosis

from .trials import diagnosis_of

_SIZES = (8, 12, 16, 24, 32, 40, 48, 64, 80, 96)


@dataclass(frozen=True)
class Draw:
    """Parameters of a random run."""

    case: Case
    size: int
    dtype: str
    mesh: pr.Mesh
    layout: Layout
    seed: int

    def run(self) -> Diagnosis:
        """Run it on ordinary inputs, and check it."""
        return next(iter(self.run_all()))[1]

    def run_all(self) -> Iterator[tuple[str, Diagnosis]]:
        """Run it on each set of inputs that it defines, and check it: name and diagnosis."""
        run = run_case(
            self.case,
            size=self.size,
            dtype=self.dtype,
            seed=self.seed,
            mesh=self.mesh,
            layout=self.layout,
            calls=1,
        )
        yield run.data.name, diagnosis_of(run)
        for data in input_sets(self.case, self.size, self.dtype):
            run = run_again(run, data)
            yield data.name, diagnosis_of(run)

    def __str__(self) -> str:
        return (
            f"{self.case.name} size={self.size} {self.dtype} {self.mesh!r} "
            f"{self.layout.in_specs} -> {self.layout.out_specs} seed={self.seed}"
        )


def draws(seed: int, devices: int) -> Iterator[Draw]:
    """An endless sequence of draws, determined by the seed."""
    random = np.random.default_rng(seed)
    cases = [find_case(name) for name in CASES]
    while True:
        case = cases[random.integers(len(cases))]
        mesh = _mesh(random, devices)
        size = int(random.choice(_SIZES))
        layouts = case.layouts(mesh, size)
        if not layouts:
            continue
        yield Draw(
            case,
            size,
            str(random.choice(case.dtypes)),
            mesh,
            layouts[random.integers(len(layouts))],
            int(random.integers(2**31)),
        )


def _mesh(random: np.random.Generator, devices: int) -> pr.Mesh:
    """Some or all devices in any order, in one to three axes."""
    count = int(random.choice([n for n in (1, 2, 3, 4, 6, 8) if n <= devices]))
    shape: list[int] = []
    left = count
    for _ in range(int(random.integers(3))):
        shape.append(int(random.choice([d for d in range(1, left + 1) if left % d == 0])))
        left //= shape[-1]
    shape.append(left)
    ids = random.permutation(devices)[:count]
    if random.random() < 0.5:
        ids = np.sort(ids)
    return pr.Mesh(shape, ("x", "y", "z")[: len(shape)], ids)
