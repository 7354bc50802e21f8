"""What julia/test/level refuses, and the counts in its row; a stand-in named julia answers it."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import REPOSITORY, environment, run
from tests.julia.level import PROJECTS, Counts

JULIA = """#!/bin/sh
# Stands in for Julia: says its version, lists packages, and installs none.
case "$*" in
*--version*) echo "julia version $VERSION" ;;
*" make "*)
  mkdir -p "$5"
  echo "ERROR: expected package PythonCall to be registered" >&2
  exit 1
  ;;
*) printf '%b' "$PACKAGES" ;;
esac
"""
ALL = r'PythonCall = "0.9.37"\nPreferences = "1.5.2"\nPrecompileTools = "1.3.3"\n'
REACTANT = 'name = "Reactant"\nversion = "0.2.280"\n'

Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """What julia/test/level says when it refuses, with that Julia and an installed juliacall."""
    julia = tmp_path / "bin" / "julia"
    metadata = tmp_path / "python" / "juliacall-0.9.37.dist-info" / "METADATA"
    for file, text in (
        (julia, JULIA),
        (julia.with_name("broken"), "#!/bin/sh\necho no libjulia >&2\nexit 127\n"),
        (metadata, "Metadata-Version: 2.1\nName: juliacall\nVersion: 0.9.37\n"),
        (tmp_path / "project" / "Project.toml", "[deps]\n"),
        (tmp_path / "Reactant" / "Project.toml", REACTANT),
        (tmp_path / "half.so", "\x7fELF"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for file in julia.parent.iterdir():
        file.chmod(0o755)

    def message(*words: str, **settings: str) -> str:
        usual = {
            "VERSION": "1.12.99",
            "PACKAGES": ALL,
            "PATH": f"{julia.parent}:/usr/bin:/bin",
            "JULIA_DEPOT_PATH": str(tmp_path / "depot"),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(tmp_path / "python"),
        }
        before = contents(tmp_path), contents(PROJECTS)
        ran = run(
            [REPOSITORY / "julia" / "test" / "level", *words],
            env=environment(**usual | settings),
            cwd=tmp_path,
        )
        assert (ran.returncode, ran.stdout) == (2, ""), ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        assert (contents(tmp_path), contents(PROJECTS)) == before
        return ran.stderr

    return message


def contents(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


REAL = ("--real-sources", "--project", "project", "--reactant-source", "Reactant", "--library")


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ((), {}, "one of the arguments --stand-in --real-sources is required"),
        (("--real-sources",), {}, "needs --project, --reactant-source, --library"),
        (
            ("--stand-in", "--julia", "none"),
            {},
            "Julia 1.12 is needed, and there is no none; name one",
        ),
        (("--stand-in", "--julia", "bin/broken"), {}, "start (exit code 127: no libjulia)"),
        (("--stand-in",), {"VERSION": "1.11.9"}, "julia is 1.11.9; name another with --julia"),
        (("--stand-in",), {"JULIA_DEPOT_PATH": "/proc/none/depot"}, "set JULIA_DEPOT_PATH to a"),
        (("--stand-in",), {}, "(ERROR: expected package PythonCall to be registered); name a"),
        (
            ("--stand-in", "--project", "project"),
            {"PACKAGES": r'PythonCall = "0.9.31"\n'},
            "PythonCall 0.9.37 is needed, and the project project has 0.9.31; run there: julia",
        ),
        (
            ("--stand-in", "--project", "project"),
            {"PACKAGES": r'PythonCall = "0.9.37"\n'},
            "Preferences is needed, and the project project has none; run there: julia",
        ),
        (("--stand-in", "--reactant-source", "bin"), {}, "of Reactant.jl 0.2.280 is needed, and b"),
        ((*REAL, "none.so"), {}, "and none.so is no file; build it with julia/test/xla/build.sh"),
        ((*REAL, "half.so"), {}, "half.so does not load (OSError: "),
    ],
)
def test_what_does_not_fit_is_named(
    refused: Refused, words: tuple[str, ...], settings: dict[str, str], said: str
) -> None:
    assert said in " ".join(refused(*words, **settings).split())


def test_reactant_of_another_version(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "Reactant" / "Project.toml").write_text(REACTANT.replace("280", "281"))
    said = "Reactant.jl 0.2.280 is needed, Reactant has 0.2.281; check out v0.2.280 there"
    assert said in refused(*REAL, "half.so")


def test_a_library_without_functions(refused: Refused) -> None:
    """Any other library of this process stands in for one that was half built."""
    maps = Path("/proc/self/maps").read_text().split()
    other = next(file for file in maps if Path(file).name.startswith("libc.so"))
    assert "of them, such as " in refused(*REAL, other)


@pytest.mark.skipif(importlib.util.find_spec("juliacall"), reason="juliacall is installed")
def test_without_juliacall(refused: Refused) -> None:
    said = refused("--stand-in", PYTHONPATH="")
    assert "juliacall is needed, and this Python has none; run: " in said


def test_counts(tmp_path: Path) -> None:
    """A report that pytest did not write is a failure."""
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "@pytest.mark.skip\n"
        "def test_skipped(): pass\n"
    )
    report = tmp_path / "report.xml"
    assert Counts.of(report) == Counts(0, 1, 0)
    run([sys.executable, "-m", "pytest", f"--junitxml={report}", str(tmp_path)], cwd=tmp_path)
    assert Counts.of(report) == Counts(1, 1, 1)
