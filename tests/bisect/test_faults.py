"""`pyreactant bisect` with calls that end early, full disks, 64-bit types, failures that have gone.

Each result is that of a call without the fault.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bisect.compilers import wrong_python
from tests.bisect.test_bisect import LAYERS, bisect, check_script, found, ran
from tests.jobs.disk import small_disk

pytestmark = pytest.mark.slow

TANH = [["stablehlo.tanh", "stablehlo.sine"]]


def kept(folder: Path) -> dict[str, int]:
    """When each run was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("runs/*.json")}


def partial(folder: Path) -> bool:
    """Whether there is no result, or one that is marked."""
    result = folder / "bisect.json"
    if not result.exists():
        return True
    marked = "unfinished  the same command goes on here" in (folder / "report.md").read_text()
    return marked and not json.loads(result.read_text())["complete"]


def test_calls_that_the_time_limit_ended_go_on(tmp_path: Path) -> None:
    python = wrong_python(tmp_path / "wrong", replace=TANH)
    options = ("--bad", f"python={python}", "--size", "8")
    limit, out = 2.0, tmp_path / "bisect"
    codes: list[int] = []
    before: dict[str, int] = {}
    while not codes or codes[-1] == 7:
        ended = bisect(LAYERS, *options, "--timeout", f"{limit}s", "--json", folder=tmp_path)
        codes.append(ended.returncode)
        after = kept(out)
        assert before.items() <= after.items()
        assert ended.returncode != 7 or partial(out)
        limit, before = limit * 1.5, after
    assert (codes[0], codes[-1]) == (7, 0), ended.stderr
    assert json.loads(ended.stdout) == found(tmp_path, *options, "--out", "whole")


def test_another_question_does_not_get_an_earlier_answer(tmp_path: Path) -> None:
    python = wrong_python(tmp_path / "wrong", replace=TANH)
    options, out = ("--bad", f"python={python}", "--size", "4"), tmp_path / "bisect"
    result = found(tmp_path, *options)
    files = [out / name for name in ("bisect.json", "report.md", "show.py")]
    # The same question leaves its result until there is another one.
    assert bisect(LAYERS, *options, "--timeout", "0.01s", folder=tmp_path).returncode == 7
    assert all(file.exists() for file in files)
    runs = kept(out)
    for other in (
        ("--size", "8", "--timeout", "0.01s"),
        ("--size", "4", "--good", "plugin=/bin/sh"),
    ):
        bisect(LAYERS, "--bad", f"python={python}", *other, folder=tmp_path)
        assert not any(file.exists() for file in files)
        assert runs.items() <= kept(out).items()
        assert found(tmp_path, *options) == result
    # Nor does it if the same way is right now.
    wrong_python(tmp_path / "wrong", replace=[["stablehlo.nothing", ""]])
    assert bisect(LAYERS, *options, folder=tmp_path).returncode == 2
    assert not any(file.exists() for file in files)


def test_a_hang_is_waited_for_once(tmp_path: Path) -> None:
    """Later, a module has the time that the right way took, many times over."""
    python = wrong_python(tmp_path / "wrong", replace=TANH, hang=True)
    options = ("--bad", f"python={python}", "--size", "4", "--each", "60s")
    result = found(tmp_path, *options, program="tests.bisect.programs:tangent")
    assert (result["outcome"], result["operations"]) == ("hang", ["stablehlo.tanh"])
    runs = [json.loads(path.read_text()) for path in (tmp_path / "bisect/runs").glob("*.json")]
    within = sorted(run["within"] for run in runs if run["outcome"] == "hang")
    assert (within[-1], within[-2] < 60) == (60, True)


