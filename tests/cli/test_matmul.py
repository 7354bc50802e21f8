"""`pyreactant matmul` as a user runs it: output, exit codes and messages."""

import json
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.check.product import check
from tests import harness
from tests.harness import environment, free_port
from tests.harness import pyreactant as run


def test_reference_case() -> None:
    ran = run("matmul")
    assert ran.returncode == 0, ran.stderr
    assert "matmul (8, 8) @ (8, 8) float32, reference case" in ran.stdout
    versions = f"jax {version('jax')} (jaxlib {version('jaxlib')})"
    assert f"\n{versions} on 8 cpu devices, 1 process\n" in ran.stdout
    assert "[4:8, 6:8]" in ran.stdout
    assert "right: error 0.00e+00" in ran.stdout
    assert "per call" in ran.stdout
    assert "GFLOP/s" in ran.stdout


def test_json() -> None:
    ran = run("matmul", "--size", "1024", "--mesh", "2x4", "--json")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert (report["m"], report["k"], report["n"], report["dtype"]) == (1024,) * 3 + ("float32",)
    assert report["mesh"] == {"shape": [2, 4], "axis_names": ["x", "y"], "device_ids": None}
    assert report["devices"][5]["block"] == [[512, 1024], [256, 512]]
    assert report["check"]["passed"]
    assert report["check"]["method"] == "float64 product"
    assert 0 < report["check"]["error"] < report["check"]["tolerance"]
    assert report["versions"] == {
        "pyreactant": pr.__version__,
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
    }
    assert len(report["seconds"]) == 5
    assert report["gflops"] > 0
    assert report["check"]["passed"]


