"""What only the JAX runtime does on several processes."""

import sys
from pathlib import Path

import pytest

from tests.harness import check_all_passed, run_environments, spawn

pytestmark = pytest.mark.only("jax")


@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("functions_of_trees", 2),
        ("places_arrays_of_jax", 2),
        ("started_by_jax", 2),
        ("numbered_otherwise", 3),
        ("used_before", 2),
    ],
)
def test_program(name: str, processes: int, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.multiprocess.jax_programs", name]
    environments = run_environments(processes, 2)
    check_all_passed(spawn([argv] * processes, environments, tmp_path, timeout=120))
