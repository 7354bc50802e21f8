"""`plan` from request to flags: for an absent slice, on CPU devices, interrupted, and wrong."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import pyreactant as pr
from pyreactant.arrays.text import parse_mesh, parse_spec
from pyreactant.base.slices.topology import topology
from pyreactant.fit.layouts.layouts import Layout
from pyreactant.fit.plan.candidate import Candidate, ranked
from pyreactant.fit.plan.plan import plan
from pyreactant.fit.plan.report import Plan
from tests import harness
from tests.harness import environment, quiet, until
from tests.tpu.recorded import without_flags


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pyreactant", "plan", *arguments]
    return harness.run(argv, env=without_flags(**settings), timeout=280)


@pytest.mark.slow
def test_the_bound(compiler: Path) -> None:
    """For 16384^2 in bfloat16 on v6e-16, XLA's estimate is at most 0.65 of that of spec (x, y)."""
    seen: list[tuple[int, int, float | None]] = []
    found = plan(
        topology="v6e-16",
        size=16384,
        dtype="bfloat16",
        tried=2,
        progress=lambda done, total, best: seen.append((done, total, best and best.seconds)),
    )
    best, reference = found.best, found.reference
    assert best is not None
    assert reference is not None
    assert reference.specs == (("x", "y"), ("x", "y"))
    assert reference.mesh.shape == (4, 4)
    assert best.xla_seconds is not None
    assert reference.xla_seconds is not None
    assert best.xla_seconds <= 0.65 * reference.xla_seconds
    assert best.seconds is not None
    assert reference.seconds is not None
    assert best.seconds <= 0.65 * reference.seconds
    assert best.bytes_per_device is not None
    assert best.bytes_per_device <= topology("v6e-16").hbm_bytes
    assert [done for done, _, _ in seen] == [1, 2, 3]
    assert {total for _, total, _ in seen} == {3}
    assert seen[-1][2] == best.seconds
    assert not found.interrupted
    assert list(found.candidates) == sorted(found.candidates, key=lambda one: one.order)


@pytest.mark.slow
def test_closed_forms_are_bounds_of_what_is_compiled(compiler: Path) -> None:
    found = plan(topology="v6e-16", size=2048, dtype="bfloat16", tried=4)
    for one in [*found.candidates, found.reference]:
        assert one is not None
        assert one.bytes_per_device is not None
        assert one.layout.memory_bytes <= one.bytes_per_device


def test_command(compiler: Path) -> None:
    # The command then finds the answers in the cache.
    plan(topology="v6e-16", size=16384, dtype="bfloat16", tried=2)
    arguments = ("--topology", "v6e-16", "--size", "16384", "--dtype", "bfloat16", "--tried", "2")
    ran = run(*arguments, XDG_CACHE_HOME=str(compiler))
    assert ran.returncode == 0, ran.stderr
    assert quiet(ran.stderr)
    assert "plan of matmul 16384x16384 @ 16384x16384 bfloat16 for v6e-16" in ran.stdout
    assert "all times are estimates, nothing was run" in ran.stdout
    assert "2 compiled, and R, the default layout of matmul_sharded\n" in ran.stdout
    assert "\nlinks: time until the busiest link has carried its data\n" in ran.stdout
    assert "of the time of R, the default layout of matmul_sharded" in ran.stdout
    flags = "--size 16384 --dtype bfloat16 --mesh x=4,y=4 --spec x,None --y-spec None,y"
    assert f"pyreactant run --on slurm --nodes NODES -- -m pyreactant matmul {flags}" in ran.stdout
    assert "slurm, tpu: replace NODES by the number of nodes" in ran.stdout
    assert "float32 products" not in ran.stdout
    again = run(*arguments, "--json", XDG_CACHE_HOME=str(compiler))
    report = json.loads(again.stdout)
    assert report["candidates"][0]["texts"] == ["x,None", "None,y", "x,y"]
    commands = report["commands"]
    account = "--name NAME --project PROJECT --zone ZONE"
    slices = f"--topology v6e-16 --slices 1 {account}"
    assert commands["tpu"] == f"pyreactant run --on tpu {slices} -- -m pyreactant matmul {flags}"
    small = flags.replace("16384", "512")
    cpu = "--platform cpu --devices-per-process 16"
    assert commands["matmul"] == f"pyreactant matmul {small} {cpu}"
    two = "--platform cpu --processes 2 --devices-per-process 8"
    assert commands["run"] == f"pyreactant run {two} -- -m pyreactant matmul {small}"
    here = "--platform cpu --processes 1 --devices-per-process 16"
    asked = "--size 512 --dtype bfloat16"
    specs = "--mesh x=4,y=4 --spec 'x,None;None,y'"
    assert commands["crosscheck"] == f"pyreactant crosscheck matmul {asked} {here} {specs}"


