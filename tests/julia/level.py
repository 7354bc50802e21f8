"""Runs all tests that need a Julia, at one level, and prints the row for docs/verified.md.

    julia/test/level --stand-in
    julia/test/level --real-sources --project FOLDER --reactant-source FOLDER --library FILE

It first checks what it was given, and changes nothing if that does not fit: exit code 2. It ends
with 1 if a test failed, and then prints no row.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.harness import REPOSITORY
from tests.julia import place

PINS = REPOSITORY / "julia" / "test" / "versions.toml"
PROJECTS = REPOSITORY / "build" / "julia-level"
SOURCE = "PYREACTANT_TEST_REACTANT_SOURCE"
NO_LIMIT = ("--timeout", "0", "-o", "faulthandler_timeout=0")

RUNS: dict[str, tuple[tuple[str, ...], ...]] = {
    "stand-in": (
        (*NO_LIMIT, "--backend", "reactant", "tests/backend", "tests/multiprocess"),
        (*NO_LIMIT, "-m", "julia", "tests"),
    ),
    "real-sources": (
        ("tests/julia/test_xla.py",),
        (
            *("--backend", "reactant", "--reactant", "real-sources", *NO_LIMIT),
            *("tests/backend", "tests/multiprocess", "tests/reactant"),
            "tests/checkpoint/test_processes.py::test_each_start_restores_what_any_start_saved",
        ),
    ),
}
"""What pytest runs at each level."""


class Unfit(Exception):
    """Something that was given does not fit."""


@dataclass(frozen=True)
class Counts:
    """How the tests of one run ended."""

    passed: int
    failed: int
    skipped: int

    @classmethod
    def of(cls, report: Path) -> "Counts":
        """Read pytest's report in JUnit's form; one that was not written counts as a failure."""
        if not report.exists():
            return cls(0, 1, 0)
        suite = ElementTree.parse(report).getroot()[0].attrib
        failed = int(suite["failures"]) + int(suite["errors"])
        skipped = int(suite["skipped"])
        return cls(int(suite["tests"]) - failed - skipped, failed, skipped)


def julia_version(julia: str) -> str:
    """The version of a Julia that starts and is of the pinned minor version."""
    wanted = tomllib.loads(PINS.read_text())["julia"]
    found = shutil.which(julia)
    if found is None:
        raise Unfit(
            f"Julia {wanted} is needed, and there is no {julia}; name one with --julia FILE"
        )
    ran = _run([found, "--startup-file=no", "--version"])
    said = re.search(r"\d+\.\d+\.\d+\S*", ran.stdout)
    if ran.returncode or said is None:
        raise Unfit(
            f"Julia {wanted} is needed, and {found} does not start (exit code {ran.returncode}: "
            f"{_last(ran)}); name another with --julia FILE"
        )
    if said[0].split(".")[:2] != wanted.split("."):
        raise Unfit(
            f"Julia {wanted} is needed, {found} is {said[0]}; name another with --julia FILE"
        )
    return said[0]


def check_depot(environ: Mapping[str, str]) -> None:
    """Julia writes what it compiles into the first of its depots."""
    first = environ.get("JULIA_DEPOT_PATH", "").split(os.pathsep)[0]
    depot = Path(first or "~/.julia").expanduser()
    there = next(folder for folder in (depot, *depot.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise Unfit(
            f"Julia's depot {depot} cannot be written ({error.strerror}); set JULIA_DEPOT_PATH to "
            "a folder that can"
        ) from None


def check_source(folder: Path) -> None:
    """The sources of Reactant are those of the pinned version."""
    ours = tomllib.loads((REPOSITORY / "julia" / "Project.toml").read_text())
    wanted = ours["compat"]["Reactant"].removeprefix("=")
    try:
        project: dict[str, Any] = tomllib.loads((folder / "Project.toml").read_text())
    except (OSError, ValueError):
        project = {}
    if project.get("name") != "Reactant":
        raise Unfit(
            f"a checkout of Reactant.jl {wanted} is needed, and {folder} is none; name one with "
            "--reactant-source FOLDER"
        )
    if project.get("version") != wanted:
        raise Unfit(
            f"Reactant.jl {wanted} is needed, {folder} has {project.get('version')}; check out "
            f"v{wanted} there"
        )


def check_library(library: Path) -> None:
    """The library of julia/test/xla loads, and has all functions of its sources."""
    again = "build it with julia/test/xla/build.sh"
    if not library.is_file():
        raise Unfit(f"the library of julia/test/xla is needed, and {library} is no file; {again}")
    ran = _run([sys.executable, "-m", "tests.julia.xla", str(library), "", "absent"])
    if ran.returncode:
        raise Unfit(
            f"the library of julia/test/xla is needed, and {library} does not load ({_last(ran)}); "
            f"{again}"
        )
    if absent := json.loads(ran.stdout):
        raise Unfit(
            f"all functions of julia/test/xla are needed, and {library} lacks {len(absent)} of "
            f"them, such as {absent[0]}; {again}"
        )


def wanted_packages(level: str) -> dict[str, str]:
    """The packages of a level with their versions; "" is any."""
    try:
        python_call = version("juliacall")
    except PackageNotFoundError:
        raise Unfit(
            "juliacall is needed, and this Python has none; run: "
            f"{sys.executable} -m pip install -e '{REPOSITORY}[dev,reactant]'"
        ) from None
    wanted = {"PythonCall": python_call, "Preferences": "", "PrecompileTools": ""}
    return wanted | tomllib.loads(PINS.read_text()).get(level, {})


def check_packages(julia: str, project: Path, wanted: Mapping[str, str]) -> None:
    """A project has the packages, and their sources are there."""
    ran = _run([julia, *_script("list", project)])
    if ran.returncode:
        raise Unfit(f"the project {project} cannot be read ({_last(ran)}); name another")
    found = tomllib.loads(ran.stdout)
    for name, exact in wanted.items():
        if name not in found or (exact and found[name] != exact):
            raise Unfit(
                f"{f'{name} {exact}'.strip()} is needed, and the project {project} has "
                f"{found.get(name, 'none')}; run there: julia --project={project} -e "
                f"'using Pkg; Pkg.instantiate()', or name another with --project FOLDER"
            )


def make_project(julia: str, folder: Path, wanted: Mapping[str, str]) -> None:
    """A project with the packages from the package server."""
    words = [f"{name}@{exact}" if exact else name for name, exact in wanted.items()]
    with tempfile.TemporaryDirectory() as made:
        ran = _run([julia, *_script("make", Path(made) / "project"), *words])
        if ran.returncode:
            raise Unfit(
                f"the packages {', '.join(words)} are needed, and Julia could not install them "
                f"({_last(ran)}); name a project that has them with --project FOLDER"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(made) / "project", folder)


def _script(verb: str, project: Path) -> list[str]:
    script = str(PINS.parent / "project.jl")
    return ["--startup-file=no", "-O0", script, verb, str(project)]


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _last(ran: subprocess.CompletedProcess[str]) -> str:
    lines = (ran.stderr or ran.stdout).strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return [*errors, *lines[-1:], "it says nothing"][0]


def row(level: str, julia: str, counts: Sequence[Counts]) -> str:
    """The row of docs/verified.md."""
    under_test = {
        "stand-in": "the stand-in for Reactant",
        "real-sources": "Reactant's own sources on the library of julia/test/xla",
    }[level]
    results = [
        f"{c.passed} passed and {c.skipped} skipped of `pytest {' '.join(words)}`"
        for words, c in zip(RUNS[level], counts, strict=True)
    ]
    commit = _run(["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]).stdout.strip()
    versions = [f"Python {sys.version.split()[0]}"]
    versions += [f"{name} {version(name)}" for name in ("juliacall", "jax", "numpy")]
    cells = (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        f"Julia {julia}, {under_test}",
        f"the whole level at {commit}: {'; '.join(results)}",
        ", ".join(versions),
        f"`julia/test/level --{level}`",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Check, make the project, run the tests, print the row."""
    options = _parsed()
    level = "stand-in" if options.stand_in else "real-sources"
    settings = {"PYTHON_JULIACALL_OPTIMIZE": "0", **os.environ}
    try:
        julia = julia_version(options.julia)
        executable = shutil.which(options.julia) or options.julia
        check_depot(os.environ)
        wanted = wanted_packages(level)
        if level == "real-sources":
            check_source(options.reactant_source)
            check_library(options.library)
            settings[place.LIBRARY] = str(options.library.resolve())
        elif options.reactant_source:
            check_source(options.reactant_source)
        project = options.project or PROJECTS / f"{level}-{julia}-{wanted['PythonCall']}"
        if options.project is None and not project.exists():
            make_project(executable, project, wanted)
        check_packages(executable, project, wanted)
    except Unfit as error:
        print(f"julia/test/level: {error}", file=sys.stderr)
        return 2
    settings |= dict(zip(place.NAMED, (executable, str(project.resolve())), strict=True))
    if options.reactant_source:
        settings[SOURCE] = str(options.reactant_source.resolve())
    counts = [_pytest(words, settings) for words in RUNS[level]]
    if failed := sum(c.failed for c in counts):
        print(f"julia/test/level: {failed} failed: no row", file=sys.stderr)
        return 1
    print(row(level, julia, counts))
    return 0


