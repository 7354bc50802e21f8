"""`pyreactant bisect` with compilers that are wrong in a known way, and with bad inputs."""

import contextlib
import json
import math
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyreactant.arrays.dtypes import NAMES, as_dtype
from pyreactant.base.errors import InvalidArgumentError
from pyreactant.check.bisect.bisect import problem_of
from pyreactant.check.bisect.child import Child, Outcome
from pyreactant.check.bisect.judge import Failure, Ways, distance
from pyreactant.check.bisect.passes import part_that, smallest
from pyreactant.check.bisect.script import worst
from pyreactant.check.bisect.way import parse_way
from pyreactant.check.bisect.worker import load_arrays, save_arrays
from tests.bisect.compilers import wrong_python
from tests.harness import REPOSITORY, environment

LAYERS = "tests.bisect.programs:layers"
LONG = 600


def ran(*argv: str | Path, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, argv)],
        cwd=folder,
        env=environment(PYTHONPATH=str(REPOSITORY), COLUMNS="200", **settings),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def bisect(*options: str | Path, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pyreactant", "bisect", "--each", "10m")
    return ran(*command, *options, folder=folder, **settings)


def found(
    folder: Path, *options: str | Path, program: str = LAYERS, **settings: str
) -> dict[str, Any]:
    ended = bisect(program, *options, "--json", folder=folder, **settings)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def check_script(folder: Path, python: Path) -> None:
    """The script fails with the wrong compiler, and passes with the right one."""
    script = (folder / "show.py").read_text()
    assert len(script.splitlines()) <= 60
    assert "pyreactant" not in script
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    assert ran(python, "show.py", folder=folder, **settings).returncode != 0
    right = ran(sys.executable, "show.py", folder=folder, **settings)
    assert right.returncode == 0, right.stdout + right.stderr


def test_a_wrong_operation_is_found_and_shown(tmp_path: Path) -> None:
    rule = {"replace": [["stablehlo.tanh", "stablehlo.sine"]], "pass": "algsimp"}
    python = wrong_python(tmp_path / "wrong", **rule)
    options = ("--bad", f"python={python}", "--size", "16")
    result = found(tmp_path, *options)
    assert result["cause"] == "compiler"
    assert result["smallest"] == "size 2, float32, mesh 1x1, ordinary inputs"
    assert result["passes"] == ["algsimp"]
    assert result["operations"] == ["stablehlo.tanh"]
    check_script(tmp_path / "bisect", python)
    report = (tmp_path / "bisect" / "report.md").read_text()
    assert "stablehlo.tanh" in report
    assert "algsimp: right without" in report
    # The same call again runs nothing anew.
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "bisect/runs").glob("*.json")}
    assert found(tmp_path, *options) == result
    assert {path: path.stat().st_mtime_ns for path in runs} == runs


def test_arguments_and_results_are_trees(tmp_path: Path) -> None:
    """The module has them in the order of their names, not in that of the program."""
    python = wrong_python(tmp_path / "wrong", replace=[["stablehlo.tanh", "stablehlo.sine"]])
    options = ("--bad", f"python={python}", "--size", "4")
    result = found(tmp_path, *options, program="tests.bisect.programs:trees")
    assert result["outcome"] == "ran"
    assert result["operations"] == ["stablehlo.tanh"]


@pytest.mark.slow
def test_a_crash_of_a_sharded_program_alone_keeps_its_devices(tmp_path: Path) -> None:
    rule = {"replace": [["stablehlo.tanh", ""]], "crash": True, "only": r"num_partitions = [248]"}
    python = wrong_python(tmp_path / "wrong", **rule)
    result = found(tmp_path, "--bad", f"python={python}", "--size", "16")
    assert result["outcome"] == "crash"
    assert result["smallest"] == "size 2, float32, mesh 2x1, ordinary inputs"
    assert result["operations"] == ["stablehlo.tanh"]
    check_script(tmp_path / "bisect", python)


