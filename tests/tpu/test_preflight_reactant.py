"""`preflight --backend reactant` without Julia: the request to it, and failures.

The text that Reactant would write is given, or a script of the test replaces Julia.
"""

import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.lowering import reactant as asking
from pyreactant.arrays.sharding import Aval
from pyreactant.base import child
from pyreactant.base.child import ChildLostError
from pyreactant.base.slices.topology import topology
from pyreactant.fit.preflight.preflight import preflight
from pyreactant.fit.request import PreflightRequest, find_program
from tests.harness import REPOSITORY, pyreactant

TEXT = (Path(__file__).parent / "stablehlo" / "reactant_matmul.mlir").read_text()
MESH = pr.Mesh((2, 2), ("x", "y"))
X = Aval((8, 8), np.dtype("float32"), pr.NamedSharding(MESH, ("x", "y")))
MATMUL: dict[str, Any] = {
    "topology": "v6e-16",
    "size": (4096, 1024, 2048),
    "dtype": "bfloat16",
    "backend": "reactant",
}
VERSIONS = {"julia": "1.12.6", "Reactant": "0.2.280"}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The answer of the child that lowers; a test reads the request from "asked"."""
    answer: dict[str, Any] = {"text": TEXT, "results": None, "versions": VERSIONS}

    def ask(module: str, environ: Any, question: Any, **rest: Any) -> dict[str, Any]:
        answer["asked"] = question
        return answer

    monkeypatch.setattr(asking, "ask_child", ask)
    monkeypatch.setattr("pyreactant.fit.preflight.compile.check_julia", lambda *words: None)
    return answer


@pytest.mark.usefixtures("compiler")
def test_what_reactant_writes_is_compiled(said: dict[str, Any]) -> None:
    report = preflight("matmul", **MATMUL)
    assert (report.program, report.source, report.fits) == ("matmul", "reactant", True)
    assert [a.shape for a in report.arguments] == [(4096, 1024), (1024, 2048)]
    assert report.arguments[0].in_module == "tensor<1024x4096> in the module"
    assert report.outputs[0].block == (1024, 512)
    assert report.outputs[0].spec == "x,y"
    assert "Reactant 0.2.280, julia 1.12.6, jax " in report.text()
    assert report.versions["Reactant"] == "0.2.280"
    asked = said["asked"]
    assert (asked["kind"], asked["devices"], asked["several"]) == ("reactant", 16, False)
    assert asked["program"] == {"name": "matmul", "julia": "*", "julia_project": None}
    assert [a["shape"] for a in asked["arguments"]] == [[4096, 1024], [1024, 2048]]
    assert asked["out_shardings"][0]["spec"] == ["x", "y"]


@pytest.mark.usefixtures("compiler")
def test_blocks_of_results_that_the_module_leaves_open(said: dict[str, Any]) -> None:
    """Reactant's form: a constraint inside the program sets the sharding of a result."""
    head, _, rest = TEXT.partition("(tensor<2048x4096xbf16> {")
    text = f"{head}tensor<2048x4096xbf16>{rest.partition('})')[2]}"
    asked = '    %4 = sdy.sharding_constraint %2 <@mesh, [{"y"}, {}]> : tensor<4096x2048xbf16>\n'
    said["text"] = text.replace("    %3 =", f"{asked}    %3 =").replace("pose %2", "pose %4")
    report = preflight("matmul", out_spec=("y", None), **MATMUL)
    assert report.outputs[0].block == (1024, 2048)
    assert report.outputs[0].spec == "y,None"
    other = preflight("matmul", **MATMUL)
    assert other.cached  # the text is the same
    assert (other.outputs[0].block, other.outputs[0].spec) == ((1024, 2048), "")


@pytest.mark.usefixtures("compiler")
def test_a_module_in_another_form(said: dict[str, Any]) -> None:
    """If the dimensions were not reversed, the report would be wrong, so it is an error."""
    with pytest.raises(pr.PyReactantError, match=r"must take .*\(4096, 512\).* in another form"):
        preflight("matmul", **{**MATMUL, "size": (4096, 512, 2048)})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("RequirementError", pr.RequirementError), ("InvalidArgumentError", pr.InvalidArgumentError)],
)
@pytest.mark.usefixtures("compiler")
def test_errors_of_the_runtime_keep_their_kind(
    said: dict[str, Any], kind: str, expected: type[Exception]
) -> None:
    said.clear()
    said.update({"failed": {"kind": kind, "words": ["no luck in Julia"]}})
    with pytest.raises(expected, match=r"^no luck in Julia$"):
        preflight("matmul", **MATMUL)


def test_names() -> None:
    assert find_program("matmul", "reactant") is None
    gram = find_program("gram", "reactant")
    assert gram == find_program("gram", "jax")
    assert gram is not None
    assert gram.julia == "PyReactant.Programs.gram"
    assert find_program("LinearAlgebra.tril", "reactant") == pr.Program(
        "tril", julia="LinearAlgebra.tril"
    )
    assert find_program("numpy:sum", "jax") == pr.Program("sum", jax="numpy:sum")
    found = find_program("tests.crosscheck.user_programs:right", "reactant")
    assert found is not None
    assert found.name == "right"


