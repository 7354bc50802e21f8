"""With a real Julia: Julia reads the preferences, and a setup precompiles what it will load."""

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyreactant.julia.preferences import find
from tests.harness import environment
from tests.julia.place import STAND_IN
from tests.setup.conftest import Here

pytestmark = pytest.mark.julia

# For each line with two folders, the project and our package, print the preferences read there.
ORACLE = """
names = ("3c362404-f566-11ee-1572-e11a4b42c853" => "xla_runtime",
         "0192cb87-2b54-54ad-80e0-3be72ad8a3c0" => "gpu")
for line in eachline(stdin)
    project, package = split(line, '\\t')
    copy!(LOAD_PATH, ["@", package])
    Base.set_active_project(joinpath(project, "Project.toml"))
    isfile(joinpath(project, "JuliaProject.toml")) &&
        Base.set_active_project(joinpath(project, "JuliaProject.toml"))
    values = [get(Base.get_preferences(Base.UUID(uuid)), name, "none set")
              for (uuid, name) in names]
    println(join(values, '\\t'))
    flush(stdout)
end
"""

UUIDS = "\n".join(
    (
        'Reactant = "3c362404-f566-11ee-1572-e11a4b42c853"',
        'Reactant_jll = "0192cb87-2b54-54ad-80e0-3be72ad8a3c0"',
    )
)
VALUES = {"xla_runtime": ["PJRT", "IFRT"], "gpu": ["cuda", "rocm", "none"]}
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "xla_runtime": st.sampled_from(VALUES["xla_runtime"]),
        "gpu": st.sampled_from(VALUES["gpu"]),
        "__clear__": st.lists(st.sampled_from(["xla_runtime", "gpu"]), max_size=2),
    },
)
PROJECT = st.builds(
    lambda section, chosen: (
        (f"[{section}]\n{UUIDS}\n" if section else "") + tables(chosen, "preferences.")
    ),
    st.sampled_from(["deps", "extras", "weakdeps", ""]),
    SETTINGS,
)
FILES: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {"Project.toml": PROJECT},
    optional={
        "JuliaProject.toml": PROJECT,
        "LocalPreferences.toml": SETTINGS.map(lambda chosen: tables(chosen, "")),
        "JuliaLocalPreferences.toml": SETTINGS.map(lambda chosen: tables(chosen, "")),
    },
)


def tables(chosen: dict[str, Any], prefix: str) -> str:
    lines = []
    for package, name in (("Reactant", "xla_runtime"), ("Reactant_jll", "gpu")):
        lines.append(f"[{prefix}{package}]")
        if name in chosen:
            lines.append(f'{name} = "{chosen[name]}"')
        if chosen.get("__clear__"):
            lines.append(f"__clear__ = {json.dumps(chosen['__clear__'])}")
    return "\n".join(lines) + "\n"


def test_preferences_are_what_julia_reads(tmp_path: Path) -> None:
    examples = count()

    @settings(max_examples=200, suppress_health_check=list(HealthCheck))
    @given(project=FILES, package=FILES)
    def agree(project: dict[str, str], package: dict[str, str]) -> None:
        folders = []
        for files in (project, package):  # new folders, because Julia caches what it has read
            folders.append(tmp_path / str(next(examples)))
            folders[-1].mkdir()
            for file, text in files.items():
                (folders[-1] / file).write_text(text)
        assert oracle.stdin is not None
        assert oracle.stdout is not None
        oracle.stdin.write("\t".join(map(str, folders)) + "\n")
        oracle.stdin.flush()
        julias = oracle.stdout.readline().rstrip("\n").split("\t")
        ours = [find(name, tuple(folders)).value or "none set" for name in VALUES]
        assert ours == julias

    with subprocess.Popen(
        [os.environ["PYREACTANT_TEST_JULIA"], "--startup-file=no", "-O0", "-e", ORACLE],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as oracle:
        agree()


@pytest.mark.timeout(600)
def test_a_setup(here: Here) -> None:
    """An offline setup in a copy of the tests' project, with the stand-in for Reactant."""
    project = here.folder / "projekt ☃"
    shutil.copytree(os.environ["PYREACTANT_TEST_JULIA_PROJECT"], project)
    variables = {
        "JULIA_LOAD_PATH": f":{STAND_IN}",
        "PYTHON_JULIAPKG_EXE": os.environ["PYREACTANT_TEST_JULIA"],
        **{k: v for k, v in os.environ.items() if k == "JULIA_DEPOT_PATH"},
    }
    without = here.run({**variables, "JULIA_LOAD_PATH": ":"}, offline=True, project=str(project))
    assert f"{project} must have Reactant" in without["message"], without
    first = _run(here, variables, project)
    assert first["ran"][-1] == "record", first
    assert first["reactant"], first
    assert first["preferences"]["xla_runtime"] == "IFRT"
    assert _run(here, variables, project)["ran"] == []
    # Reactant reads its preference when it is precompiled, so the preference existed before.
    local = project / "LocalPreferences.toml"
    local.write_text(local.read_text().replace("IFRT", "PJRT"))
    other = _run(here, variables, project)
    assert other["ran"] == ["resolve", "precompile", "record"], other
    assert other["preferences"]["xla_runtime"] == "PJRT"


def _run(here: Here, variables: dict[str, str], project: Path) -> dict[str, Any]:
    return here.run(variables, offline=True, project=str(project), real_package=True)
