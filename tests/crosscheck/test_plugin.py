"""The cross-check's programs on a second XLA: with ``--plugin``, a PJRT plugin runs them."""

import pytest

import pyreactant as pr
from pyreactant.check.check import check_all
from pyreactant.check.execute import run_case
from pyreactant.check.programs import CASES, find_case

MESH = pr.Mesh((2, 4), ("x", "y"))


@pytest.fixture
def plugin(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--plugin") is None:
        pytest.skip("no plugin was named (--plugin), and jaxlib's XLA has its own tests: make xla")


@pytest.mark.usefixtures("plugin", "backend")
@pytest.mark.parametrize("name", CASES)
def test_every_block_is_right(name: str) -> None:
    import jax

    assert "cpu_plugin" in str(jax.config.jax_platforms)
    case = find_case(name)
    run = run_case(case, size=case.size_for(MESH), mesh=MESH, calls=1)
    for block in check_all(run):
        assert block.passed, block
        assert block.index == block.expected_index, block
