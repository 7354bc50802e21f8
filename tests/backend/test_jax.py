"""Behaviour of the JAX runtime alone; each test uses a separate process."""

import subprocess
import sys

import pytest

import pyreactant as pr
from pyreactant.arrays.dtypes import NAMES
from tests import harness
from tests.backend.common import MATMUL, XY, numbers
from tests.harness import environment

pytestmark = pytest.mark.only("jax")


def _alone(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", code]
    return harness.run(argv, env=environment(**settings), timeout=120)


@pytest.mark.parametrize(
    ("code", "settings", "expected"),
    [
        ("import pyreactant as p; print(len(p.devices()))", {}, "8"),
        (
            "import pyreactant as p; p.initialize(num_cpu_devices=3); print(len(p.devices()))",
            {},
            "3",
        ),
        (
            "import pyreactant as p; print(len(p.devices()))",
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"},
            "5",
        ),
        ("import jax; jax.devices(); import pyreactant as p; print(len(p.devices()))", {}, "1"),
    ],
)
def test_number_of_devices(code: str, settings: dict[str, str], expected: str) -> None:
    ran = _alone(code, **settings)
    assert ran.stdout.strip() == expected, ran.stderr


@pytest.mark.parametrize(
    ("code", "settings", "message"),
    [
        (
            "import jax; jax.devices(); import pyreactant as p; p.initialize(num_cpu_devices=4)",
            {},
            "num_cpu_devices=4 was requested, but JAX had already started with 1",
        ),
        (
            "import pyreactant as p; p.initialize(num_cpu_devices=4)",
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"},
            "XLA_FLAGS sets xla_force_host_platform_device_count too; keep one of them",
        ),
        (
            "import pyreactant as p; p.initialize(platform='tpu')",
            {"JAX_PLATFORMS": "cpu"},
            "platform 'tpu' was requested, but JAX has: cpu (JAX_PLATFORMS=cpu is set); run on",
        ),
        (
            "import pyreactant as p; p.initialize(platform='gpu')",
            {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
            "JAX has: cpu (JAX_PLATFORMS=cpu and CUDA_VISIBLE_DEVICES= are set); run on a machine",
        ),
        (
            "from pyreactant.arrays.runtimes.jax import backend; backend.usable_gpus = lambda: 2\n"
            "import pyreactant as p; p.initialize(platform='gpu', local_device_ids=[0, 7])",
            {"JAX_PLATFORMS": "cpu"},
            "GPU 7 was requested as one of this process's own (local_device_ids, or "
            "PYREACTANT_LOCAL_DEVICE_IDS), but this process sees 2; name GPUs from 0 to 1",
        ),
        (
            "import numpy as n, pyreactant as p; p.matmul_sharded(n.ones((8, 8)), n.ones((8, 8)))",
            {"JAX_ENABLE_X64": "0"},
            "does not hold float64 unchanged; convert the array to one of",
        ),
        (
            "import pyreactant as p; p.devices(); p.shutdown(); p.devices()",
            {},
            "was shut down; a process has one runtime for its whole life",
        ),
        (
            "import sys; sys.modules['jax'] = None; import pyreactant as p; p.initialize()",
            {},
            "backend 'jax' needs the package jax",
        ),
        (
            "import pyreactant as p, sys, types; sys.modules['jaxlib'] = types.ModuleType('x')\n"
            "p.initialize()",
            {},
            "; it is there, but does not load: see whether memory is limited (ulimit -v), or insta",
        ),
        (
            "import pyreactant as p; p.initialize(initialization_timeout=0)",
            {},
            "initialization_timeout must be positive seconds, got 0",
        ),
    ],
)
def test_starts_that_fail(code: str, settings: dict[str, str], message: str) -> None:
    ran = _alone(code, **settings)
    assert ran.returncode == 1
    assert message in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (pr.Program("p", julia="*"), "has no jax body"),
        (pr.Program("p", jax="no.such:f"), "cannot import jax='no.such:f'"),
        (pr.Program("p", jax="jax.numpy:nothing"), "cannot import"),
        (pr.Program("p", jax="jax.numpy:pi"), "is not a function"),
    ],
)
def test_bad_bodies(backend: str, program: pr.Program, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        pr.compile(program, pr.device_put(numbers((8, 8)), XY))


def test_text_has_shardings_and_collectives(backend: str) -> None:
    a = pr.device_put(numbers((8, 8)), XY)
    f = pr.compile(MATMUL, a, a, out_sharding=XY)
    assert "stablehlo.dot_general" in f.as_text()
    assert "sdy.mesh" in f.as_text()
    assert "all-gather" in f.as_text("hlo") or "all-reduce" in f.as_text("hlo")


@pytest.mark.parametrize("name", NAMES)
def test_value_is_an_array_of_jax(backend: str, name: str) -> None:
    import jax

    x = numbers((8, 8), name)
    a = pr.device_put(x, XY)
    if name in ("int64", "uint64", "float64", "complex128"):
        for take in (lambda: a.value, a.to_jax):
            with pytest.raises(pr.DTypeError, match=rf"holds {name}.*jax\.enable_x64\(True\)"):
                take()
        with jax.enable_x64(True):
            assert a.value.dtype == x.dtype
    else:
        assert a.value.dtype == x.dtype
        assert a.to_jax() is a.value


def test_many_calls_without_waiting() -> None:
    """With several programs in flight, collectives on virtual CPU devices would deadlock."""
    ran = _alone(
        "import numpy as n, pyreactant as p\n"
        "from pyreactant.arrays.matmul import compile_matmul\n"
        "s = p.NamedSharding(p.Mesh((2, 4), ('x', 'y')), ('x', 'y'))\n"
        "a = p.device_put(n.ones((8, 8), n.float32), s)\n"
        "f = compile_matmul(a, a, None, None)\n"
        "print(len([f(a, a) for _ in range(2000)]))\n"
    )
    assert ran.stdout.strip() == "2000", ran.stderr