@pytest.mark.usefixtures("no_compiler", "said")
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("softmaxx", "name a Julia function as 'Module.function', or a Program as"),
        ("jax.numpy:matmul", "must be a pyreactant.Program, got "),
        ("Not a.name", "julia= must be a name such as 'Module.function'"),
        (pr.Program("p", jax="a:b"), r"has no julia body; give julia='Module.function', or its S"),
        (pr.Program("p", julia="A.b"), "give the arguments to compile it for"),
    ],
)
def test_wrong_programs(program: Any, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        preflight(program, topology="v6e-4", backend="reactant", **_less(program))


def _less(program: Any) -> dict[str, Any]:
    return {} if isinstance(program, (str, pr.Program)) else {"size": 8}


@pytest.mark.usefixtures("no_compiler")
def test_no_juliacall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        pr.RequirementError,
        match=r"juliacall is not installed: .*pyreactant\[reactant\]', then: pyreactant setup; or ",
    ):
        preflight("matmul", **MATMUL)


run = partial(pyreactant, "preflight", "--topology", "v6e-16", folder=REPOSITORY)


@pytest.mark.parametrize("options", [("--backend", "reactant"), ("--diff",)])
def test_no_julia_is_exit_code_3(options: tuple[str, ...], tmp_path: Path) -> None:
    settings = {
        "PYTHON_JULIACALL_EXE": str(tmp_path / "julia"),
        "PYTHON_JULIACALL_PROJECT": str(tmp_path),
    }
    ran = run("--size", "64", *options, **settings)
    assert ran.returncode == 3, ran.stderr
    assert "backend 'reactant' lowers programs in Julia" in ran.stderr
    assert "or give the program's StableHLO as a file (--stablehlo)" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--diff", "--backend", "reactant"),
            "lowers PROGRAM with both runtimes; leave --backen",
        ),
        (("--diff", "--hlo", "x"), "--diff compares two programs, but --hlo writes one; use"),
        (("--stablehlo", "x", "--backend", "jax"), "give PROGRAM or --stablehlo, or both with --d"),
        (("--backend", "torch", "--size", "8"), "unknown backend 'torch'"),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str, ...], message: str) -> None:
    ran = run(*options)
    assert ran.returncode == 2
    assert message in ran.stderr


@pytest.fixture
def fake_julia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A script in place of Julia; it is first started with --version."""

    def make(body: str) -> Path:
        script = tmp_path / "julia"
        script.write_text(f"#!{sys.executable}\nimport os, time\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        (tmp_path / "Project.toml").touch()
        monkeypatch.setenv("PYTHON_JULIACALL_EXE", str(script))
        monkeypatch.setenv("PYTHON_JULIACALL_PROJECT", str(tmp_path))
        return tmp_path

    return make


def request(backend: str = "reactant") -> PreflightRequest:
    program = pr.Program("double", julia="Base.identity")
    return PreflightRequest(program, (X,), topology("v6e-4"), None, None, {"n": (1, 2)}, backend)


def test_what_surrounds_the_child(
    fake_julia: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is not a process of a run, has the slice's devices, and gives Julia its own stdin.

    Julia makes its standard input non-blocking. If it shared the child's, the child would
    mistake that for the end of its parent.
    """
    folder = fake_julia(
        "os.chdir(os.path.dirname(__file__))\n"
        "open('environment', 'w').write('\\n'.join(os.environ))\n"
        "open('stdin', 'w').write(os.readlink('/proc/self/fd/0'))\n"
        "print('julia version 1.9.9')"
    )
    monkeypatch.setenv("PYREACTANT_NUM_PROCESSES", "2")
    monkeypatch.setenv("TPU_WORKER_ID", "1")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3 --xla_other=1")
    with pytest.raises(pr.RequirementError, match=r"Julia must be 1.10.3 or newer, got 1\.9\.9: "):
        lower(request(), 60)
    names = (folder / "environment").read_text().splitlines()
    assert not [n for n in names if n == "PYREACTANT_NUM_PROCESSES" or n.startswith("TPU_")]
    assert (folder / "stdin").read_text() == os.devnull
    assert asking.environment()["XLA_FLAGS"] == "--xla_other=1"


def lower(asked: PreflightRequest, timeout: float) -> asking.ReactantModule:
    question = {**asked.to_dict(), "devices": asked.topology.devices}
    return asking.lower(asked.program.name, question, timeout)


SLEEPS = "open(os.path.dirname(__file__) + '/pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"


def test_too_slow(fake_julia: Callable[[str], Path]) -> None:
    folder = fake_julia(SLEEPS)
    with pytest.raises(
        pr.DeadlineError, match=r"lowering 'double' in Julia took longer than 4 s .*--timeout"
    ):
        lower(request(), 4)
    assert _is_gone(folder)


def test_killed(fake_julia: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_julia(SLEEPS)
    real = child._exchange

    def converse(child: Any, *rest: Any) -> Any:
        def kill() -> None:
            while not (folder / "pid").exists():
                time.sleep(0.05)
            child.kill()

        threading.Thread(target=kill, daemon=True).start()
        return real(child, *rest)

    monkeypatch.setattr(child, "_exchange", converse)
    with pytest.raises(
        ChildLostError, match="the process that lowers with Reactant was killed by SIGKILL; somet"
    ):
        lower(request(), 60)
    assert _is_gone(folder)


def _is_gone(folder: Path) -> bool:
    """Whether the child's descendant has ended too."""
    pid = int((folder / "pid").read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, 9)
    return False