def _pytest(words: Sequence[str], settings: Mapping[str, str]) -> Counts:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={report}", *words]
        ran = subprocess.run(argv, cwd=REPOSITORY, env=settings, check=False)
        if ran.returncode > 1:  # interrupted, or it could not begin
            sys.exit(f"julia/test/level: pytest ended with exit code {ran.returncode}: no row")
        return Counts.of(report)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="julia/test/level", description=__doc__.split("\n\n")[0])
    levels = parser.add_mutually_exclusive_group(required=True)
    levels.add_argument("--stand-in", action="store_true", help="the stand-in for Reactant's API")
    levels.add_argument("--real-sources", action="store_true", help="Reactant's own sources")
    parser.add_argument("--julia", default="julia", metavar="FILE", help="default: that on PATH")
    parser.add_argument(
        "--project",
        type=Path,
        metavar="FOLDER",
        help="a project that has the packages; the stand-in's is made in build/ without this",
    )
    parser.add_argument(
        "--reactant-source",
        type=Path,
        metavar="FOLDER",
        default=os.environ.get(SOURCE) or None,
        help=f"a checkout of Reactant.jl; default: {SOURCE}",
    )
    parser.add_argument(
        "--library",
        type=Path,
        metavar="FILE",
        default=os.environ.get(place.LIBRARY) or None,
        help=f"libReactantExtra.so of julia/test/xla/build.sh; default: {place.LIBRARY}",
    )
    options = parser.parse_args()
    needed = ("project", "reactant_source", "library") if options.real_sources else ()
    if missing := [f"--{x.replace('_', '-')}" for x in needed if getattr(options, x) is None]:
        parser.error(f"--real-sources needs {', '.join(missing)}; CONTRIBUTING.md describes them")
    return options


if __name__ == "__main__":
    sys.exit(main())
