"""Invalid requests and failures: each has its message."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.sharding import Aval
from pyreactant.base import child
from pyreactant.base.child import ChildLostError
from pyreactant.fit.compiler import ask
from pyreactant.fit.preflight.preflight import preflight
from tests.harness import REPOSITORY, environment, until

MESH = pr.Mesh((2, 2), ("x", "y"))
X = Aval((8, 8), np.dtype("float32"), pr.NamedSharding(MESH, ("x", "y")))


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"topology": "v6e-17", "size": 64},
            pr.InvalidArgumentError,
            "no Cloud TPU slice is called 'v6e-17'; the nearest are v6e-16",
        ),
        (
            {"mesh": pr.Mesh((2, 4), ("x", "y")), "size": 64},
            pr.ShardingError,
            r"Mesh\(x=2, y=4\) uses 8 of the 16 devices of v6e-16; the compiler takes whole "
            r"slices only: use a mesh of 16 such as Mesh\(x=4, y=4\)$",
        ),
        (
            {"mesh": pr.Mesh((8, 4), ("x", "y")), "size": 64},
            pr.ShardingError,
            "needs 32 devices, but v6e-16 has 16; use a mesh of 16",
        ),
        (
            {"mesh": pr.Mesh((12,), ("x",), range(12)), "spec": ("x",), "size": 12},
            pr.ShardingError,
            "uses 12 of the 16 devices of v6e-16",
        ),
        (
            {"size": 66},
            pr.ShardingError,
            r"dimension 0 of shape \(66, 66\) has size 66, which is not divisible .* 64 or 68",
        ),
        ({"size": 64, "out_spec": ("x", "z")}, pr.ShardingError, "names axis 'z'"),
        (
            {"size": (64, 64, 66), "y_spec": (None, None), "out_spec": ("x", "y")},
            pr.ShardingError,
            r"dimension 1 of shape \(64, 66\)",
        ),
        ({"size": 0}, pr.InvalidArgumentError, "size must be a whole number from 1, or three"),
        ({"size": 8.0}, pr.InvalidArgumentError, "size must be a whole number from 1, or three"),
        ({"size": (8, 8)}, pr.InvalidArgumentError, r"or three of them \(m, k, n\), got \(8, 8\)"),
        ({"size": 8, "static": {}}, pr.InvalidArgumentError, "static= cannot be given for a prog"),
        ({"size": None}, pr.InvalidArgumentError, "matmul needs size=n or"),
        ({"size": 64, "dtype": "float42"}, pr.DTypeError, "unknown dtype 'float42'"),
        ({"size": 64, "dtype": "bool"}, pr.DTypeError, "must hold numbers"),
        ({"size": 64, "precision": "utmost"}, pr.InvalidArgumentError, "known are: default"),
        (
            {"program": "softmaxx", "size": 64},
            pr.InvalidArgumentError,
            "no program 'softmaxx': did you mean 'softmax'. .* your own as 'package.module:",
        ),
        (
            {"program": "softmax", "size": 64},
            pr.InvalidArgumentError,
            "size= cannot be given for a program that has arguments",
        ),
        (
            {"backend": "torch", "size": 64},
            pr.InvalidArgumentError,
            "unknown backend 'torch'; a program is lowered by one of: jax, reactant",
        ),
    ],
)
def test_found_before_a_compiler_starts(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        preflight(**{"topology": "v6e-16", **arguments})


@pytest.mark.usefixtures("no_compiler")
def test_wrong_arguments_of_a_program() -> None:
    def look(*args: Any, **options: Any) -> None:
        program = options.pop("program", pr.Program("f", jax="jax.numpy:add"))
        preflight(program, *args, topology="v6e-4", **options)

    with pytest.raises(pr.InvalidArgumentError, match="give the arguments to compile it for"):
        look()
    with pytest.raises(pr.InvalidArgumentError, match=r"argument 1 .* needs a shape, a dtype and"):
        look(X, np.zeros(3))
    with pytest.raises(pr.InvalidArgumentError, match=r"size=, y_spec= cannot be given for a"):
        look(X, X, size=8, y_spec=("x",))
    with pytest.raises(pr.InvalidArgumentError, match="'f' has no jax body"):
        look(X, program=pr.Program("f", julia="+"))
    with pytest.raises(pr.InvalidArgumentError, match=r"fixed shapes, .* got \(None, 8\)"):
        look(replace(X, shape=(None, 8)))
    with pytest.raises(pr.InvalidArgumentError, match=r"static values go to another process"):
        look(X, static={"f": print})
    with pytest.raises(pr.ShardingError, match=r"out_sharding must be a pyreactant.NamedSharding"):
        look(X, out_sharding=("x", "y"))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("positive", "has dynamic shapes, which depend on the values .* use size= or jnp.where"),
        (
            "fails",
            r"trace the program: ValueError \(at .*programs.py, line \d+\): cannot use",
        ),
        ("absent", "cannot import jax='tests.tpu.programs:absent'"),
    ],
)
def test_programs_that_cannot_be_traced(name: str, message: str) -> None:
    with pytest.raises(pr.InvalidArgumentError, match=message):
        preflight(f"tests.tpu.programs:{name}", X, topology="v6e-4")


def test_versions_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"jax": "0.12.0.1", "jaxlib": "0.12.0.1", "libtpu": "0.0.42.1"}
    wants = ["numpy>=2", 'libtpu==0.0.50.*; extra == "tpu"']
    monkeypatch.setattr(ask, "package_version", lambda package: have.get(package))
    monkeypatch.setattr("importlib.metadata.requires", lambda package: wants)
    pair = (
        r"jax 0.12.0.1 requires libtpu==0.0.50.\*, got libtpu 0.0.42.1; run: "
        r"python -m pip install 'libtpu==0.0.50.\*'"
    )
    with pytest.raises(pr.RequirementError, match=pair):
        preflight("matmul", topology="v6e-4", size=8)
    del have["libtpu"]
    with pytest.raises(pr.RequirementError, match=r"requires libtpu==0.0.50.\*, which is not inst"):
        preflight("matmul", topology="v6e-4", size=8)
    have["libtpu"] = "0.0.50.1"
    assert ask.versions()["libtpu"] == "0.0.50.1"
    wants.clear()
    have["libtpu"] = "0.1"
    assert ask.versions()["libtpu"] == "0.1"  # this jax requires no version
    have.clear()
    with pytest.raises(pr.RequirementError, match="compiles with jax, which is not installed"):
        preflight("matmul", topology="v6e-4", size=8)
    assert pr.RequirementError.exit_code == 3


def small() -> bool:
    return preflight("matmul", topology="v6e-4", size=8, dtype="bfloat16").cached


@pytest.mark.usefixtures("compiler")
def test_damaged_entries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # other workers read the shared one
    small()
    (path,) = ask.answers_folder().glob("*.json.gz")
    whole = path.read_bytes()
    said = {"answer": ask.read_answer(path.name.partition(".")[0])}
    monkeypatch.setattr(ask, "compile_in_child", lambda *arguments: said)
    assert small()
    other = gzip.compress(json.dumps({"key": "another", "answer": said["answer"]}).encode())
    for damage in (b"", whole[: len(whole) // 2], b"rubbish", whole[:-9] + bytes(9), other):
        path.write_bytes(damage)
        assert not small()  # deleted and created again
        assert small()


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match=r"cannot be written \(Not a directory: .*--no-cache"):
        assert not small()


def test_the_cache_forgets_what_is_longest_unused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(4):
        ask.write_answer(f"{number}", {"noise": os.urandom(1000).hex()})
        os.utime(ask.answers_folder() / f"{number}.json.gz", (number, number))
    monkeypatch.setattr(ask, "LIMIT", 3000)
    ask.write_answer("4", {"noise": os.urandom(1000).hex()})
    assert [ask.read_answer(f"{n}") is not None for n in range(5)] == [False] * 3 + [True] * 2
    assert not list(ask.answers_folder().glob(".*.partial"))


def test_a_relative_cache_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert ask.answers_folder() == Path.home() / ".cache/pyreactant/preflight"


@pytest.mark.usefixtures("real_compiler")
def test_too_slow() -> None:
    with pytest.raises(pr.DeadlineError, match=r"took longer than 0.2 s and was ended; allow more"):
        preflight("matmul", topology="v6e-4", size=8, cache=False, timeout=0.2)


@pytest.mark.usefixtures("real_compiler")
def test_a_killed_child(monkeypatch: pytest.MonkeyPatch) -> None:
    real = child._exchange

    def converse(child: Any, request: Any, known: Any) -> Any:
        threading.Timer(0.3, child.kill).start()
        return real(child, request, known)

    monkeypatch.setattr(child, "_exchange", converse)
    with pytest.raises(ChildLostError, match="was killed by SIGKILL; something on this machine"):
        preflight("matmul", topology="v6e-4", size=8, cache=False)
    assert ChildLostError.exit_code == 6


@pytest.mark.usefixtures("real_compiler")
def test_a_child_that_ends_itself() -> None:
    with pytest.raises(
        ChildLostError, match=r"killed by SIGABRT; libtpu aborts on .*: Check failed: size"
    ):
        preflight("tests.tpu.programs:aborts", X, topology="v6e-4")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_child_ends_with_us(how: signal.Signals, compiler: Path, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    settings = environment(XDG_CACHE_HOME=str(compiler), TEST_PID_FILE=str(file))
    program = "tests.tpu.programs:prints_and_sleeps"
    argv = ["preflight", program, "--topology", "v6e-4", "--shape", "8x8", "--dtype", "float32"]
    parent = subprocess.Popen(
        [sys.executable, "-m", "pyreactant", *argv],
        env=settings,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        child = int(until(lambda: file.exists() and file.read_text()))
        parent.send_signal(how)
        out, err = parent.communicate(timeout=20)
    finally:
        parent.kill()
    until(lambda: not Path(f"/proc/{child}").exists())
    assert out == ""
    if how == signal.SIGINT:
        assert parent.returncode == 130
        kept = f"compilations that finished are kept in {compiler / 'pyreactant' / 'preflight'}"
        assert err.splitlines()[-1].startswith(f"interrupted: {kept}")
        assert "Traceback" not in err
