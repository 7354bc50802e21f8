"""One runtime per process: --backend says which one this pytest process runs."""

import hypothesis
import pytest

import pyreactant as pr

# Examples may take long on a busy machine, which says nothing about the code.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", default="jax", help="runtime under test in this process")


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """The runtime, started with eight CPU devices."""
    name: str = request.config.getoption("--backend")
    pr.initialize(name, platform="cpu", num_cpu_devices=8)
    return name
