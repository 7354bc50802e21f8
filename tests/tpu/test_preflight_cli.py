"""`pyreactant preflight` as a user runs it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyreactant.fit.preflight.compile import preflight_stablehlo
from pyreactant.fit.preflight.preflight import preflight
from tests import harness
from tests.harness import REPOSITORY, quiet
from tests.tpu.recorded import without_flags

MODULE = Path(__file__).parent / "stablehlo" / "reactant_matmul.mlir"
MATMUL = ("preflight", "matmul", "--topology", "v6e-16", "--size", "16384", "--dtype", "bfloat16")


def run(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return harness.run(
        [sys.executable, "-m", "pyreactant", *arguments],
        cwd=REPOSITORY,
        timeout=120,
        env=without_flags(XDG_CACHE_HOME=str(cache)),
    )


@pytest.fixture
def matmul_known(compiler: Path) -> Path:
    """A cache that contains the answer to `MATMUL`."""
    preflight("matmul", topology="v6e-16", size=16384, dtype="bfloat16")
    return compiler


def test_json_and_hlo(matmul_known: Path, tmp_path: Path) -> None:
    written = ("--hlo", str(tmp_path / "out.txt"), "--html", str(tmp_path / "page.html"))
    ran = run(matmul_known, *MATMUL, "--json", *written)
    assert ran.returncode == 0, ran.stderr
    assert quiet(ran.stderr)
    report = json.loads(ran.stdout)
    assert report["fits"]
    assert report["program"] == "matmul"
    assert report["mesh"] == {"shape": [4, 4], "axis_names": ["x", "y"], "device_ids": None}
    assert report["topology"]["name"] == "v6e-16"
    assert {"arguments", "outputs", "temporaries", "code", "alias", "total"} == set(
        report["bytes_per_device"]
    )
    assert report["roofline"]["bound"] in ("compute", "hbm", "ici")
    assert set(report["versions"]) == {"pyreactant", "jax", "jaxlib", "libtpu"}
    assert (tmp_path / "out.txt").read_text().startswith("HloModule jit_matmul")
    assert "<h1>matmul on v6e-16</h1>" in (tmp_path / "page.html").read_text()


def test_libtpu_leaves_no_logs(compiler: Path, tmp_path: Path) -> None:
    settings = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    ran = harness.run(
        [sys.executable, "-m", "pyreactant", "preflight", "--topology", "v6e-1", "--size", "64"],
        cwd=tmp_path,
        timeout=300,
        env=without_flags(**settings),
    )
    assert ran.returncode == 0, ran.stderr
    assert not [*(tmp_path / "temporary").iterdir()]


def test_a_known_answer_needs_no_jax(matmul_known: Path) -> None:
    program = (
        f"import sys; sys.argv[1:] = {list(MATMUL)!r}; import pyreactant.cli as c; c.main(); "
        "print([m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib', 'libtpu')])"
    )
    ran = harness.run(
        [sys.executable, "-c", program],
        env=without_flags(XDG_CACHE_HOME=str(matmul_known)),
    )
    assert ran.returncode == 0, ran.stderr
    assert "compiled earlier, in" in ran.stdout
    assert ran.stdout.endswith("\n[]\n")


def test_does_not_fit(compiler: Path) -> None:
    preflight("matmul", topology="v6e-4", size=81920, dtype="bfloat16", spec=(None, None))
    options = "--topology v6e-4 --size 81920 --dtype bfloat16 --spec None,None"
    ran = run(compiler, "preflight", "matmul", *options.split())
    assert ran.returncode == 5, ran.stderr
    assert "DOES NOT FIT; the compiler says:" in ran.stdout
    assert "fits with --spec" in ran.stdout


def test_another_program(real_compiler: Path) -> None:
    options = "--topology v6e-8 --mesh data=2,model=4 --dtype float32 --out-spec data,None"
    arrays = "--shape 64x32 --shape 32x128 --shape 128x16"
    specs = "--spec data,None --spec None,model --spec model,None"
    words = f"preflight tests.tpu.programs:two_layers {options} {arrays} {specs}"
    ran = run(real_compiler, *words.split())
    assert ran.returncode == 0, ran.stderr
    assert "preflight of two_layers for v6e-8: 8 devices on 1 VM" in ran.stdout
    assert re.search(r" model +2 of 4 devices +1\n", ran.stdout)


def test_side_by_side(compiler: Path) -> None:
    preflight("matmul", topology="v6e-16", size=(4096, 1024, 2048), dtype="bfloat16")
    preflight_stablehlo(MODULE.read_text(), topology="v6e-16")
    options = "--topology v6e-16 --m 4096 --k 1024 --n 2048 --dtype bfloat16 --diff"
    ran = run(compiler, "preflight", "matmul", *options.split(), "--stablehlo", str(MODULE))
    assert ran.returncode == 0, ran.stderr
    assert "collectives are the same" in ran.stdout
    ran = run(compiler, "preflight", "--topology", "v6e-16", "--stablehlo", str(MODULE))
    assert ran.returncode == 0, ran.stderr
    assert "preflight of reactant_mul for v6e-16" in ran.stdout


def test_a_cache_that_cannot_be_written_is_a_warning(compiler: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    ran = run(file, "preflight", "matmul", "--topology", "v6e-4", "--size", "8")
    assert ran.returncode == 0, ran.stderr
    (warning,) = [line for line in ran.stderr.splitlines() if not quiet(line)]
    assert warning.startswith("warning: the preflight cache cannot be written")


SOFTMAX = ("softmax", "--topology", "v6e-4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["matmul", "--topology", "v6e-4"], "matmul needs --size, or --m"),
        (["matmul", "--topology", "v6e-4", "--size", "8", "--m", "8"], "give --size, or --m,"),
        (["matmul", "--topology", "v6e-4", "--m", "8"], "give --m, --k and --n together"),
        (["matmul", "--topology", "v6e-4", "--shape", "8x8"], "--shape and more than one"),
        ([*SOFTMAX, "--m", "8", "--k", "8", "--n", "8"], "are for matmul; give --shape, or --size"),
        ([*SOFTMAX, "--y-spec", "x"], "are for matmul; give --shape, or --size"),
        ([*SOFTMAX, "--size", "8", "--shape", "8x8"], "or --size for all, not both"),
        ([*SOFTMAX, "--size", "0"], "--size must be 1 or more, got 0"),
        (["a:b", "--topology", "v6e-4"], "give the arguments to compile it for"),
        (["a:b", "--topology", "v6e-4", "--shape", "8x?"], "got '8x?'; all sizes are fixed"),
        (["a:b", "--topology", "v6e-4", "--shape", "12ax5"], "numbers with x between them, as"),
        (
            ["a:b", "--topology", "v6e-4", *["--shape", "8x8"] * 2, *["--spec", "x"] * 3],
            "got 3 specs for 2 shapes",
        ),
        (["--topology", "v6e-4", "--diff"], "matmul needs --size, or --m"),
        (["matmul", "--topology", "v6e-4", "--stablehlo", "a.mlir"], "give PROGRAM or --stablehlo"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, tmp_path: Path) -> None:
    ran = run(tmp_path, "preflight", *arguments)
    assert ran.returncode == 2, ran.stderr
    assert re.search(r"^error: ", ran.stderr, re.MULTILINE)  # maybe after what is being done
    assert message in ran.stderr
