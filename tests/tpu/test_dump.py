"""Modules that XLA dumped: HLO as text, in place of StableHLO."""

import subprocess
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.fit.compiler.dump import as_stablehlo
from pyreactant.fit.preflight.compile import preflight_stablehlo, read_text
from tests import harness
from tests.harness import environment
from tests.tpu.recorded import without_flags

pytestmark = pytest.mark.slow

DUMP = """
import sys, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_use_shardy_partitioner", sys.argv[2] == "shardy")
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x", "y")))
y = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("y", None)))
product = jax.jit(lambda x, y: jnp.sin(x @ y))
product(x, y)
open(sys.argv[1], "w").write(product.lower(x, y).as_text())
"""


def dump(folder: Path, partitioner: str = "shardy") -> Path:
    """A folder of XLA's dumps, and the StableHLO of the same program in "stablehlo.mlir"."""
    flags = f"--xla_dump_to={folder} --xla_force_host_platform_device_count=4"
    argv = [sys.executable, "-c", DUMP, str(folder / "stablehlo.mlir"), partitioner]
    settings = environment(JAX_PLATFORMS="cpu", XLA_FLAGS=flags)
    subprocess.run(argv, env=settings, check=True, capture_output=True, timeout=120)
    return folder


def find(folder: Path, end: str) -> Path:
    (path,) = folder.glob(f"module_*jit__lambda.{end}")
    return path


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dump(tmp_path_factory.mktemp("dump"))


@pytest.mark.usefixtures("real_compiler")
def test_both_forms_mean_the_same(dumped: Path) -> None:
    paths = [dumped / "stablehlo.mlir", find(dumped, "before_optimizations.txt")]
    reports = [preflight_stablehlo(read_text(path), topology="v6e-4") for path in paths]
    for report in reports:
        assert report.program == "jit__lambda"
        assert report.mesh == pr.Mesh((2, 2), ("x", "y"))
        assert [operand.spec for operand in report.arguments] == ["x,y", "y,None"]
        assert [c.op for c in report.collectives] == ["all-reduce"]
        assert report.bytes_per_device == reports[0].bytes_per_device


def test_without_shardy(tmp_path: Path) -> None:
    """The number of partitions is in the head of the text alone."""
    folder = dump(tmp_path, "gspmd")
    text = as_stablehlo(read_text(find(folder, "before_optimizations.txt")))
    assert "mhlo.num_partitions = 4 : i32" in text
    assert 'mhlo.sharding = "{devices=[2,2]<=[4]}"' in text


def test_several_modules_in_a_file(dumped: Path) -> None:
    hlo = read_text(find(dumped, "before_optimizations.txt"))
    stablehlo = read_text(dumped / "stablehlo.mlir")
    for text in (hlo + "\n" + hlo, f"\n\n{hlo}{hlo}{hlo}", stablehlo * 2):
        with pytest.raises(pr.InvalidArgumentError, match=r"must have one module, but has [23]: "):
            as_stablehlo(text)
    for text in (stablehlo, "\n" + stablehlo):
        assert as_stablehlo(text) == text


@pytest.mark.parametrize("text", ["HloModule f\n\nENTRY main {\n", "HloModule f"])
def test_damaged_text(text: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"the HLO module does not parse: .*as_text"):
        as_stablehlo(text)


@pytest.mark.usefixtures("real_compiler")
def test_no_text(tmp_path: Path) -> None:
    (tmp_path / "module").write_bytes(b"\n\x0ejit__lambda.main\0\xff")
    with pytest.raises(pr.InvalidArgumentError, match=r"must be StableHLO as text, .*begins with"):
        preflight_stablehlo(read_text(tmp_path / "module"), topology="v6e-4")


def test_the_command_says_what_to_give(dumped: Path, real_compiler: Path) -> None:
    path = find(dumped, "cpu_after_optimizations.txt")
    argv = [sys.executable, "-m", "pyreactant", "preflight", "--topology", "v6e-4"]
    settings = without_flags(XDG_CACHE_HOME=str(real_compiler))
    ran = harness.run([*argv, "--stablehlo", str(path)], env=settings, timeout=120)
    assert ran.returncode == 2
    assert "error: HLO module jit__lambda is compiled already" in ran.stderr
    assert "which XLA dumps as ...before_optimizations.txt" in ran.stderr
