"""`pyreactant matmul` as a user runs it: output, exit codes and messages."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import pyreactant as pr
from tests import processes
from tests.harness import environment, free_port, logs, run_environments, spawn


def run(
    *arguments: str, folder: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pyreactant", *arguments]
    return processes.run(argv, imported=processes.WITH_JAX, env=environment(**settings), cwd=folder)


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
        "from pyreactant._runtimes.jax.backend import JaxBackend as B\n"
        "B.name = 'reactant'\n"
        "B.versions = lambda self: {'julia': '1.12.6', 'PyReactant': '0.4', 'Reactant': '0.2.9'}\n"
        "sys.argv[1:] = ['matmul', '--repeat', '0', '--report', 'report.json']\n"
        "c.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = subprocess.run(
        argv, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
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
    ran = run("matmul", "--size", "4104", "--repeat", "0")  # just above 4096**3
    assert ran.returncode == 0, ran.stderr
    assert "Freivalds" in ran.stdout
    assert "8 random vectors" in ran.stdout


@pytest.mark.parametrize("seed", ["0", "1"])
def test_seed(seed: str, tmp_path: Path) -> None:
    same = ["matmul", "--size", "64", "--seed", seed, "--repeat", "0"]
    for name, mesh in (("a.npy", "2x4"), ("b.npy", "data=8")):
        spec = "x,y" if mesh == "2x4" else "data,None"
        ran = run(*same, "--mesh", mesh, "--spec", spec, "--out", name, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    first, second = (np.load(tmp_path / name) for name in ("a.npy", "b.npy"))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_files(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (24, 16)).astype(np.float64)
    y = np.asfortranarray(x.T)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    files = ["matmul", "--x", "x.npy", "--y", "y.npy", "--out", "c.npy"]
    ran = run(*files, "--spec", "x,y", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "x.npy @ y.npy" in ran.stdout
    assert "written to c.npy" in ran.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), x @ y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.npy", "x.npy", "y.npy"]
    again = run(*files, folder=tmp_path)
    assert again.returncode == 2
    assert "c.npy: exists already; give another name, or --overwrite" in again.stderr
    assert run(*files, "--overwrite", folder=tmp_path).returncode == 0


def test_files_of_bfloat16(tmp_path: Path) -> None:
    import ml_dtypes

    x = np.arange(64).reshape(8, 8).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    ran = run(
        "matmul",
        "--x",
        "x.npy",
        "--y",
        "x.npy",
        "--dtype",
        "bfloat16",
        "--out",
        "c.npy",
        folder=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    c = np.load(tmp_path / "c.npy").view(ml_dtypes.bfloat16)
    exact = x.astype(float) @ x.astype(float)
    np.testing.assert_allclose(c.astype(float), exact, rtol=0.02)


def test_wrong_result(tmp_path: Path) -> None:
    """A program with a swapped axis gives exit code 5, names the element and writes no file."""
    (tmp_path / "wrong.py").write_text(
        "import jax.numpy as jnp\ndef matmul(x, y):\n    return jnp.matmul(x, y).T\n"
    )
    code = (
        "import sys, pyreactant._matmul.matmul as m, pyreactant.cli as c\n"
        "m.MATMUL = m.Program('matmul', jax='wrong:matmul')\n"
        "sys.argv[1:] = ['matmul', '--size', '64', '--out', 'c.npy']\n"
        "c.main()\n"
    )
    settings = environment()
    settings["PYTHONPATH"] += os.pathsep + str(tmp_path)
    argv = [sys.executable, "-c", code]
    ran = processes.run(argv, imported=processes.WITH_JAX, env=settings, cwd=tmp_path)
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
    (["--mesh", "4x4"], 2, "needs 16 devices, at positions up to 15, but there are 8 (cpu)"),
    (["--mesh", "2x2"], 2, "uses 4 of 8 devices; use a mesh of 8, or name the devices"),
    (["--mesh", "2*4"], 2, "cannot read mesh '2*4'; write sizes as 2x4 (axes x, y, ...) or names"),
    (["--mesh", "2x2", "--device-ids", "a"], 2, "--device-ids must look like 0,1,2,3, got 'a'"),
    (["--device-ids", "0"], 2, "--device-ids needs --mesh"),
    (["--spec", "x;y"], 2, "cannot read partition spec 'x;y'; write one entry per dimension as x"),
    (["--spec", "x,z"], 2, "names axis 'z', but the mesh has axes ('x', 'y')"),
    (["--spec", "x,x"], 2, "uses axis 'x' twice; an axis can cut one dimension only"),
    (["--spec", "x,y,None"], 2, "has 3 entries but the array has 2 dimensions"),
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
    (["--out", "x.npy"], 2, "x.npy: exists already; give another name, or --overwrite"),
    (["--out", "no/c.npy"], 2, "the folder no does not exist; create it first"),
    (["--out", "."], 2, "is a folder; give the name of a .npy file"),
    (["--backend", "torch"], 2, "unknown backend 'torch'; known are: jax"),
    (["--platform", "gpu"], 3, "platform 'gpu' was requested, but JAX has: cpu; run on a"),
    (["--platform", "abacus"], 2, "unknown platform 'abacus'; known are: cpu, gpu, tpu"),
    (["--precision", "most"], 2, "unknown precision 'most'; known are: default, high, highest"),
    (["--cpu-devices", "0"], 2, "num_cpu_devices must be 1 or more, got 0"),
    (["--repeat", "-1"], 2, "repeat must be 0 or more, got -1"),
    (["--sise", "8"], 2, "No such option"),
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
        "import sys, pyreactant._matmul.report as m, pyreactant.cli as c\n"
        "m.run_matmul = lambda request: 1 / 0\nsys.argv[1:] = ['matmul']\nc.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = processes.run(argv, imported=processes.WITH_JAX, env=environment())
    assert ran.returncode == 1
    assert "internal error: ZeroDivisionError" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_folder_that_takes_no_file() -> None:
    ran = run("matmul", "--out", "/proc/c.npy")  # not even root can create a file there
    assert ran.returncode == 2
    assert re.search("/proc.* cannot be written", ran.stderr)
    assert "Traceback" not in ran.stderr


def test_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    """A limit on file size simulates a full disk: the write fails half-way."""
    code = (
        "import resource, signal, sys, pyreactant.cli as c\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "sys.argv[1:] = ['matmul', '--size', '64', '--out', 'c.npy']\nc.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = processes.run(argv, imported=processes.WITH_JAX, env=environment(), cwd=tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert "c.npy: cannot be written (File too large)" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_killed_before_the_end_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    code = (
        "import os, sys, pyreactant._matmul.npy as n, pyreactant.cli as c\n"
        "n._rename = lambda *_: os._exit(9)\n"
        "sys.argv[1:] = ['matmul', '--size', '64', '--out', 'c.npy']\nc.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = processes.run(argv, imported=processes.WITH_JAX, env=environment(), cwd=tmp_path)
    assert ran.returncode == 9, ran.stderr
    assert not (tmp_path / "c.npy").exists()
    assert all(re.fullmatch(r"\.c\.npy\..*\.partial", p.name) for p in tmp_path.iterdir())


def test_arrays_larger_than_the_memory_of_a_process(tmp_path: Path) -> None:
    """Four processes with at most 1 GiB each multiply a matrix of 1 GiB from a sparse file."""
    rows, k = 32768, 8192
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (rows, k))[7, 5] = 3
    np.save(tmp_path / "y.npy", np.ones((k, 8), np.float32))
    code = (
        "import os, resource, pyreactant.cli as c\n"
        # XLA starts one thread per core, each with a stack of 8 MiB.
        "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1024 * 2**20,) * 2)\nc.main()\n"
    )
    argv = [
        sys.executable,
        "-c",
        code,
        "matmul",
        "--x",
        "x.npy",
        "--y",
        "y.npy",
        "--out",
        "c.npy",
        "--mesh",
        "4",
        "--spec",
        "x",
        "--y-spec",
        "None,None",
        "--repeat",
        "0",
    ]
    finished = spawn([argv] * 4, run_environments(4, 1), tmp_path, 200)
    assert [f.code for f in finished] == [0] * 4, logs(finished)
    c = np.load(tmp_path / "c.npy")
    assert (c[7] == 3).all()
    assert c.sum() == 24
    whole = [*argv[:-6], "--mesh", "1", "--spec", "x", "--y-spec", "None,None", "--repeat", "0"]
    whole[whole.index("c.npy")] = "d.npy"
    (alone,) = spawn([whole], [environment(PYREACTANT_NUM_CPU_DEVICES="1")], tmp_path, 200)
    assert alone.code == 6, alone.log
    assert "out of memory: Unable to allocate" in alone.log
    assert "Traceback" not in alone.log


def test_two_processes_read_and_write_their_blocks(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (16, 24)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.ascontiguousarray(x.T))
    argv = [
        sys.executable,
        "-m",
        "pyreactant",
        "matmul",
        "--x",
        "x.npy",
        "--y",
        "y.npy",
        "--out",
        "c.npy",
        "--mesh",
        "2x2",
        "--json",
    ]
    finished = spawn([argv] * 2, run_environments(2, 2), tmp_path, 90)
    assert [f.code for f in finished] == [0, 0], logs(finished)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), x @ x.T)
    report = json.loads(finished[0].log[finished[0].log.index("{") :])
    assert report["num_processes"] == 2
    assert [d["process_index"] for d in report["devices"]] == [0, 0, 1, 1]
    assert "{" not in finished[1].log


def test_file_missing_on_one_process_ends_both(tmp_path: Path) -> None:
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", np.ones((8, 8)))
    (tmp_path / "1" / "x.npy").unlink()
    code = (
        "import os, pyreactant.cli as c\n"
        "os.chdir(os.environ['PYREACTANT_PROCESS_INDEX'])\nc.main()\n"
    )
    argv = [sys.executable, "-c", code, "matmul", "--x", "x.npy", "--y", "x.npy"]
    finished = spawn([argv] * 2, run_environments(2, 4), tmp_path, 60)
    assert [f.code for f in finished] == [2, 2], logs(finished)
    assert "failed on process 1: x.npy: no such file" in finished[0].log
    assert "error: x.npy: no such file" in finished[1].log


def test_process_index_out_of_range() -> None:
    ran = run(
        "matmul",
        PYREACTANT_NUM_PROCESSES="2",
        PYREACTANT_PROCESS_INDEX="2",
        PYREACTANT_COORDINATOR_ADDRESS=f"127.0.0.1:{free_port()}",
    )
    assert ran.returncode == 2
    assert "process_index must be from 0 to 1 with num_processes=2, got 2" in ran.stderr


def test_unresolvable_coordinator() -> None:
    ran = run(
        "matmul",
        PYREACTANT_NUM_PROCESSES="2",
        PYREACTANT_PROCESS_INDEX="1",
        PYREACTANT_COORDINATOR_ADDRESS="no-such-host.invalid:1234",
    )
    assert ran.returncode == 4
    assert "the host 'no-such-host.invalid' does not resolve here" in ran.stderr
    assert "Traceback" not in ran.stderr
