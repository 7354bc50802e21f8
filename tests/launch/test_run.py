"""Supervised programs behave as under Python itself, including their end; real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import environment
from tests.launch.runs import RUN, left_behind, run_local, run_script, script

SAYS = """
import json, os, sys
print(json.dumps([sys.argv, sys.path[0], __file__, __name__, __spec__ and __spec__.name]))
"""
STRANGE = ["two words", "ü ∈ Σ", "--quiet", "-m", "", "--", "$HOME", "a\nb", "'\""]


def plain(folder: Path, *argv: str) -> list[str]:
    """The output of Python itself."""
    ran = subprocess.run(
        [sys.executable, *argv], cwd=folder, check=True, capture_output=True, env=environment()
    )
    return ran.stdout.decode().splitlines()


@pytest.mark.parametrize(
    "program",
    [["sub/says.py"], ["./link.py"], ["-m", "pkg.says"], ["-m", "pkg"], ["pkg"], ["pkg.zip"]],
)
def test_the_program_sees_what_python_would_show_it(program: list[str], tmp_path: Path) -> None:
    for name in ("sub/says.py", "pkg/says.py", "pkg/__main__.py", "pkg/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if name.endswith("__init__.py") else SAYS)
    (tmp_path / "link.py").symlink_to("sub/says.py")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "zipfile",
            "-c",
            str(tmp_path / "pkg.zip"),
            str(tmp_path / "pkg/__main__.py"),
        ],
        check=True,
    )
    expected = plain(tmp_path, *program, *STRANGE)
    run = run_local(tmp_path, "--", *program, *STRANGE)
    assert run.code == 0, run
    seen = json.loads(run.log(0))
    if program[0].startswith("pkg"):  # runpy shows the whole path of a folder or an archive
        seen[0][0] = str(Path(seen[0][0]).relative_to(tmp_path))
    assert seen == json.loads(expected[0])
    assert run.report["command"] == [*program, *STRANGE]


@pytest.mark.parametrize(
    ("code", "wanted"),
    [("256", 1), ("-256", 1), ("512", 1), ("257", 1), ("0", 0), ("False", 0), ("'x'", 1)],
)
def test_an_exit_code_that_the_system_would_cut_to_0(
    code: str, wanted: int, tmp_path: Path
) -> None:
    run = run_script(tmp_path, f"import sys; sys.exit({code})")
    assert run.code == wanted, run
    assert run.report["cause"] == ("user" if wanted else "done")
    cut = f"sys.exit({code}) would end with 0, as if the program had succeeded; it ends with 1"
    assert (cut in run.log(0).decode()) == (code in ("256", "-256", "512"))


def test_option_m_of_run_itself(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS)
    run = run_local(tmp_path, "-m", "says", "--quiet", "x")
    assert json.loads(run.log(0))[0][1:] == ["--quiet", "x"], run


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        (["missing.py"], 2, "the script 'missing.py' does not exist in "),
        (["folder"], 2, "'folder' is a folder without __main__.py, not a script"),
        (["python", "-"], 2, "'python -' reads its program from standard input, which is empty"),
        (["python", "-u"], 2, "'python -u' reads its program from standard input"),
        (["python", "-X", "dev"], 2, "'python -X dev' reads its program from standard input"),
        (["sh"], 2, "'sh' reads its program from standard input"),
        (["bash", "-eu", "-s"], 2, "'bash -eu -s' reads its program from standard input"),
        (["-m", ".m"], 2, "the module '.m' has a relative name, which needs a package"),
        (["-m"], 2, "name a program: pyreactant run -- SCRIPT"),
        ([], 2, "PROGRAM [ARGUMENTS] is missing"),
    ],
)
def test_what_is_no_program(program: list[str], code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    run = run_local(tmp_path, "--", *program)
    assert run.code == code
    assert words in run.finished[0].log
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            "import no_such_module",
            1,
            "raised ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("x = = 1", 1, "raised SyntaxError: invalid syntax (script.py, line 1)"),
        ("import sys; sys.exit('the reason')", 1, "exit code 1"),
        ("import sys; sys.exit(3)", 1, "exit code 3"),
        ("import sys; sys.exit(42)", 1, "exit code 42"),
        ("import sys; sys.exit(-1)", 1, "exit code 255"),
        ("import os; os._exit(3)", 1, "ended with exit code 3"),
        ("import os; os.abort()", 6, "was killed by SIGABRT"),
        ("import pyreactant as pr; raise pr.MismatchError('x')", 5, "raised MismatchError: x"),
        (
            "import pyreactant as pr; raise pr.InvalidArgumentError('x')",
            2,
            "InvalidArgumentError: x",
        ),
        (
            "class Mute(Exception):\n    __str__ = None\nraise Mute",
            1,
            "raised Mute: <the exception has no text",
        ),
        ("raise ValueError(chr(0xdc80))", 1, "raised ValueError: \udc80"),
    ],
)
def test_how_programs_fail(text: str, code: int, words: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, text, "-n", "1" if "x" in words else "2")
    assert run.code == code, run
    report = run.report
    assert words in report["summary"]
    assert report["exit_code"] == code
    first = report["first_error"]
    if "raise" in text:
        assert "script.py" in first["traceback"]
        assert "process/supervised" not in first["traceback"]
    if "reason" in text:
        assert first["log_tail"] == "the reason\n"
        assert "the reason" in run.finished[0].log
    if "= =" in text:
        assert b"    x = = 1" in run.log(0)
    assert not left_behind(tmp_path)


NO_FAILURE = [
    "import atexit\natexit.register(lambda: print('__main__ is', __name__, y))\ny = 1",
    "import threading\nthreading.Thread(target=lambda: 1 / 0).start()",
    "import sys; sys.exit(0)",
    "import sys; sys.exit(None)",
    "import sys, os, time\nsys.stdout.close(); sys.stderr.close(); os.closerange(0, 3)\n"
    "time.sleep(0.3)",
    "import os, time\nos.closerange(3, 100); time.sleep(0.6)",
    "import os, sys, time\nif os.fork() == 0: sys.exit(3)\nassert os.wait()[1] == 3 << 8\n"
    "time.sleep(0.6)",
    "import os\nif os.fork() == 0: raise ValueError\nassert os.wait()[1] == 1 << 8",
]
"""Each is the program of one process of a run."""


def test_what_is_no_failure(tmp_path: Path) -> None:
    text = f"import os\nexec({NO_FAILURE}[int(os.environ['PYREACTANT_PROCESS_INDEX'])])"
    run = run_script(tmp_path, text, "-n", str(len(NO_FAILURE)))
    assert run.code == 0, run
    assert run.report["cause"] == "done"
    assert run.report["first_error"] is None
    assert run.log(0) == b"__main__ is __main__ 1\n"
    assert b"ZeroDivisionError" in run.log(1)


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    run = run_local(tmp_path, "--", "-m", "no_such")
    assert run.code == 2
    assert "there is no module 'no_such' in " in run.finished[0].log
    assert not (tmp_path / "run").exists()


def test_usage_errors_of_the_command_line_keep_their_code(tmp_path: Path) -> None:
    run = run_local(tmp_path, "--", "-m", "pyreactant", "matmul", "--bad-option")
    assert run.code == 2, run
    assert "no such option: --bad-option" in run.report["first_error"]["log_tail"]


POOL = """
import multiprocessing, sys