@pytest.mark.slow
def test_a_failure_that_comes_and_goes_takes_few_runs(tmp_path: Path) -> None:
    """Where all values are looked at in one run, only the suspicious operation is repeated."""
    rule = {"replace": [["stablehlo.tanh", "stablehlo.sine"]], "every": 2}
    python = wrong_python(tmp_path / "wrong", **rule)
    result = found(tmp_path, "--bad", f"python={python}", "--size", "4")
    assert 0 < result["rate"] < 1
    assert result["operations"] == ["stablehlo.tanh"]
    assert len(list((tmp_path / "bisect/runs").glob("*.json"))) < 200
    assert "for _ in range(" in (tmp_path / "bisect/show.py").read_text()
    check_script(tmp_path / "bisect", python)


@pytest.mark.slow
@pytest.mark.skipif(
    not version("jax").startswith("0.10."), reason="only jax 0.10 takes log(exp(x)) for x"
)
def test_a_pass_is_named_by_the_first_dump_that_is_wrong(tmp_path: Path) -> None:
    options = ("--bad", "platform=cpu", "--good", "interpreter", "--size", "4")
    result = found(tmp_path, *options, program="tests.bisect.programs:overflow")
    assert result["first_wrong"] == "algsimp"
    assert result["operations"] == ["stablehlo.exponential", "stablehlo.log"]
    report = (tmp_path / "bisect/report.md").read_text()
    assert "algsimp: the first after which it is wrong" in report


@pytest.mark.slow
def test_a_loop_is_cut_down_to_an_operation_of_a_trip(tmp_path: Path) -> None:
    rule = {"replace": [["stablehlo.tanh", "stablehlo.sine"]]}
    python = wrong_python(tmp_path / "wrong", **rule)
    options = ("--bad", f"python={python}", "--good", "platform=cpu", "--size", "4")
    result = found(tmp_path, *options, program="tests.bisect.programs:loop")
    assert result["operations"] == ["stablehlo.tanh"]
    assert len(result["trips"]) == 1
    assert "in trip" in (tmp_path / "bisect/report.md").read_text()
    # An environment that was rebuilt at the same path is run anew.
    wrong_python(tmp_path / "wrong", replace=[["stablehlo.nothing", ""]])
    ended = bisect("tests.bisect.programs:loop", *options, folder=tmp_path)
    assert ended.returncode == 2
    assert "the failure does not repeat" in ended.stderr


TANH = ("stablehlo.tanh", "stablehlo.sine")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ("sizes_of_no_mesh", TANH),
        ("no_size", TANH),
        ("lapack", TANH),
        ("region", ("stablehlo.sort", "stablehlo.nothing")),
    ],
)
def test_programs_of_other_kinds(program: str, rule: tuple[str, str], tmp_path: Path) -> None:
    python = wrong_python(tmp_path / "wrong", replace=[rule])
    options = ("--bad", f"python={python}", "--good", "platform=cpu")
    result = found(tmp_path, *options, program=f"tests.bisect.programs:{program}")
    assert result["operations"][-1] == rule[0]
    check_script(tmp_path / "bisect", python)


def test_two_ways_that_fail_alike(tmp_path: Path) -> None:
    pythons = [wrong_python(tmp_path / name, replace=[TANH], crash=True) for name in ("one", "two")]
    options = ("--bad", f"python={pythons[0]}", "--good", f"python={pythons[1]}")
    ended = bisect("tests.bisect.programs:no_size", *options, folder=tmp_path)
    assert ended.returncode == 2
    assert f"two/python fails as python={pythons[0]} does (crash): SIGABRT" in ended.stderr


