"""The Julia bodies of the built-in programs, over the stand-in for Reactant."""

import pytest

from pyreactant.check.programs import CASES
from tests.julia.alone import alone

pytestmark = pytest.mark.julia

ALL = """
import pyreactant as pr
from pyreactant.check.programs import CASES
from tests.programs.common import GRID, LINE
from tests.programs.test_bodies import ratio_of

pr.initialize("reactant", platform="cpu", num_cpu_devices=8)
for name, case in CASES.items():
    for mesh in (GRID, LINE):
        for layout in case.layouts(mesh)[:2]:
            print(name, ratio_of(name, mesh, layout, case.dtypes[0]), flush=True)
    for dtype in case.dtypes[1:]:
        print(name, ratio_of(name, GRID, case.layouts(GRID)[0], dtype), flush=True)
"""


@pytest.mark.timeout(660)
def test_every_julia_body_is_within_its_oracle_s_bound() -> None:
    """Compare on eight devices; exact results are compared bit by bit."""
    done = alone(ALL, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]
    ratios = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, _ in ratios} == set(CASES)
    assert all(float(ratio) <= 1 for _, ratio in ratios), ratios
