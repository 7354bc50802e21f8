"""`pyreactant bisect` with PJRT plugins that do not load or abort; with ``--plugin``: make xla."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bisect.test_bisect import LAYERS, bisect, found, ran

CREATE, COMPILE, EXECUTE = 10, 20, 55  # places in PJRT_Api
PLAIN = {"XLA_FLAGS": ""}  # the plugin's XLA does not know all flags of jaxlib's


@pytest.fixture
def plugin(request: pytest.FixtureRequest) -> Path:
    given: str | None = request.config.getoption("--plugin")
    if given is None:
        pytest.skip("no plugin was named (--plugin): make xla")
    return Path(given).resolve()


def aborting(plugin: Path, folder: Path, at: int, word: str = "") -> str:
    """A way with the plugin, which aborts in one function, on modules with a word."""
    made, source = folder / "plugin.so", Path(__file__).with_name("wrong_plugin.c")
    settings = (f"-DAT={at}", f"-DWORD={json.dumps(word)}", f"-DREAL={json.dumps(str(plugin))}")
    subprocess.run(["gcc", "-shared", "-fPIC", *settings, "-o", made, source], check=True)
    return f"plugin={made}"


def test_the_plugin_itself_is_right(plugin: Path, tmp_path: Path) -> None:
    """It has fewer devices than a program gets on virtual CPU devices."""
    ended = bisect(LAYERS, "--size", "8", "--bad", f"plugin={plugin}", folder=tmp_path, **PLAIN)
    assert ended.returncode == 2
    assert "(size 8, float32, mesh 2x2, ordinary inputs)" in ended.stderr
    assert "the failure does not repeat" in ended.stderr


@pytest.mark.parametrize(
    ("length", "why"),
    [
        (100, "(invalid): JaxRuntimeError: INTERNAL: Failed to open "),
        (100_000, "(crash): SIGBUS; correct what --good and --bad say"),
    ],
)
def test_a_plugin_that_is_cut_short(plugin: Path, length: int, why: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    with plugin.open("rb") as whole:
        cut.write_bytes(whole.read(length))
    ended = bisect(LAYERS, "--bad", f"plugin={cut}", folder=tmp_path, **PLAIN)
    assert ended.returncode == 3
    assert f"plugin={cut} does not start here {why}" in ended.stderr


def test_a_plugin_that_aborts_at_its_start(plugin: Path, tmp_path: Path) -> None:
    way = aborting(plugin, tmp_path, CREATE)
    ended = bisect(LAYERS, "--bad", way, folder=tmp_path, **PLAIN)
    assert ended.returncode == 3
    assert f"{way} does not start here (crash): SIGABRT; correct what" in ended.stderr


@pytest.mark.parametrize("at", [COMPILE, EXECUTE])
def test_a_plugin_that_aborts_on_an_operation_is_cut_down(
    at: int, plugin: Path, tmp_path: Path
) -> None:
    way = aborting(plugin, tmp_path, at, "tanh_v")  # as portable StableHLO names it
    result = found(tmp_path, "--size", "8", "--bad", way, **PLAIN)
    assert (result["outcome"], result["message"]) == ("crash", "SIGABRT")
    assert result["smallest"] == "size 2, float32, mesh 1x1, ordinary inputs"
    assert result["operations"] == ["stablehlo.tanh"]
    report = (tmp_path / "bisect/report.md").read_text()
    assert "failure     the process crashes (SIGABRT)" in report
    for library, code in ((way.removeprefix("plugin="), -6), (plugin, 0)):
        settings = {**PLAIN, "PJRT_NAMES_AND_LIBRARY_PATHS": f"bisected:{library}"}
        script = (sys.executable, "show.py")
        ended = ran(*script, folder=tmp_path / "bisect", JAX_PLATFORMS="bisected", **settings)
        assert ended.returncode == code, ended.stderr
