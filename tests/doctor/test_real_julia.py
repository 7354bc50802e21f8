"""A real Julia with the stand-in for Reactant, which the doctor's child starts and recognises."""

import pytest

from pyreactant.doctor import diagnose
from pyreactant.doctor.check import Machine
from tests.doctor.test_runtimes import row
from tests.harness import environment
from tests.julia.place import stand_in

pytestmark = pytest.mark.julia


@pytest.mark.timeout(900)
def test_the_doctor_over_a_real_julia() -> None:
    here = Machine(environ=environment(**stand_in(), PYREACTANT_PLATFORM="cpu"))
    found = diagnose("reactant", deep=True, timeout=240, machine=here)
    assert row(found, "Julia").status == "pass", found
    devices = row(found, "Reactant devices")
    assert (devices.status, devices.required) == ("pass", True), devices
    assert devices.found.startswith("cpu, ")
    assert row(found, "XLA runtime").found == "IFRT, by preference; loaded: IFRT"
    for name in ("Reactant product", "Reactant, 2 processes"):
        product = row(found, name)
        assert product.status == "pass", product
        assert product.found.startswith("not the real Reactant but a package with its name")
