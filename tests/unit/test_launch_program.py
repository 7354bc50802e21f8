"""Which words name which kind of program."""

import os
import sys
from pathlib import Path

import pytest

import pyreactant as pr
from pyreactant.process.events import Go
from pyreactant.runs.supervisor import program

SELF = (sys.executable, "-m", "pyreactant.process.supervised")
COMMAND = (*SELF[:2], "pyreactant.process.supervised.command")


@pytest.mark.parametrize(
    ("words", "kind", "argv"),
    [
        ("train.py -x 1", "python", (*SELF, "train.py", "-x", "1")),
        ("-m train -x", "python", (*SELF, "-m", "train", "-x")),
        ("app.pyz", "python", (*SELF, "app.pyz")),
        ("python train.py", "python", (*SELF, "train.py")),
        (
            "python3 -u -X d -m a",
            "python",
            (SELF[0], "-u", "-X", "d", *SELF[1:], "-m", "a"),
        ),
        ("-c pass", "python", (*SELF, "-c", "pass")),
        ("python -Wignore script", "python", (SELF[0], "-Wignore", *SELF[1:], "script")),
        ("python -c pass", "python", (*SELF, "-c", "pass")),
        ("python", "command", (*COMMAND, "python")),
        ("python -", "command", (*COMMAND, "python", "-")),
        ("python -i train.py", "command", (*COMMAND, "python", "-i", "train.py")),
        ("python -m", "command", (*COMMAND, "python", "-m")),
        ("python -mtrain", "command", (*COMMAND, "python", "-mtrain")),
        ("python --version", "command", (*COMMAND, "python", "--version")),
        ("python3.99 train.py", "command", (*COMMAND, "python3.99", "train.py")),
        ("/no/such/python train.py", "command", (*COMMAND, "/no/such/python", "train.py")),
        ("julia -t 4 train.jl x", "julia", (*COMMAND, "julia", "-t", "4", "train.jl", "x")),
        ("/opt/julia-1.11.2 x", "julia", (*COMMAND, "/opt/julia-1.11.2", "x")),
        ("/bin/echo hi", "command", (*COMMAND, "/bin/echo", "hi")),
        ("pythonic x", "command", (*COMMAND, "pythonic", "x")),
        ("-x", "command", (*COMMAND, "-x")),
    ],
)
def test_kinds(words: str, kind: str, argv: tuple[str, ...]) -> None:
    found = program.find_program(words.split())
    assert (found.kind, found.argv) == (kind, argv)


def test_the_path_that_a_program_needs(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    folder = str(tmp_path / "folder")
    found = {
        words[-1]: program.find_program(words).path
        for words in (["a.py"], ["python", "b.py"], ["-m", "c"], ["julia", "d.jl"], ["e"], [folder])
    }
    assert found == {
        "a.py": Path("a.py"),
        "b.py": Path("b.py"),
        "c": None,
        "d.jl": Path("d.jl"),
        "e": None,
        folder: Path(folder),
    }


def test_another_python_is_a_command_and_the_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    found = program.find_program([str(other), "train.py"])
    assert found.kind == "command"
    assert found.note.startswith(f"{other} is not the Python of pyreactant, {sys.executable}, so ")
    monkeypatch.setenv("PATH", str(tmp_path))
    bare = program.find_program(["python3", "train.py"])
    assert bare.kind == "python"
    assert bare.note == (
        f"python3 means {sys.executable}, with which pyreactant runs; name {other} with its path "
        "to use that one"
    )
    assert program.find_program([sys.executable, "train.py"]).note == ""


def test_what_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("print(1)")
    (tmp_path / "folder").mkdir()
    for words, message in (
        (["text"], r"'text' is neither a \.py file nor executable; run: chmod \+x text, or"),
        (["./none"], f"the command './none' does not exist in the folder {tmp_path}"),
        (["none-such"], "the command 'none-such' does not exist in a folder of PATH, or"),
        (["x" * 5000], "does not exist in a folder of PATH"),
        (["no.py"], r"the script 'no\.py' does not exist in"),
        (["python", "no.py"], r"the script 'no\.py' does not exist in"),
        (["folder"], "'folder' is a folder without __main__.py, not a script"),
    ):
        with pytest.raises(pr.FileError, match=message):
            program.check_program(program.find_program(words), words)
    for none in ([], ["-m"], ["-c"]):
        with pytest.raises(pr.InvalidArgumentError, match="name a program"):
            program.find_program(none)


def variables(settings: dict[str, str], **environ: str) -> dict[str, str]:
    go = Go("run-0", "runs", 2, "127.0.0.1:9", 0)
    return program.program_environment(
        program.find_program(["a.py"]),
        settings,
        go,
        index=1,
        token="run/0",
        stall_timeout=0.5,
        environ=environ,
    )


def test_jax_is_told_what_pyreactant_is() -> None:
    ours = {"PYREACTANT_PLATFORM": "cpu", "PYREACTANT_NUM_CPU_DEVICES": "4"}
    found = variables(ours)
    assert (found["JAX_PLATFORMS"], found["JAX_NUM_CPU_DEVICES"]) == ("cpu", "4")
    assert "JAX_LOCAL_DEVICE_IDS" not in found
    found = variables({"PYREACTANT_PLATFORM": "gpu", "PYREACTANT_LOCAL_DEVICE_IDS": "2,3"})
    assert found["JAX_PLATFORMS"] in ("cuda,cpu", "rocm,cpu")
    assert found["JAX_LOCAL_DEVICE_IDS"] == "2,3"
    assert variables({}, PYREACTANT_PLATFORM="tpu")["JAX_PLATFORMS"] == "tpu,cpu"
    assert "JAX_PLATFORMS" not in variables({})


def test_an_option_of_the_run_wins_over_the_users_variables_and_those_over_ours() -> None:
    mine = {"JAX_PLATFORMS": "cuda", "PYREACTANT_PLATFORM": "cpu"}
    assert variables({}, **mine)["JAX_PLATFORMS"] == "cuda"
    assert variables({"PYREACTANT_PLATFORM": "cpu"}, JAX_PLATFORMS="cuda")["JAX_PLATFORMS"] == "cpu"
    forced = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    assert "JAX_NUM_CPU_DEVICES" not in variables({"PYREACTANT_NUM_CPU_DEVICES": "1"}, **forced)


def test_secrets_stay_with_the_supervisor() -> None:
    found = variables({}, PYREACTANT_SECRET="x", PYREACTANT_SECRET_FILE="y", HOME="/h")
    assert not [name for name in found if name.startswith("PYREACTANT_SECRET")]
    assert found["HOME"] == "/h"
    assert found["PYREACTANT_STALL_TIMEOUT"] == "0.5"
    assert found["PYREACTANT_RUN"] == "run/0"
    assert os.environ.get("PYREACTANT_RUN") is None