def test_versions_are_those_of_the_runtime_that_ran(tmp_path: Path) -> None:
    """With Reactant, the output does not show the version of jax."""
    code = (
        "import sys, pyreactant.cli as c\n"
        "from pyreactant.arrays.runtimes.jax.backend import JaxBackend as B\n"
        "B.name = 'reactant'\n"
        "B.versions = lambda self: {'julia': '1.12.6', 'PyReactant': '0.4', 'Reactant': '0.2.9'}\n"
        "sys.argv[1:] = ['matmul', '--repeat', '0', '--report', 'report.json']\n"
        "c.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = harness.run(argv, env=environment(), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    line = "reactant 0.2.9 (julia 1.12.6, PyReactant 0.4) on 8 cpu devices, 1 process"
    assert line in ran.stdout.splitlines()
    versions = json.loads((tmp_path / "report.json").read_text())["versions"]
    assert versions == {
        "pyreactant": pr.__version__,
        "numpy": np.__version__,
        "julia": "1.12.6",
        "PyReactant": "0.4",
        "Reactant": "0.2.9",
    }


def test_freivalds_is_said() -> None:
    """Above `FULL_CHECK_WORK`, which is lower here: 4104^3 multiplications take seconds."""
    assert check.FULL_CHECK_WORK == 4096**3
    code = (
        "import sys, pyreactant.check.product.check as k, pyreactant.cli as c\n"
        "k.FULL_CHECK_WORK = 256**3\n"
        "sys.argv[1:] = ['matmul', '--size', sys.argv[1], '--repeat', '0']\nc.main()\n"
    )
    for size in ("264", "256"):
        argv = [sys.executable, "-c", code, size]
        ran = harness.run(argv, env=environment())
        assert ran.returncode == 0, ran.stderr
        assert ("Freivalds" in ran.stdout) == (size == "264")
        assert ("8 random vectors" in ran.stdout) == (size == "264")


def test_the_place_of_the_check() -> None:
    ran = run("matmul", "--size", "256", "--check", "device", "--repeat", "0")
    assert ran.returncode == 0, ran.stderr
    assert "Freivalds on the devices" in ran.stdout
    assert "each row in 128 groups of columns" in ran.stdout
    ran = run("matmul", "--check", "gpu")
    assert ran.returncode == 2
    assert "--check must be one of device, host, got 'gpu'" in ran.stderr


@pytest.mark.parametrize("seed", ["0", "1"])
def test_seed(seed: str, tmp_path: Path) -> None:
    same = ["matmul", "--size", "64", "--seed", seed, "--repeat", "0"]
    for name, mesh in (("a.npy", "2x4"), ("b.npy", "data=8")):
        spec = "x,y" if mesh == "2x4" else "data,None"
        ran = run(*same, "--mesh", mesh, "--spec", spec, "--out", name, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    first, second = (np.load(tmp_path / name) for name in ("a.npy", "b.npy"))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_wrong_result(tmp_path: Path) -> None:
    """A program with a swapped axis gives exit code 5, names the element and writes no file."""
    (tmp_path / "wrong.py").write_text(
        "import jax.numpy as jnp\ndef matmul(x, y):\n    return jnp.matmul(x, y).T\n"
    )
    code = (
        "import sys, pyreactant.arrays.matmul as m, pyreactant.cli as c\n"
        "m.MATMUL = m.Program('matmul', jax='wrong:matmul')\n"
        "sys.argv[1:] = ['matmul', '--size', '64', '--out', 'c.npy']\n"
        "c.main()\n"
    )
    settings = environment()
    settings["PYTHONPATH"] += os.pathsep + str(tmp_path)
    argv = [sys.executable, "-c", code]
    ran = harness.run(argv, env=settings, cwd=tmp_path)
    assert ran.returncode == 5, ran.stderr
    assert re.search(r"WRONG: \d+ elements beyond the tolerance", ran.stdout)
    assert re.search(
        r"process 0, device cpu:\d, block \[.*\], element \[\d+, \d+\], got", ran.stdout
    )
    assert "not written" in ran.stdout
    assert not (tmp_path / "c.npy").exists()


NAN = ("--x", "nan.npy", "--y", "nan.npy")


def test_nan_only_inputs_are_allowed_and_said(tmp_path: Path) -> None:
    np.save(tmp_path / "nan.npy", np.full((8, 8), np.nan))
    ran = run("matmul", *NAN, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "every element is NaN or infinite, as in the oracle" in ran.stdout


@pytest.mark.parametrize("sizes", [("--size", "0"), ("--m", "8", "--k", "0", "--n", "8")])
def test_zero_sizes(sizes: tuple[str, ...]) -> None:
    ran = run("matmul", *sizes)
    assert ran.returncode == 0, ran.stderr
    assert "right" in ran.stdout


BAD = [
    (
        ["--size", "7"],
        2,
        "dimension 0 of shape (7, 7) has size 7, which is not divisible by its "
        "mesh axes x=2; use a size such as 6 or 8",
    ),
    (["--size", "12", "--spec", "x+y,None"], 2, "divisible by its mesh axes x=2 * y=4 = 8; use a"),
    (
        ["--mesh", "4x4"],
        2,
        "needs 16 devices, at positions up to 15, but there are 8 (cpu); use a smaller mesh or "
        "start with --devices-per-process 16",
    ),
    (["--mesh", "3x3"], 2, "needs 9 devices, at positions up to 8, but there are 8 (cpu)"),
    (["--mesh", "2x2"], 2, "uses 4 of 8 devices; use a mesh of 8, or name 4 of them"),
    (["--mesh", "2*4"], 2, "cannot read mesh '2*4'; write sizes as 2x4 (axes x, y, ...) or names"),
    (["--mesh", "2x2", "--device-ids", "a"], 2, "--device-ids must look like 0,1,2,3, got 'a'"),
    (["--device-ids", "0"], 2, "--device-ids needs --mesh"),
    (["--spec", "x;y"], 2, "cannot read partition spec 'x;y'; write one entry per dimension as x"),
    (["--spec", "x,z"], 2, "but the mesh has axes ('x', 'y'); name one of these, or None for"),
    (["--spec", "x,x"], 2, "uses axis 'x' twice; an axis can shard one dimension only"),
    (["--spec", "x,y,None"], 2, "has 3 entries, more than the 2 of the array's dimensions"),
    (["--m", "8", "--k", "8"], 2, "give --m, --k and --n together, or --size"),
    (["--size", "8", "--m", "8"], 2, "give --size, or --m, --k and --n, not both"),
    (["--size", "-8"], 2, "sizes must be 0 or more, got m=-8"),
    (["--dtype", "float13"], 2, "unknown dtype 'float13'; known are bool"),
    (["--dtype", "longdouble"], 2, "no runtime holds dtype float128; convert the array to one"),
    (["--dtype", "bool"], 2, "must hold numbers, got bool"),
    (["--x", "x.npy"], 2, "give --x and --y together"),
    (["--x", "x.npy", "--y", "no.npy"], 2, "no.npy: no such file; give a .npy file"),
    (["--x", "x.npy", "--y", "cut.npy"], 2, "cut.npy: not a whole .npy file (it is truncated)"),
    (["--x", "x.npy", "--y", "object.npy"], 2, "object.npy: holds Python objects"),
    (
        ["--x", "x.npy", "--y", "wide.npy"],
        2,
        "x must have shape (m, k) and y shape (k, n), got (8, 8) and (16, 8)",
    ),
    (["--x", "x.npy", "--y", "double.npy"], 2, "must have one dtype, got float32 and float64"),
    (["--x", "x.npy", "--y", "x.npy", "--size", "8"], 2, "give sizes or files, not both"),
    (["--out", "x.npy"], 2, "--out x.npy: exists already, and is no report of pyreactant"),
    (["--out", "no/c.npy"], 2, "--out no/c.npy: its folder does not exist; create it first"),
    (["--out", "."], 2, "--out .: is a folder; name a file"),
    (["--backend", "torch"], 2, "unknown backend 'torch'; known are: jax"),
    (["--platform", "gpu"], 3, "platform 'gpu' was requested, but JAX has: cpu; run on a"),
    (["--platform", "abacus"], 2, "unknown platform 'abacus'; known are: cpu, gpu, tpu"),
    (["--precision", "most"], 2, "unknown precision 'most'; known are: default, high, highest"),
    (["--devices-per-process", "100000"], 2, "error: --devices-per-process must be 1 to 4096"),
    (["--devices-per-process", "0"], 2, "error: --devices-per-process must be 1 to 4096"),
    (["--repeat", "-1"], 2, "error: --repeat must be 0 or more, got -1"),
    (["--sise", "8"], 2, "no such option"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_bad_input(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    x = np.ones((8, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "double.npy", x.astype(np.float64))
    np.save(tmp_path / "wide.npy", np.ones((16, 8), np.float32))
    np.save(tmp_path / "object.npy", np.array([[None]]), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:200])
    before = sorted(tmp_path.iterdir())
    ran = run("matmul", *arguments, folder=tmp_path)
    assert ran.returncode == code, ran.stderr
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr + ran.stdout
    assert ran.stdout == ""
    assert sorted(tmp_path.iterdir()) == before


def test_debug_shows_where() -> None:
    ran = run("matmul", "--size", "7", PYREACTANT_DEBUG="1")
    assert ran.returncode == 2
    assert "Traceback" in ran.stderr
    assert ran.stderr.rstrip().splitlines()[-1].startswith("error: dimension 0 of shape (7, 7)")


def test_internal_error_has_no_traceback(tmp_path: Path) -> None:
    code = (
        "import sys, pyreactant.check.product.report as m, pyreactant.cli as c\n"
        "m.run_matmul = lambda **_: 1 / 0\nsys.argv[1:] = ['matmul']\nc.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = harness.run(argv, env=environment())
    assert ran.returncode == 1
    assert "internal error: ZeroDivisionError" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        (
            "RESOURCE_EXHAUSTED: Out of memory allocating 72000000 bytes.",
            "out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 72000000 bytes.; use more "
            "processes on more machines, or smaller arrays",
        ),
        (
            "UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [::1]:28076",
            "error: another process of this run ended, or cannot be reached (JaxRuntimeError: "
            "UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [::1]:28076); "
            "read the output of the first one that ended",
        ),
    ],
)
def test_errors_of_the_runtime(message: str, printed: str) -> None:
    code = (
        "import sys, jax, pyreactant.check.product.report as m, pyreactant.cli as c\n"
        f"def fails(**_): raise jax.errors.JaxRuntimeError({message!r})\n"
        "m.run_matmul = fails\nsys.argv[1:] = ['matmul']\nc.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = harness.run(argv, env=environment())
    assert (ran.returncode, ran.stderr) == (6, f"{printed}\n")


def test_process_index_out_of_range() -> None:
    ran = run(
        "matmul",
        PYREACTANT_NUM_PROCESSES="2",
        PYREACTANT_PROCESS_INDEX="2",
        PYREACTANT_COORDINATOR_ADDRESS=f"127.0.0.1:{free_port()}",
    )
    assert ran.returncode == 2
    assert (
        "PYREACTANT_PROCESS_INDEX must be from 0 to 1 with PYREACTANT_NUM_PROCESSES=2, got 2"
        in ran.stderr
    )


def test_unresolvable_coordinator() -> None:
    ran = run(
        "matmul",
        PYREACTANT_NUM_PROCESSES="2",
        PYREACTANT_PROCESS_INDEX="1",
        PYREACTANT_COORDINATOR_ADDRESS="no-such-host.invalid:1234",
    )
    assert ran.returncode == 3
    assert "the host 'no-such-host.invalid' does not resolve here" in ran.stderr
    assert "Traceback" not in ran.stderr