@pytest.mark.slow
def test_the_plan_is_cross_checked_here(compiler: Path, tmp_path: Path) -> None:
    """Run the command that the plan prints: the same mesh and specs, on CPU devices."""
    found = plan(topology="v6e-4", size=512, dtype="bfloat16", tried=1)
    command = shlex.split(found.commands()["crosscheck"])
    argv = [sys.executable, "-m", *command, "--backends", "jax", "--out", str(tmp_path / "out")]
    ran = harness.run(argv, env=environment())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "matmul: right on jax" in ran.stdout
    argv = [sys.executable, "-m", *shlex.split(found.commands()["matmul"])]
    alone = harness.run(argv, env=environment())
    assert alone.returncode == 0, alone.stderr
    assert "right: error" in alone.stdout


@pytest.mark.slow
def test_several_slices(compiler: Path) -> None:
    found = plan(topology="v6e-4", num_slices=2, size=2048, dtype="bfloat16", tried=2)
    assert found.best is not None
    assert found.best.mesh.axis_names[0] == "slice"
    assert found.devices == 8


def test_another_program(compiler: Path) -> None:
    found = plan(
        "jax.nn:softmax", topology="v6e-4", shapes=[(4096, 512)], dtype="bfloat16", tried=3
    )
    assert found.best is not None
    assert found.best.specs == (("x", None),)  # each row is on one device, so nothing is sent
    assert found.best.sent_bytes == 0
    assert found.commands() == {}
    assert found.reference is None


def test_the_shapes_of_a_program_by_its_size(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "linear.py").write_text(
        "import pyreactant as pr\n"
        "shapes = (('n', 'n'), ('n',))\n"
        "program = pr.Program('linear', jax='linear:f', oracle='linear:f', inputs=shapes)\n"
        "def f(x, w):\n    return x @ w\n"
    )
    argv = [str(Path(sys.executable).with_name("pyreactant")), "plan", "linear:program", "--json"]
    argv += ["--topology", "v6e-4", "--size", "64", "--tried", "1"]
    ran = harness.run(argv, cwd=tmp_path, env=without_flags(), timeout=280)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["shapes"] == [[64, 64], [64]]


def test_interrupted(compiler: Path, tmp_path: Path) -> None:
    """Ctrl-C prints the present results and leaves no compiler behind."""
    log = tmp_path / "log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.tpu.interrupted"],
            env=environment(XDG_CACHE_HOME=str(tmp_path)),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 120
            while b"done 1" not in log.read_bytes() and time.monotonic() < deadline:
                assert child.poll() is None, log.read_text()
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            code = child.wait(60)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    text = log.read_text()
    assert code == 130, text
    assert "interrupted: these are the results so far" in text
    kept = f"are kept in {tmp_path / 'pyreactant' / 'preflight'}; the same command continues there"
    assert f"interrupted: {kept}" not in text  # --no-cache
    assert "interrupted: nothing is kept" in text
    assert "pyreactant matmul --size 512" in text
    until(lambda: not children_of(tmp_path))  # they end when their output is closed


