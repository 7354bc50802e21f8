"""Modules that XLA dumped: HLO as text and as a protocol buffer, in place of StableHLO."""

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
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_as_proto"
    flags += " --xla_force_host_platform_device_count=4"
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
def test_all_forms_mean_the_same(dumped: Path) -> None:
    forms = ("before_optimizations.txt", "before_optimizations.hlo.pb")
    paths = [dumped / "stablehlo.mlir", *(find(dumped, form) for form in forms)]
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
    proto = as_stablehlo(read_text(find(folder, "before_optimizations.hlo.pb")))
    assert "num_partitions" not in proto
    assert 'mhlo.sharding = "{devices=[2,2]<=[4]}"' in proto


@pytest.mark.parametrize("form", ["after_optimizations.txt", "after_optimizations.hlo.pb"])
def test_a_compiled_module_is_refused(dumped: Path, form: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=r"is compiled already.*before_optimizations"):
        as_stablehlo(read_text(find(dumped, f"cpu_{form}")))


def test_several_modules_in_a_file(dumped: Path) -> None:
    hlo = read_text(find(dumped, "before_optimizations.txt"))
    stablehlo = read_text(dumped / "stablehlo.mlir")
    for text in (hlo + "\n" + hlo, f"\n\n{hlo}{hlo}{hlo}", stablehlo * 2):
        with pytest.raises(pr.InvalidArgumentError, match=r"must have one module, but has [23]: "):
            as_stablehlo(text)
    for text in (stablehlo, "\n" + stablehlo):  # a protocol buffer begins with an empty line, too
        assert as_stablehlo(text) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HloModule f\n\nENTRY main {\n", "the HLO module does not parse: .*as_text"),
        (b"HloModule f", "the HLO module does not parse: "),
        (b"\x7fELF\0\0\0", "the HLO module does not parse: "),
        (b"\n\x05abcde\0", "the HLO module does not parse: "),
        (b"\n\xff\xff\xff\xff\xff\xff\0", "the HLO module does not parse: "),
    ],
)
def test_damaged_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "module").write_bytes(data)
    with pytest.raises(pr.InvalidArgumentError, match=message):
        as_stablehlo(read_text(tmp_path / "module"))


def test_the_command_says_what_to_give(dumped: Path, real_compiler: Path) -> None:
    path = find(dumped, "cpu_after_optimizations.txt")
    argv = [sys.executable, "-m", "pyreactant", "preflight", "--topology", "v6e-4"]
    settings = without_flags(XDG_CACHE_HOME=str(real_compiler))
    ran = harness.run([*argv, "--stablehlo", str(path)], env=settings, timeout=120)
    assert ran.returncode == 2
    assert "error: HLO module jit__lambda is compiled already" in ran.stderr
