"""A setup installs what is missing, does nothing if all is done, and detects changes."""

import hashlib
import json
import resource
import tomllib
from pathlib import Path

import pytest

from tests.setup.conftest import Here, make

AGAIN = ["resolve", "precompile", "record"]
ALL = ["preferences", *AGAIN]


def test_all_of_it(here: Here) -> None:
    record = here.run()
    assert record["ran"] == ALL, record
    assert here.asked() == ["resolve", "precompile"]
    assert record["executable"] == here.julia
    assert record["project"] == str(here.project)
    assert (record["julia"], record["reactant"]) == ("1.11.5", "0.2.280")
    assert record["preferences"] == {"xla_runtime": "IFRT", "gpu": None, "gpu_version": None}
    assert any(path.endswith("pyreactant/juliapkg.json") for path in record["requirements"])
    written = json.loads((here.project / "pyreactant" / "setup.json").read_text())
    assert written == {k: v for k, v in record.items() if k not in ("ran", "steps", "code")}
    found = here.place()
    assert (found["executable"], found["project"]) == (here.julia, str(here.project))
    titles = ("preferences, 1", "Julia and its packages, 2", "compilation, 3", "record, 5")
    told = [text.partition(": ")[0] for text in record["steps"]]
    assert list(dict.fromkeys(told)) == [f"{title} of 5" for title in titles]
    assert any("Updating registry" in text for text in record["steps"])

    before = _seconds()
    again = here.run({"STAND_IN_FAIL": "resolve"})  # it must not even start Julia
    assert _seconds() - before < 2
    assert again["ran"] == []
    assert again["steps"] == []
    assert again["when"] == record["when"]
    assert here.asked() == ["resolve", "precompile"]


def test_the_preference_stands_before_anything_is_resolved(here: Here) -> None:
    here.run(gpu="cuda")
    for stage in ("resolve", "precompile"):
        seen = tomllib.loads((here.notes / f"{stage}.toml").read_text())
        assert seen == {
            "Reactant": {"xla_runtime": "IFRT"},
            "Reactant_jll": {"gpu": "cuda", "gpu_version": "12.9"},
        }
    named = tomllib.loads((here.project / "Project.toml").read_text())["deps"]
    assert {"Reactant", "Reactant_jll", "PythonCall"} <= named.keys()


@pytest.mark.slow
def test_what_changed_is_done_again(here: Here) -> None:
    here.run()
    gpu = here.run(gpu="rocm")  # other binaries
    assert gpu["ran"] == ALL
    assert gpu["preferences"]["gpu_version"] == "7.1"
    assert here.run()["ran"] == []  # the earlier choice still applies
    assert here.run(gpu="none")["preferences"]["gpu_version"] is None

    local = here.project / "LocalPreferences.toml"
    local.write_text(local.read_text().replace("IFRT", "PJRT"))
    other = here.run()  # the user's own choice stays
    assert other["ran"] == AGAIN
    assert other["preferences"]["xla_runtime"] == "PJRT"

    assert here.run({"STAND_IN_VERSION": "1.11.6"})["julia"] == "1.11.6"  # Julia was replaced
    (here.project / "Manifest.toml").unlink()  # the project is damaged
    assert here.run({"STAND_IN_VERSION": "1.11.6"})["ran"] == AGAIN

    [packages] = here.prefix.glob("lib/python*/site-packages")
    (packages / "other").mkdir()
    (packages / "other" / "juliapkg.json").write_text("{}")  # another package needs Julia
    assert here.run({"STAND_IN_VERSION": "1.11.6"})["ran"] == AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("name", ["JULIA_CPU_TARGET", "JULIA_DEPOT_PATH"])
def test_a_variable_that_changed(here: Here, name: str) -> None:
    here.run()
    assert here.run({name: "generic"})["ran"] == AGAIN
    assert here.run({name: "generic"})["ran"] == []


def test_our_julia_package_changed(here: Here) -> None:
    here.run()
    source = here.folder / "package" / "_julia_package" / "src" / "PyReactant.jl"
    source.write_text("module PyReactant end # changed\n")
    assert here.run()["ran"] == AGAIN


def test_a_lost_pointer_is_written_again(here: Here) -> None:
    here.run()
    (here.prefix / "share" / "pyreactant" / "julia.json").unlink()
    assert here.run()["ran"] == ["record"]
    assert here.place()["project"] == str(here.project)