def children_of(cache: Path) -> list[str]:
    """Running processes with this test's cache folder in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(cache).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_cpu_devices_are_measured(tmp_path: Path) -> None:
    page = ("--html", str(tmp_path / "plan.html"))
    given = ("--platform", "cpu", "--devices", "4", "--size", "128")
    ran = run(*given, "--tried", "2", *page)
    assert ran.returncode == 0, ran.stderr
    assert "2 layouts" not in ran.stdout
    assert "128x128 float32" in ran.stdout
    assert "for 4 cpu devices of this machine" in ran.stdout
    assert "on 4 cpu devices of this machine</h1>" in (tmp_path / "plan.html").read_text()
    assert "measured" in ran.stdout
    assert "estimate" not in ran.stdout
    line = next(text for text in ran.stdout.splitlines() if text.startswith("matmul:"))
    words = shlex.split(line.removeprefix("matmul:"))
    here = harness.run([sys.executable, "-m", *words], env=environment())
    assert here.returncode == 0, here.stderr
    assert "right: error" in here.stdout


def test_devices_that_are_not_here() -> None:
    ran = run("--platform", "gpu", "--devices", "1", "--size", "64")
    assert ran.returncode == 3
    message = ran.stderr.splitlines()[-1]  # on a slow machine after what is being done
    assert message.startswith("error: platform 'gpu' was requested, but JAX has: cpu")


def made_up(seconds: float | None, **given: Any) -> Candidate:
    mesh = pr.Mesh((2, 2), ("x", "y"))
    layout = Layout(mesh, (("x", None), (None, "y")), ("x", "y"), given.pop("memory", 100.0), 0.0)
    return Candidate(layout=layout, seconds=seconds, **given)


def test_order() -> None:
    fast, slow = made_up(1.0, sent_bytes=5.0), made_up(2.0, sent_bytes=0.0)
    tie = made_up(1.0004, sent_bytes=1.0)  # equal times to three digits, and fewer bytes
    small = made_up(1.0, sent_bytes=5.0, memory=50.0)
    failed, large = made_up(None, fits=False, trouble="killed"), made_up(0.5, fits=False)
    assert ranked([failed, large, slow, fast, small, tie]) == (
        tie,
        small,
        fast,
        slow,
        large,
        failed,
    )


def made_up_plan(*candidates: Candidate, reference: Candidate | None = None, **given: Any) -> Plan:
    settings: dict[str, Any] = {
        "program": "matmul",
        "shapes": ((8, 8), (8, 8)),
        "dtype": "float32",
        "precision": None,
        "topology": topology("v6e-4"),
        "platform": "tpu",
        "devices": 4,
        "hbm_bytes": 2**30,
        "candidates": ranked(candidates),
        "reference": reference,
        "considered": 5,
        "too_large": 1,
        "interrupted": False,
        "peak_bytes": None,
        "at_once": 1,
    }
    return Plan(**{**settings, **given})


@pytest.mark.parametrize(
    ("first", "default", "best", "said"),
    [
        (1.0, 1.004, "R", "R, the default layout of matmul_sharded, ties with 1: their times"),
        (1.0, 1.5, "1", "1 takes 0.67 of the time of R, the default layout of matmul_sharded"),
        (1.5, 1.0, "R", "R, the default layout of matmul_sharded, is the fastest"),
    ],
)
def test_the_default_layout_is_preferred_in_a_tie(
    first: float, default: float, best: str, said: str
) -> None:
    reference = made_up(default, xla_seconds=default, bytes_per_device=9.0, reference=True)
    found = made_up_plan(made_up(first, xla_seconds=first), reference=reference)
    assert found.best is dict(found.rows)[best]
    assert said in " ".join(str(found).split())
    assert said in found.to_html()
    assert len(found.tied) == 1 + ("ties" in said)


def test_str_is_the_report() -> None:
    found = made_up_plan(made_up(1e-3, xla_seconds=1e-3), made_up(2e-3, xla_seconds=2e-3))
    assert str(found) == found.text()
    assert found.text().startswith("plan of matmul 8x8 @ 8x8 float32 for v6e-4\n")
    assert not [line for line in found.text().splitlines() if line != line.rstrip()]
    page = found.to_html()
    assert page.count("<svg") == 3  # x, y and the product
    assert ">0, 1</text>" in page  # the devices of a block of x


def test_narrow() -> None:
    found = made_up_plan(made_up(1e-3, xla_seconds=1e-3), made_up(2e-3, xla_seconds=2e-3))
    file = io.StringIO()
    Console(file=file, width=40).print(found, crop=False)
    commands = tuple(found.commands())
    lines = [line for line in file.getvalue().splitlines() if not line.startswith(commands)]
    assert "  mesh: x=2,y=2" in lines
    assert max(map(len, lines)) <= 40


def test_commands_of_a_layout_that_crosscheck_cannot_have() -> None:
    mesh = pr.Mesh((2, 2), ("x", "y"), (0, 2, 1, 3))
    layout = Layout(mesh, (("x", None), (None, "y")), ("x", "y"), 100.0)
    found = made_up_plan(Candidate(layout=layout, seconds=1.0), shapes=((8, 12000), (12000, 6)))
    lines = found.commands()
    assert set(lines) == {"matmul", "run", "slurm", "tpu"}
    assert "--m 8 --k 512 --n 6" in lines["matmul"]
    assert "--m 8 --k 12000 --n 6" in lines["slurm"]
    assert (
        "matmul, run: for CPU devices of this machine, 4 in total with smaller sizes (8x512x6)."
        in " ".join(str(found).split())
    )
    assert "There is no crosscheck command" in str(found)


def test_flags_read_back() -> None:
    ids = (0, 2, 1, 3)
    mesh = pr.Mesh((2, 2), ("slice", "x"), ids)
    specs = ((("slice", "x"), None), (None, "x"))
    words = Layout(mesh, specs, ("slice", None), 1.0).flags()
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options == {
        "--mesh": "slice=2,x=2",
        "--spec": "slice+x,None",
        "--y-spec": "None,x",
        "--out-spec": "slice,None",
        "--device-ids": "0,2,1,3",
    }
    assert parse_mesh(options["--mesh"], ids) == mesh
    assert pr.NamedSharding(mesh, parse_spec(options["--spec"])) == pr.NamedSharding(mesh, specs[0])
    usual = Layout(mesh, (("x", None), ("x", None)), ("x", None), 1.0)
    assert "--y-spec" not in usual.flags()
    assert "--out-spec" not in usual.flags()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 64}, "give topology to .* or platform .*; got neither"),
        ({"size": 64, "topology": "v6e-4", "platform": "cpu"}, "devices; not both"),
        ({"topology": "v6e-4"}, "matmul needs size="),
        ({"topology": "v6e-4", "size": 0}, "size must be a whole number from 1, or three"),
        ({"topology": "v6e-5", "size": 64}, "the nearest are v6e-4"),
        ({"topology": "v6e-4", "size": 64, "devices": 4}, "a slice has a fixed number"),
        ({"topology": "v6e-4", "size": 64, "tried": 0}, "tried must be a whole number from 1"),
        ({"platform": "gpu", "size": 64}, "give the number of this machine's GPUs"),
        ({"platform": "tpu", "size": 64}, "platform must be cpu or gpu, got 'tpu'"),
        (
            {"topology": "v6e-4", "program": "softmaxx", "shapes": [(8, 8)]},
            "^no program 'softmaxx': did you mean 'softmax'. `pyreactant crosscheck --list` shows",
        ),
        (
            {"topology": "v6e-4", "program": "softmax", "shapes": [(8, 0)]},
            r"whole numbers from 1, got \(8, 0\)",
        ),
        ({"topology": "v6e-4", "program": "jax.nn:softmax"}, "the shape of each argument"),
        (
            {"platform": "cpu", "program": "jax.nn:relu", "shapes": [(8,)]},
            "only matmul can be meas",
        ),
        ({"topology": "v6e-4", "size": 2**21}, "none of .* layouts of .* fits: the blocks alone"),
    ],
)
def test_messages(given: dict[str, Any], message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        plan(**given)


def test_plan_is_plain_data() -> None:
    one = made_up(1e-3, xla_seconds=1e-3)
    found = made_up_plan(one, precision="highest")
    assert json.loads(json.dumps(found.to_dict()))["commands"]["matmul"] == (
        "pyreactant matmul --size 8 --dtype float32 --precision highest --mesh x=2,y=2 "
        "--spec x,None --y-spec None,y --platform cpu --devices-per-process 4"
    )
    assert found.best is one
    assert not found.measured
