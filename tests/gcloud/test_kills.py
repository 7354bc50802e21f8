"""A launcher that ends at any API call leaves nothing; after SIGKILL, gc removes the rest.

The launcher creates, waits, and fails to reach absent workers. test_run.py covers the whole life
with workers, and benchmarks/tpu_kills.py sends every signal at every point of it.
"""

import itertools
import signal
import threading
from pathlib import Path

import pytest

from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import QUICK, TpuApi
from tests.harness import until

pytestmark = pytest.mark.slow

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
DRY = ("crosscheck", "--on", "tpu", "--dry-run")
STUCK = [*QUICK[:3], ("WAITING_FOR_RESOURCES", None)]


def end_at(made: Cloud, point: int, moment: str, number: int, arguments: list[str]) -> int:
    """Send a signal to a launcher at its `point`-th API call; return its exit code."""
    reached = threading.Event()
    api = made.api

    def see(when: str, call: str) -> None:
        if when == moment and len(api.calls) == point and not reached.is_set():
            reached.set()
            process.send_signal(number)

    started = threading.Event()

    def once_started(when: str, call: str) -> None:
        started.wait(20)
        see(when, call)

    api.on_call = once_started
    process = made.start(*arguments)
    started.set()
    try:
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
        api.on_call = lambda when, call: None
    assert reached.is_set(), made.folder.joinpath("launcher.log").read_text()
    return code


@pytest.mark.parametrize(
    ("point", "moment", "number"),
    [
        *itertools.product((1, 2, 3, 5), ("before", "after"), SIGNALS[:3]),
        *itertools.product((2, 5), ("after",), SIGNALS[3:]),  # gc searches for it for 10 s
    ],
)
def test_nothing_is_left(point: int, moment: str, number: int, tmp_path: Path) -> None:
    slices = "2" if point % 2 else "1"
    with cloud(tmp_path, TpuApi(script=STUCK, workers=hosts_of)) as made:
        made.settings["SLICE_COUNT"] = slices
        code = end_at(made, point, moment, number, ["create", "--wait", "30"])
        if number == signal.SIGKILL:
            assert code == -signal.SIGKILL
            assert made.run("gc")[0] == 0
        else:
            assert code == 128 + number
        assert made.api.left() == []
        assert list((tmp_path / "home" / "state").rglob("*.json")) == []


def test_gc_leaves_what_lives(tmp_path: Path) -> None:
    """gc keeps resources of running launchers, kept ones, those of others, and damaged entries."""
    with cloud(tmp_path, TpuApi(script=STUCK, workers=hosts_of)) as made:
        launcher = made.start("create", "--wait", "60")
        try:
            until(lambda: made.api.left())
            code, output = made.run("gc", "--project", "my-project", "--zone", "asia-northeast1-b")
            assert code == 0
            assert "left: " in output
            assert "is alive" in output
            (note,) = (tmp_path / "home" / "state").rglob("*.json")
            note.with_name("damaged.json").write_text("{")
            assert "is damaged; inspect it" in made.run("gc")[1]
            assert len(made.api.left()) == 1
        finally:
            launcher.terminate()
            launcher.wait(30)
        assert made.api.left() == []


def test_gc_dry_run_deletes_nothing(tmp_path: Path) -> None:
    with cloud(tmp_path, TpuApi(script=STUCK, workers=hosts_of)) as made:
        end_at(made, 4, "after", signal.SIGKILL, ["create", "--wait", "30"])
        assert "its launcher is dead; it would be deleted" in made.run("gc", "--dry-run")[1]
        assert len(made.api.left()) == 1
        assert "deleted: " in made.run("gc")[1]
        assert made.api.left() == []


def test_gc_of_a_dead_launcher_whose_name_is_another_s_by_now(tmp_path: Path) -> None:
    with cloud(tmp_path, TpuApi(script=STUCK, workers=hosts_of)) as made:
        end_at(made, 4, "after", signal.SIGKILL, ["create", "--wait", "30"])
        (resource,) = made.api.resources.values()
        labels = resource.body["tpu"]["nodeSpec"][0]["node"]["labels"]
        labels["pyreactant-run"] = "another"
        assert made.run("gc")[0] == 0
        assert len(made.api.left()) == 1


def test_kept_resources(tmp_path: Path) -> None:
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        code, output = made.run("create")
        assert code == 0
        assert "is kept: 16 chips for 6 h are 96 chip-hours, about 259 USD" in output
        assert "pyreactant tpu delete --name test --project my-project" in output
        assert "its user asked to keep it" in made.run("gc")[1]
        assert "* test  ACTIVE" in made.run("status")[1]
        assert "* test  ACTIVE" in made.run("list")[1]
        assert made.run("wait")[0] == 0
        assert len(api.left()) == 2
        assert made.run("delete")[0] == 0
        assert api.left() == []
        assert list((tmp_path / "home" / "state").rglob("*.json")) == []
        assert made.run("status")[0] == 8
        assert made.run("wait")[0] == 8


def test_delete_leaves_other_people_alone(tmp_path: Path) -> None:
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        made.run("create")
        (resource,) = api.resources.values()
        resource.body["tpu"]["nodeSpec"][0]["node"]["labels"].clear()
        code, output = made.run("delete")
        assert code == 8
        assert "test was not created by pyreactant and is not deleted" in output
        assert len(api.left()) == 2


def test_a_slice_by_its_names_in_gke(tmp_path: Path) -> None:
    """Cloud TPU gets its own name; a name that means another slice there is refused before."""
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        refused = made.run("create", "--topology", "ct6e-standard-4t:2x4")
        assert refused[0] == 2
        assert "error: --topology must be a slice of Cloud TPU, got 'ct6e-st" in refused[1]
        assert made.api.calls == []
        for name in ("tpu-v6e-slice:4x4", "ct6e-standard-4t:4x4"):
            assert made.run("create", "--topology", name)[0] == 0
            (node,) = made.api.nodes.values()
            assert node["acceleratorType"] == "v6e-16"
            assert made.run("delete")[0] == 0
            plan = made.run(*DRY, "--topology", name)[1]
            assert "slices     v6e-16: 16 chips, 4 VMs with 4 chips each\n" in plan
