"""The library of the real-sources level, without Julia: passes, shardings, and XLA."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness import environment, free_port
from tests.julia.xla import functions

ARGV = [sys.executable, "-m", "tests.julia.xla"]
LIBRARY = os.environ.get("PYREACTANT_TEST_XLA_LIBRARY", "")
pytestmark = [
    pytest.mark.only("jax"),
    pytest.mark.skipif(not LIBRARY, reason="PYREACTANT_TEST_XLA_LIBRARY names no library"),
]


def test_functions_are_those_that_reactant_declares() -> None:
    """Each function of the library has as many arguments as in Reactant's own sources."""
    source = os.environ.get("PYREACTANT_TEST_REACTANT_SOURCE")
    if not source:
        pytest.skip("PYREACTANT_TEST_REACTANT_SOURCE names no sources of Reactant")
    files = [*Path(source).glob("src/mlir/*.jl"), *Path(source).glob("src/compiler/*.jl")]
    text = "\n".join(file.read_text() for file in files)
    call = re.compile(r"@ccall\s+(?:MLIR\.API\.)?mlir_c\.(\w+)\((.*?)\)::", re.DOTALL)
    declared: dict[str, set[int]] = {}
    for name, arguments in call.findall(text):
        declared.setdefault(name, set()).add(count(arguments))
    ours = {name: count(arguments) for name, arguments in functions().items()}
    assert len(ours) > 100
    assert {name for name, n in ours.items() if n not in declared.get(name, {n})} == set()
    # Reactant takes this one from a list of names.
    assert ours.keys() - declared.keys() <= {"ifrt_client_process_index"}


def count(arguments: str) -> int:
    return len([x for x in arguments.split(",") if x.strip()])


def options(ids: Sequence[int] = range(8)) -> bytes:
    """Compile options of Reactant: one replica, a part of the program on each device."""
    from jax._src.lib import xla_client

    given = xla_client.CompileOptions()
    build = given.executable_build_options
    build.num_replicas, build.num_partitions = 1, 8
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([ids], np.int32))
    return given.SerializeAsString()


def run(check: str) -> subprocess.CompletedProcess[str]:
    argv = [*ARGV, LIBRARY, options().hex(), check]
    settings = environment(XLA_FLAGS="--xla_force_host_platform_device_count=8")
    return subprocess.run(argv, env=settings, capture_output=True, text=True, timeout=240)


def seen(check: str) -> Any:
    ran = run(check)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_passes() -> None:
    found = seen("passes")
    assert found["ran"] == found["shardy"] == ""
    for gone in ("enzyme.batch", "func.call", "call @", "@scalar"):
        assert gone not in found["text"]
    # The second result is the first argument, so that Reactant sees that nobody writes to it.
    assert ", %arg0 : tensor<8x8xf32>, tensor<8x4xf32>" in found["text"]
    assert "no-such-pass" in found["unknown"]
    assert found["gradient"] == "failed"
    # Reactant sets fields of executable_build_options (number 3): it is there, and empty.
    assert found["options"] == "1a00"


def test_shardings() -> None:
    assert seen("shardings") == {
        '[{"x"}, {"y"}]': "{devices=[2,4]0,1,2,3,4,5,6,7}",
        '[{"y"}, {}]': "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",
        '[{}, {"y", "x"}]': "{devices=[1,8]0,4,1,5,2,6,3,7}",
        "[{}, {}]": "{replicated}",
        '[{"y":(2)2}, {}]': "{devices=[2,1,4]0,2,4,6,1,3,5,7 last_tile_dim_replicate}",
    }


def test_program() -> None:
    found = seen("program")
    a = np.arange(32, dtype=np.float64).reshape(8, 4)
    b = a + 1
    assert found["sizes"] == [[[2, 4]] * 8, [[2, 2]] * 8]
    assert found["sums"] == [float((b @ (2 * a + b).T).sum()), float(a.sum())]
    assert found["argument"]


def test_two_processes() -> None:
    """Two processes of four devices: one mesh, and the program's products over Gloo."""
    ids = together("ids", options())
    assert ids[0] == ids[1]
    found = together("program", options(ids[0]))
    a = np.arange(32, dtype=np.float64).reshape(8, 4)
    b = a + 1
    assert [x["sizes"] for x in found] == [[[[2, 4]] * 4, [[2, 2]] * 4]] * 2
    assert sum(x["sums"][0] for x in found) == float((b @ (2 * a + b).T).sum())
    assert all(x["argument"] for x in found)


def together(check: str, options: bytes) -> list[Any]:
    """What two processes see, which run the check at once."""
    address = f"127.0.0.1:{free_port()}"
    settings = environment(XLA_FLAGS="--xla_force_host_platform_device_count=4")
    processes = [
        subprocess.Popen(
            [*ARGV, LIBRARY, options.hex(), check, address, str(n)],
            env=settings,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    try:
        # Gloo writes to the standard output too.
        outputs = [process.communicate(timeout=240)[0] for process in processes]
        return [json.loads(text.splitlines()[-1]) for text in outputs]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_error() -> None:
    ran = run("error")
    assert ran.returncode == -6  # SIGABRT; Julia throws an exception instead
    assert "XLA library for tests: compile: " in ran.stderr