def test_a_damaged_pointer_of_the_user(here: Here) -> None:
    """It comes before that of the environment, so it must go although that is right."""
    here.run()
    digest = hashlib.sha256(str(here.prefix).encode()).hexdigest()[:16]
    own = here.folder / "home/.config/pyreactant/julia" / f"{digest}.json"
    own.parent.mkdir(parents=True)
    own.write_text("{")
    assert here.run()["ran"] == ["record"]
    assert here.place()["project"] == str(here.project)


def test_a_project_of_the_users_own(tmp_path: Path) -> None:
    here = make(tmp_path / "mit Leerzeichen und ünïcode ☃")
    project = here.folder / "mein Projekt"
    project.mkdir()
    (project / "Project.toml").write_text(
        '# mine\nname = "Mine"\n\n[deps]\nExample = "7876af07-990d-54b4-ab0e-23690620f79a"\n\n'
        '[extras]\nReactant_jll = "0192cb87-2b54-54ad-80e0-3be72ad8a3c0"\n\n'
        '[preferences.Reactant_jll]\nlibReactantExtra_path = "/mine.so"\n'
    )
    record = here.run(project=str(project))
    assert record["project"] == str(project), record
    assert here.place()["project"] == str(project)
    text = (project / "Project.toml").read_text()
    assert "# mine" in text
    assert "Example" in tomllib.loads(text)["deps"]
    # juliapkg drops preferences that are not its own, so the setup saves them elsewhere.
    assert tomllib.loads((project / "LocalPreferences.toml").read_text()) == {
        "Reactant": {"xla_runtime": "IFRT"},
        "Reactant_jll": {"libReactantExtra_path": "/mine.so"},
    }
    assert here.run()["ran"] == []  # it is the active project now
    assert not here.project.exists()


def test_which_julia(here: Here) -> None:
    other = here.folder / "other-julia"
    other.write_text(Path(here.julia).read_text())
    other.chmod(0o755)
    assert here.run()["executable"] == here.julia
    no_variable = {"PYTHON_JULIAPKG_EXE": ""}
    named = here.run(no_variable, julia=str(other))
    assert named["executable"] == str(other), named
    assert named["ran"] == AGAIN
    assert here.run(no_variable)["ran"] == []  # as before


def test_a_version_of_julia_is_left_to_juliapkg(here: Here) -> None:
    tools = here.folder / "tools"
    tools.mkdir()
    (tools / "julia").symlink_to(here.julia)
    settings = {"PYTHON_JULIAPKG_EXE": "", "PATH": f"{tools}:/usr/bin:/bin"}
    found = here.run(settings, julia="1.11", offline=True, project=str(_with_reactant(here)))
    assert found["executable"] == str(tools / "julia"), found
    other = here.run(settings, julia="1.10", offline=True)
    assert other["error"] == "RequirementError"
    assert "Julia must be installed, but is not found (--offline installs none)" in other["message"]
    assert here.run(settings, offline=True)["code"] == 0, "what failed is not kept"


def test_any_version_of_reactant(here: Here) -> None:
    """Every process accepts what the setup accepted, until a setup asks for the pinned one."""
    newer = {"STAND_IN_REACTANT": "0.2.299"}
    refused = here.run(newer)
    assert refused["error"] == "RequirementError"
    assert "Reactant must be 0.2.280" in refused["message"]
    assert _compat(here)["Reactant"] == "=0.2.280"
    accepted = here.run(newer, any_version=True)
    assert (accepted["reactant"], accepted["any_version"]) == ("0.2.299", True), accepted
    assert accepted["ran"] == AGAIN
    assert "Reactant" not in _compat(here)
    assert _compat(here)["PythonCall"] == "=0.9.37", "other packages' requirements stay"
    assert here.place()["any_version"] == "True"
    assert here.run(newer)["ran"] == []  # the choice still applies
    again = here.run(newer, any_version=False)
    assert "Reactant must be 0.2.280" in again["message"]
    assert _compat(here)["Reactant"] == "=0.2.280"


def _compat(here: Here) -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((here.project / "Project.toml").read_text())["compat"]
    return found


# In place of pip: it writes what the wheel of libtpu would have.
PIP = """
import sys
from pathlib import Path

folder = Path(sys.argv[sys.argv.index("--target") + 1])
print("pip gets", sys.argv[-1])
name, _, version = sys.argv[-1].partition("==")
(folder / "libtpu").mkdir(parents=True)
(folder / "libtpu" / "libtpu.so").touch()
metadata = folder / f"libtpu-{version}.dist-info" / "METADATA"
metadata.parent.mkdir()
metadata.write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
"""


