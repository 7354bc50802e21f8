"""Ordinary expressions on a GPU stay within their derived bounds."""

import json
import sys

import pytest

from tests import harness
from tests.gpu.common import ON_GPU, absent
from tests.harness import environment
from tests.unit.expressions import FAMILIES

pytestmark = pytest.mark.skipif(absent() is not None, reason=str(absent()))


@pytest.mark.parametrize("precision", ["default", "highest"])
@pytest.mark.parametrize("family", FAMILIES)
def test_expressions_are_within_their_bounds(family: str, precision: str) -> None:
    argv = [sys.executable, "-m", "tests.gpu.accuracy", family, precision]
    env = environment(**ON_GPU, XLA_PYTHON_CLIENT_PREALLOCATE="false")
    ran = harness.run(argv, env=env, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["computed"] >= 20
    assert max(found["near"].values(), default=0) <= 1, found["near"]