def square(x):
    return x * x

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(square, range(4)))
"""


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_multiprocessing(how: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, POOL, arguments=[how])
    assert run.code == 0, run
    assert run.log(0) == b"[0, 1, 4, 9]\n"
    assert not left_behind(tmp_path)


CHILDREN = """
import os, subprocess, sys, time
for session in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"],
                     start_new_session=session)
if sys.argv[1] == "fails" and os.environ["PYREACTANT_PROCESS_INDEX"] == "1":
    raise ValueError("broken")
if sys.argv[1] == "fails":
    time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["ends", "fails"])
def test_nothing_stays_of_what_programs_started(how: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, CHILDREN, "-n", "2", arguments=[how])
    assert run.code == (0 if how == "ends" else 1), run
    assert not left_behind(tmp_path)


def test_the_secret_is_not_the_programs(tmp_path: Path) -> None:
    text = "import os; print([k for k in os.environ if 'SECRET' in k or 'FDS' in k])"
    run = run_script(
        tmp_path, text, PYREACTANT_SECRET="0123456789abcdef", PYREACTANT_SECRET_FILE="/x"
    )
    # The programs get another secret, for their own connections.
    assert run.log(0) == b"['PYREACTANT_MEETING_SECRET']\n"


def test_a_folder_with_a_run_is_not_taken_again(tmp_path: Path) -> None:
    assert run_script(tmp_path, "print(1)").code == 0
    again = run_script(tmp_path, "print(2)")
    assert again.code == 2
    assert "exists and is not empty; name another with --out" in again.finished[0].log
    assert again.log(0) == b"1\n"


def test_without_a_folder_each_run_makes_its_own(tmp_path: Path) -> None:
    program = script(tmp_path, "print(1)")
    for _ in range(2):
        subprocess.run(
            [*RUN, program], cwd=tmp_path, env=environment(), check=True, capture_output=True
        )
    assert len(list(tmp_path.glob("pyreactant-runs/*/report.json"))) == 2


LEAVES_FILES_OPEN = """
import atexit, os, sys, time
if os.environ["PYREACTANT_PROCESS_INDEX"] == "0":
    time.sleep(1000)
atexit.register(time.sleep, 1000)  # as JAX's, which waits for the others
text, binary = open("text", "w"), open("binary", "wb")
text.write("results")
binary.write(b"results")
{end}
"""


@pytest.mark.parametrize("end", ["raise ValueError(1)", "sys.exit(4)"])
def test_what_a_program_that_fails_wrote_is_kept(end: str, tmp_path: Path) -> None:
    """Also in files that it has not closed, although its exit hooks do not end."""
    run = run_script(tmp_path, LEAVES_FILES_OPEN.format(end=end), "-n", "2")
    assert run.code == 1, run
    assert (tmp_path / "text").read_text() == (tmp_path / "binary").read_text() == "results"