def test_libtpu(here: Here) -> None:
    """The release with the number of Reactant's nightly build: installed here, or by pip."""
    assert here.run()["libtpu"] is None  # no TPU here
    offline = here.run(tpu=True, offline=True)
    assert offline["error"] == "RequirementError"
    assert "needs libtpu==0.0.45 of PyPI" in offline["message"]
    [packages] = here.prefix.glob("lib/python*/site-packages")
    (packages / "pip").mkdir()
    for name, text in {"__init__": "", "__main__": PIP}.items():
        (packages / "pip" / f"{name}.py").write_text(text)
    chosen = here.run(tpu=True)
    library = here.project / "pyreactant" / "libtpu" / "libtpu" / "libtpu.so"
    assert chosen["libtpu"] == {"path": str(library), "version": "0.0.45"}, chosen
    told = [text.partition(": ") for text in chosen["steps"]]
    assert [text for title, _, text in told if title == "libtpu, 4 of 5"] == [
        "finding or installing libtpu 0.0.45",
        "pip gets libtpu==0.0.45",
        f"0.0.45 (PyPI; Reactant 0.2.280 names the build 0.0.45.dev20260728), {library}",
    ]
    assert here.place()["libtpu"] == str(library)
    assert here.run()["ran"] == []
    library.unlink()
    own = packages / "libtpu"
    own.mkdir()
    (own / "libtpu.so").touch()
    (packages / "libtpu-0.0.45.dist-info").mkdir()
    (packages / "libtpu-0.0.45.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: libtpu\nVersion: 0.0.45\n"
    )
    installed = here.run()
    assert installed["ran"] == ["resolve", "precompile", "libtpu", "record"], installed
    assert installed["libtpu"]["path"] == str(own / "libtpu.so")
    named = here.run({"TPU_LIBRARY_PATH": here.julia})
    assert named["libtpu"] == {"path": here.julia, "version": None}
    missing = here.run({"TPU_LIBRARY_PATH": "/no/libtpu.so"})
    assert "libtpu must be at /no/libtpu.so" in missing["message"]
    assert here.run(tpu=False)["libtpu"] is None


def test_offline_takes_what_is_there(here: Here) -> None:
    record = here.run(offline=True, project=str(_with_reactant(here)))
    assert record["ran"] == ALL, record
    assert here.asked() == ["precompile"]
    seen = (here.notes / "precompile.env").read_text().splitlines()
    assert "JULIA_PKG_OFFLINE=true" in seen


def test_the_environment_of_julia(here: Here) -> None:
    here.run({"LD_PRELOAD": "", "PYTHONPATH": "/mine", "JULIA_DEPOT_PATH": str(here.folder / "d")})
    for stage in ("resolve", "precompile"):
        lines = (here.notes / f"{stage}.env").read_text().splitlines()
        seen = dict(line.split("=", 1) for line in lines if "=" in line)
        assert "LD_PRELOAD" not in seen
        assert seen["JULIA_PYTHONCALL_EXE"] == here.python
        assert seen["JULIA_CONDAPKG_BACKEND"] == "Null"
        without, mine = seen["PYTHONPATH"].split(":")
        assert mine == "/mine"
        for name in ("jax", "jaxlib", "tensorflow"):
            assert "raise ImportError" in Path(without, f"{name}.py").read_text()
    record = json.loads((here.project / "pyreactant" / "setup.json").read_text())
    assert record["depot"] == str(here.folder / "d")


@pytest.mark.parametrize("name", ["PYTHON_JULIAPKG_PROJECT", "PYTHON_JULIACALL_PROJECT"])
def test_a_project_that_the_environment_names(here: Here, name: str) -> None:
    project = here.folder / "named"
    project.mkdir()
    settings = {name: str(project)}
    if name == "PYTHON_JULIACALL_PROJECT":
        settings["PYTHON_JULIACALL_EXE"] = here.julia
    assert here.run(settings)["project"] == str(project)


def _with_reactant(here: Here) -> Path:
    project = here.folder / "project"
    project.mkdir()
    deps = '[deps]\nReactant = "3c362404-f566-11ee-1572-e11a4b42c853"\n'
    (project / "Project.toml").write_text(deps)
    (project / "Manifest.toml").write_text("[[deps.Reactant]]\n")
    return project


def _seconds() -> float:
    """Processor seconds of child processes that have ended, independent of other load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
