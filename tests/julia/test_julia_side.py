"""The Julia package PyReactant, tested in Julia over the stand-in for Reactant."""

import os
import signal
import subprocess
import sys

import pytest

from tests.harness import REPOSITORY, environment
from tests.julia.place import STAND_IN, command

pytestmark = pytest.mark.julia

LIMIT = 900
SOURCE = "PYREACTANT_TEST_REACTANT_SOURCE"


@pytest.mark.timeout(LIMIT + 60)
def test_the_package_and_its_stand_in() -> None:
    """Run julia/test/runtests.jl: layout, meshes, arrays, programs, names, traps and processes."""
    ours = REPOSITORY / "julia"
    settings = {
        "JULIA_LOAD_PATH": os.pathsep.join(map(str, ("", STAND_IN, ours / "start", ours))),
        "JULIA_PYTHONCALL_EXE": sys.executable,
        "JULIA_CONDAPKG_BACKEND": "Null",
        "JULIA_PKG_OFFLINE": "true",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    runtests = ours / "test" / "runtests.jl"
    argv = command(str(runtests))
    variables = environment(**settings)
    # For the comparison with Reactant's own sources, which is skipped without it.
    variables[SOURCE] = os.environ.get(SOURCE, "")
    with subprocess.Popen(
        argv,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that it started
    assert process.returncode == 0, output[-20_000:]
