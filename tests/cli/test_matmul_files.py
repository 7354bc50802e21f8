"""`pyreactant matmul` with files: read, written whole or not at all, on one process and several."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import harness
from tests.cli.test_matmul import run
from tests.harness import environment, logs, run_environments, spawn


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
    assert "c.npy: exists already, and is no report of pyreactant; give another" in again.stderr
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
    argv = [sys.executable, "-B", "-c", code]  # or it writes half .pyc files
    ran = harness.run(argv, env=environment(), cwd=tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert "c.npy: cannot be written (File too large)" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_killed_before_the_end_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    code = (
        "import os, sys, pyreactant.check.product.report as n, pyreactant.cli as c\n"
        "n._rename = lambda *_: os._exit(9)\n"
        "sys.argv[1:] = ['matmul', '--size', '64', '--out', 'c.npy']\nc.main()\n"
    )
    argv = [sys.executable, "-c", code]
    ran = harness.run(argv, env=environment(), cwd=tmp_path)
    assert ran.returncode == 9, ran.stderr
    assert not (tmp_path / "c.npy").exists()
    assert all(re.fullmatch(r"\.c\.npy\..*\.partial", p.name) for p in tmp_path.iterdir())


@pytest.mark.slow
def test_arrays_larger_than_the_memory_of_a_process(tmp_path: Path) -> None:
    """Four processes with at most 768 MiB each multiply a matrix of 512 MiB from a sparse file."""
    rows, k = 16384, 8192
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (rows, k))[7, 5] = 3
    np.save(tmp_path / "y.npy", np.ones((k, 8), np.float32))
    code = (
        "import os, resource, pyreactant.cli as c\n"
        # XLA starts one thread per core, each with a stack of 8 MiB.
        "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (768 * 2**20,) * 2)\nc.main()\n"
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
    # Far below what it needs: NumPy, and not OpenBLAS's own buffers, must be what finds no memory.
    whole[2] = code.replace("768", "600")
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