def on_small_disk(folder: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Two calls: the disk is full in the first one, and cleared before the second one."""
    disk, command = folder / "disk", [sys.executable, "-m", "pyreactant", "bisect"]
    call = shlex.join([*command, LAYERS, *map(str, options), "--out", str(disk / "out"), "--json"])
    room = shlex.quote(str(disk / "room"))
    script = f"""
        head -c 800000 /dev/zero > {room}; {call} > first; echo $? >> first
        cp -r {disk}/out half; rm {room}; exec {call}"""
    return ran(*small_disk(disk, 1), "sh", "-c", script, folder=folder)


def test_a_full_disk_keeps_what_was_found(tmp_path: Path) -> None:
    python = wrong_python(tmp_path / "wrong", replace=TANH)
    options = ("--bad", f"python={python}", "--size", "8")
    ended = on_small_disk(tmp_path, *options)
    assert (tmp_path / "first").read_text() == "3\n"
    advice = "No space left on device; free some space there, then run it again"
    assert ended.stderr == f"error: cannot write {tmp_path}/disk/out: {advice}\n"
    assert partial(tmp_path / "half")
    assert kept(tmp_path / "half")
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == found(tmp_path, *options)


def test_a_limit_of_file_sizes_is_named(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pyreactant", "bisect", LAYERS, "--bad", "platform=cpu")
    ended = ran(
        "sh",
        "-c",
        'ulimit -f 8; exec "$0" "$@"',
        *command,
        folder=tmp_path,
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert ended.returncode == 3
    advice = "File too large; raise the limit of a file's size (ulimit -f), then run it again"
    assert ended.stderr == f"error: cannot write bisect: {advice}\n"


@pytest.mark.parametrize(("dtype", "word"), [("float64", "f64"), ("complex128", "complex<f64>")])
def test_types_of_64_bits_stay_where_only_they_are_wrong(
    dtype: str, word: str, tmp_path: Path
) -> None:
    python = wrong_python(tmp_path / "wrong", replace=TANH, only=word)
    options = ("--bad", f"python={python}", "--size", "4", "--dtype", dtype)
    result = found(tmp_path, *options, program="tests.bisect.programs:tangent")
    assert result["smallest"] == f"size 2, {dtype}, mesh 1x1, ordinary inputs"
    assert result["operations"] == ["stablehlo.tanh"]
    check_script(tmp_path / "bisect", python)


HASH = """
module @hash {{
  func.func @main(%x: tensor<6x4x{0}>) -> tensor<6x4x{0}> {{
    %odd = stablehlo.constant dense<{1}> : tensor<6x4x{0}>
    %product = stablehlo.multiply %x, %odd : tensor<6x4x{0}>
    %sum = stablehlo.add %product, %odd : tensor<6x4x{0}>
    return %sum : tensor<6x4x{0}>
  }}
}}
"""


@pytest.mark.parametrize(("word", "odd"), [("i64", 2**62 + 1), ("ui64", 2**63 + 1)])
@pytest.mark.parametrize("good", [(), ("--good", "platform=cpu")])
def test_whole_numbers_of_64_bits(
    good: tuple[str, ...], word: str, odd: int, tmp_path: Path
) -> None:
    """They are larger than what float64 holds exactly."""
    (tmp_path / "hash.mlir").write_text(HASH.format(word, odd))
    kind = "np.int64" if word == "i64" else "np.uint64"
    (tmp_path / "hash.py").write_text(
        "import numpy as np\n"
        "import pyreactant as pr\n"
        "def oracle(x):\n"
        f"    return x * {kind}({odd}) + {kind}({odd})\n"
        "program = pr.Program('hash', stablehlo='hash.mlir', oracle='hash:oracle')\n"
    )
    python = wrong_python(tmp_path / "wrong", replace=[["stablehlo.multiply", "stablehlo.xor"]])
    options = ("--bad", f"python={python}", *good)
    result = found(tmp_path, *options, program="hash.py:program")
    assert result["operations"] == ["stablehlo.multiply"]
    assert f"tensor<1x1x{word}>" in result["module"]
    assert int(result["got"]) != int(result["right"])
    check_script(tmp_path / "bisect", python)


@pytest.mark.parametrize(
    ("good", "message"),
    [
        (["flags=--xla_a=1", "platform=cpu"], "are the same way"),
        (["platform=cpu", "flags=--xla_a=1", f"python={sys.executable}"], "are the same way"),
        (["interpreter"], "agree with interpreter, so the failure does not repeat"),
    ],
)
def test_two_ways_that_are_equal(good: list[str], message: str, tmp_path: Path) -> None:
    flag = "flags=--xla_a=1" if "same" in message else "flags=--xla_cpu_enable_fast_math=false"
    words = [word for one in good for word in ("--good", one)]
    bad = ("--bad", "platform=cpu", "--bad", flag, "--size", "4")
    ended = bisect("tests.bisect.programs:unjudged", *words, *bad, folder=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_a_failure_of_a_cross_check_and_one_that_has_gone(tmp_path: Path) -> None:
    """The folder of a cross-check is cut down while the program is wrong, and refused later."""
    (tmp_path / "turns.py").write_text(
        "from pathlib import Path\n"
        "import pyreactant as pr\n"
        "def body(x):\n"
        "    return x + 1 if Path('wrong').exists() else x * 2\n"
        "def oracle(x):\n"
        "    return x * 2\n"
        "turns = pr.Program('turns', jax='turns:body', oracle='turns:oracle', inputs=(('n',),))\n"
    )
    (tmp_path / "wrong").touch()
    command = (sys.executable, "-m", "pyreactant", "crosscheck", "turns:turns", "--quick")
    checked = ran(*command, "--backends", "jax", "--out", "check", folder=tmp_path)
    assert checked.returncode == 5, checked.stdout + checked.stderr
    result: Any = found(tmp_path, program="check")
    assert (result["cause"], result["bad"]) == ("program", "platform=cpu")
    (tmp_path / "wrong").unlink()
    ended = bisect("check", folder=tmp_path)
    assert ended.returncode == 2
    assert "check: three runs of 'turns'" in ended.stderr
    assert "the failure does not repeat" in ended.stderr