def test_a_full_disk_is_not_a_failure_of_the_program(tmp_path: Path) -> None:
    code = (
        "import errno, os\n"
        "from pyreactant.check.bisect.worker import serve\n"
        "def full(request):\n"
        "    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "serve(full)\n"
    )
    child = Child([sys.executable, "-c", code], environment(PYTHONPATH=str(REPOSITORY)))
    ways = Ways(tmp_path, 1, LONG, math.inf)
    with contextlib.closing(child), pytest.raises(OSError, match="No space left on device"):
        ways.ask(child, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        (LAYERS, ["--bad", "platform=cpu"], "the failure does not repeat"),
        (LAYERS, ["--bad", "plugin=/bin/sh"], "does not start here"),
        (LAYERS, ["--bad", "plugin=/no/such"], "there is no file /no/such; correct its path"),
        (LAYERS, ["--bad", "jax==99.0"], "jax 99.0 cannot be installed"),
        (LAYERS, ["--bad", "backend=jax", "--bad", "jax==99.0"], "takes platform= and flags="),
        (LAYERS, ["--bad", "speed=2"], "--bad must be platform=cpu|gpu|tpu, flags=--xla_"),
        (LAYERS, ["--bad", "platform=cpu", "--timeout", "1s"], "the same command goes on there"),
        (LAYERS, [], "a program needs the way that is wrong, such as --bad platform=cpu"),
        (LAYERS, ["--bad", "python=aborts"], "does not start here (crash): SIGABRT"),
        (
            LAYERS,
            ["--bad", "platform=cpu", "--dtype", "float64"],
            "float64, mesh 2x4, ordinary inputs",
        ),
        ("tests.bisect.programs:callback", ["--bad", "platform=cpu"], "calls back to Python"),
        ("no-such", [], "there is no such folder"),
        (".", [], "contains no run of pyreactant crosscheck"),
    ],
)
def test_what_it_refuses(program: str, options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "aborts").write_text("#!/bin/sh\nkill -ABRT $$\n")
    (tmp_path / "aborts").chmod(0o755)
    settings = {"PIP_NO_INDEX": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = bisect(program, *options, folder=tmp_path, **settings)
    assert ended.returncode in (2, 3, 7), ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_folder_without_a_failure_is_refused(runs: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="nothing failed in this cross-check"):
        problem_of(runs)


def test_the_smallest_part_of_a_list() -> None:
    tried: list[list[int]] = []

    def holds(some: Any) -> bool:
        tried.append(list(some))
        return {3, 12} <= set(some)

    assert smallest(range(16), holds) == [3, 12]
    assert len(tried) < 60
    assert part_that(range(16), lambda some: 5 in some and 6 not in some) == [5]
    assert part_that(range(16), lambda some: False) is None


def test_how_often_a_failure_that_comes_and_goes_is_tried() -> None:
    assert Failure(Outcome.RAN, 0.1, 1.0).attempts == 1
    assert Failure(Outcome.RAN, 0.1, 0.5).attempts == 7  # 2^-7 < 0.01
    assert Failure(Outcome.RAN, 0.1, 0.1).attempts == 20


def test_the_distance_of_results() -> None:
    right = np.array([1.0, np.inf, np.nan, -4.0], np.float32)
    assert distance(right, right) == 0
    assert distance(right + np.float32(1), right) == 0.25
    assert distance(np.nan_to_num(right), right) == np.inf
    assert distance(np.array([1, 2]), np.array([1, 3])) == np.inf
    far = worst([right, right + 1], [right, right], [0.1, 0.1])
    assert (far["output"], far["element"], far["got"]) == (1, (0,), 2.0)
    near = worst([np.array([7, 2**62 + 1])], [np.array([7, 2**62])], [0])
    assert (near["element"], near["got"], near["right"]) == ((1,), 2**62 + 1, 2**62)


def test_arrays_of_every_type_are_exchanged(tmp_path: Path) -> None:
    """NumPy alone writes float8_e5m2 as a type that it does not read."""
    arrays = [np.ones((2, 3), as_dtype(name)) for name in NAMES]
    save_arrays(tmp_path / "arrays.npz", arrays)
    read = load_arrays(tmp_path / "arrays.npz")
    assert [(x.dtype.name, x.tolist()) for x in read] == [
        (x.dtype.name, x.tolist()) for x in arrays
    ]


def test_ways_are_data() -> None:
    way = parse_way(["platform=gpu", "flags=--xla_a=1", "flags=--xla_b=2"], "--bad")
    assert way.variables == {"JAX_PLATFORMS": "cuda,rocm", "XLA_FLAGS": "--xla_a=1 --xla_b=2"}
    assert parse_way(["interpreter"], "--good").interpret
