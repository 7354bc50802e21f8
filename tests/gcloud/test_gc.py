"""gc deletes what no launcher uses any more, and nothing that a launcher may still use."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pyreactant.runs.queued.journal import Journal, entry
from pyreactant.runs.queued.request import HEARTBEAT_LABEL, KEPT_LABEL
from tests.gcloud.cloud import Cloud, cloud, hosts_of, slice_request
from tests.gcloud.test_kills import STUCK
from tests.gcloud.test_lifecycle import leased
from tests.gcloud.tpu_api import Fault, TpuApi
from tests.harness import until

PLACE = ("--project", "my-project", "--zone", "asia-northeast1-b")
LONG_AGO = "2026-01-01T00:00:00Z"


@contextmanager
def waiting(folder: Path) -> Iterator[tuple[Cloud, Path, subprocess.Popen[str]]]:
    """A launcher whose resource waits in the queue, and its note."""
    with cloud(folder, TpuApi(script=STUCK, workers=hosts_of)) as made:
        launcher = made.start("create", "--wait", "60", "--lifetime", "1h")
        try:
            until(lambda: made.api.left())
            (note,) = (folder / "home" / "state").rglob("*.json")
            yield made, note, launcher
        finally:
            launcher.send_signal(signal.SIGKILL)
            launcher.wait(30)


def change(note: Path, **fields: Any) -> None:
    note.write_text(json.dumps({**json.loads(note.read_text()), **fields}))


def test_a_live_launcher_is_left_alone(tmp_path: Path) -> None:
    """Its lock counts: no process id of this machine, no /proc, and no time in the queue."""
    with waiting(tmp_path) as (made, note, launcher):
        change(note, pid=2**22 + 1)  # as if it ran in a container with this machine's name
        for options in ([], ["--force"], [*PLACE, "--force"]):
            code, output = made.run("gc", *options)
            assert code == 0
            assert "is alive" in output
        change(note, asked=0.0)  # longer in the queue than its lifetime
        (resource,) = made.api.resources.values()
        resource.body["createTime"] = LONG_AGO
        assert "is alive" in made.run("gc", *PLACE)[1]
        assert "is alive" in made.run("gc", "--dry-run")[1]
        assert len(made.api.left()) == 1
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        assert "its launcher is dead" in made.run("gc")[1]
        assert made.api.left() == []
        assert list(note.parent.iterdir()) == []


def test_a_launcher_of_another_machine(tmp_path: Path) -> None:
    """Before there are nodes, only --force deletes: nothing costs money, nothing can be known."""
    with waiting(tmp_path) as (made, note, launcher):
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        change(note, host="elsewhere", asked=0.0)
        assert "is alive is unknown" in made.run("gc")[1]
        assert len(made.api.left()) == 1
        assert "left: " in made.run("gc", "--force", "--dry-run")[1]
        assert "deleted: " in made.run("gc", "--force")[1]
        assert made.api.left() == []
        assert list(note.parent.iterdir()) == []


def test_a_note_without_its_lock(tmp_path: Path) -> None:
    with waiting(tmp_path) as (made, note, _):
        note.with_suffix(".lock").unlink()
        assert "is alive is unknown" in made.run("gc")[1]
        assert len(made.api.left()) == 1


@pytest.mark.slow
def test_resources_without_a_note(tmp_path: Path) -> None:
    """Another machine's: deleted once its launcher is silent or the nodes' lifetime is over."""
    with waiting(tmp_path) as (made, note, launcher):
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        for file in note.parent.iterdir():
            file.unlink()
        (resource,) = made.api.resources.values()
        resource.body["createTime"] = LONG_AGO
        assert "its lifetime is not over" in made.run("gc", *PLACE)[1]
        resource.script = [("ACTIVE", None)]
        assert len(made.api.left()) == 2
        (node,) = made.api.nodes.values()
        ours = {key: text for key, text in node["labels"].items() if key != KEPT_LABEL}
        node["labels"] = ours
        code, output = made.run("gc", *PLACE, "--force")
        assert (code, "its lifetime is not over" in output) == (0, True), output
        minutes_ago = time.gmtime(time.time() - 1200)  # a launcher would have written by now
        node["createTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", minutes_ago)
        code, output = made.run("gc", *PLACE, "--force")
        assert (code, "its lifetime is not over" in output) == (8, True), output
        node["labels"] = {**ours, HEARTBEAT_LABEL: str(int(time.time()) - 590)}
        assert "its launcher was alive 59" in made.run("gc", *PLACE, "--force")[1]
        node["labels"][HEARTBEAT_LABEL] = str(int(time.time()) - 660)
        node["labels"][KEPT_LABEL] = "true"
        assert "its user asked to keep it" in made.run("gc", *PLACE, "--force")[1]
        del node["labels"][KEPT_LABEL]
        assert "is silent for 11 minutes; it would" in made.run("gc", *PLACE, "--dry-run")[1]
        node["labels"] = ours
        node["createTime"] = LONG_AGO
        assert "its lifetime is over; it would" in made.run("gc", *PLACE, "--dry-run")[1]
        assert len(made.api.left()) == 2
        assert "deleted: " in made.run("gc", *PLACE)[1]
        assert made.api.left() == []


def test_force_deletes_what_waits_without_a_note(tmp_path: Path) -> None:
    with waiting(tmp_path) as (made, note, launcher):
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        for file in note.parent.iterdir():
            file.unlink()
        output = made.run("gc", *PLACE, "--force")[1]
        assert re.search("--force, and it is (ACCEPTED|WAITING_FOR_RESOURCES)", output), output
        assert made.api.left() == []


@pytest.mark.slow
def test_kept_resources_last_for_their_lifetime(tmp_path: Path) -> None:
    """It begins with the nodes; what somebody deleted elsewhere is forgotten."""
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        assert made.run("create", "--lifetime", "1h")[0] == 0
        (note,) = (tmp_path / "home" / "state").rglob("*.json")
        change(note, asked=0.0)
        assert "its user asked to keep it" in made.run("gc", "--force")[1]
        (node,) = made.api.nodes.values()
        node["createTime"] = LONG_AGO
        assert "deleted: " in made.run("gc")[1]
        assert (made.api.left(), list(note.parent.iterdir())) == ([], [])
        assert made.run("create", "--name", "again")[0] == 0
        (note,) = (tmp_path / "home" / "state").rglob("*.json")
        change(note, asked=0.0)
        made.api.resources.clear()
        assert "gone: " in made.run("gc")[1]
        assert list(note.parent.iterdir()) == []


def test_a_lost_laptop_leaves_the_queue(tmp_path: Path) -> None:
    """The request is valid for as long as its launcher waits, and the cost is shown before it."""
    with waiting(tmp_path) as (made, _, launcher):
        (resource,) = made.api.resources.values()
        assert resource.body["queueingPolicy"]["validUntilDuration"] == "60s"
        launcher.terminate()
        launcher.wait(30)
        first, *_ = made.folder.joinpath("launcher.log").read_text().splitlines()
        assert "requesting test; if nothing deletes it before: 16 chips for 1 h are 16" in first
        assert "USD" in first


def test_a_launcher_shows_that_it_lives(tmp_path: Path) -> None:
    """On every node, again and again, and beside labels of others; refusals end nothing."""
    api = TpuApi(workers=hosts_of)
    with leased(tmp_path, api, slices=2, heartbeat=0.05) as (lease, _, lines):
        lease.create()
        lease.wait(5)
        assert all(HEARTBEAT_LABEL in node["labels"] for node in api.nodes.values())
        for node in api.nodes.values():
            node["labels"] = {**node["labels"], HEARTBEAT_LABEL: "1", "mine": "2"}
        until(lambda: all(node["labels"][HEARTBEAT_LABEL] != "1" for node in api.nodes.values()))
        assert all(node["labels"]["mine"] == "2" for node in api.nodes.values())
        api.faults.append(Fault("PATCH", code=403, message="no update", count=3))
        until(lambda: any("was not written" in line and "no update" in line for line in lines))
    assert api.left() == []
    assert len([line for line in lines if "no update" in line]) == 1


def test_kept_resources_carry_a_label(tmp_path: Path) -> None:
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        assert made.run("create")[0] == 0
        (node,) = api.nodes.values()
        assert node["labels"][KEPT_LABEL] == "true"
        assert HEARTBEAT_LABEL not in node["labels"]
        (note,) = (tmp_path / "home" / "state").rglob("*.json")
        note.unlink()
        assert "its user asked to keep it" in made.run("gc", *PLACE)[1]
        assert len(api.left()) == 2


def test_an_entry_of_version_0_1(tmp_path: Path) -> None:
    """`gc` reads the journal as 0.1 wrote it, also an entry from before `started` went."""
    with waiting(tmp_path) as (made, note, launcher):
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        entry = json.loads(note.read_text())
        kept = ("schema", "path", "run", "host", "pid", "asked", "lifetime", "kept")
        old = {name: entry[name] for name in kept} | {"asked": 0.0}
        note.write_text(json.dumps(old | {"started": 1.0}, indent=1))
        assert "its launcher is dead; it would" in made.run("gc", "--dry-run")[1]
        note.write_text(json.dumps(old, indent=1))
        assert "deleted: " in made.run("gc")[1]
        assert (made.api.left(), list(note.parent.iterdir())) == ([], [])


def test_many_entries_wait_at_the_same_time(tmp_path: Path) -> None:
    """All together have the time of one: the service gets a call for each before it answers any."""
    count, met = 6, list[int]()
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        folder = made.state / "queued-resources"
        folder.mkdir(parents=True)
        for number in range(count):
            made_entry = entry(
                slice_request(name=f"lost-{number}"), f"run{number}", asked=0, kept=False
            )
            text = json.dumps({"schema": 1, **asdict(made_entry)})
            (folder / f"run{number}.json").write_text(text)
            (folder / f"run{number}.lock").touch()
        barrier = threading.Barrier(count)

        def meet(moment: str, call: str) -> None:
            if moment == "before" and len(met) < count:
                met.append(barrier.wait(60))

        made.api.on_call = meet
        made.api.faults = [Fault("", code=503, count=10**6)]
        code, output = made.run("gc", "--timeout", "1")
        assert code == 8, output
        assert len(met) == count, "one waited for another"
        for number in range(count):
            assert f"/queuedResources/lost-{number}: Cloud TPU is unreachable or busy" in output
        assert len(list(folder.glob("*.json"))) == count


BAD: tuple[dict[str, Any], ...] = (
    *({"path": path} for path in (5, "x", "projects/a/locations/b/queuedResources/x y; rm")),
    *({"run": run} for run in ("../../x", 5)),  # its file would be another
    *({"asked": asked} for asked in ("now", None)),
    *({"lifetime": "6"}, {"lifetime": float("inf")}, {"valid_for": []}, {"kept": "no"}),
    *({"host": []}, {"pid": "a"}, {"job": 5}, {"trouble": 5}, {"slice_count": "1"}),
    *({"accelerator_type": 7}, {"schema": 2}, {"of a later version": 1}),
)


@pytest.mark.parametrize("changed", BAD, ids=str)
def test_an_entry_of_the_wrong_form(changed: dict[str, Any], tmp_path: Path) -> None:
    """It is damaged, for every command: it stays, and its user is told."""
    journal = Journal(tmp_path)
    journal.folder.mkdir()
    good = entry(slice_request(), "run1", asked=0, kept=False)
    file = journal.folder / "run1.json"
    file.write_text(json.dumps({"schema": 1, **asdict(good)}))
    assert list(journal.entries()) == [good]
    file.write_text(json.dumps({"schema": 1, **asdict(good), **changed}))
    assert list(journal.entries()) == [file]


def test_a_damaged_entry_and_a_slice_that_is_not_known(tmp_path: Path) -> None:
    with waiting(tmp_path) as (made, note, launcher):
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        text = note.read_text()
        change(note, asked="now")
        code, output = made.run("gc")
        assert (code, f"{note} is damaged; inspect it" in output) == (8, True), output
        assert made.run("status")[0] == 0  # what it is about is not known
        note.write_text(text)
        change(note, accelerator_type="v9-8")
        code, output = made.run("status")
        assert (code, "they cost an unknown amount an hour" in output) == (8, True), output
        change(note, asked=0.0)
        assert "deleted: " in made.run("gc")[1]


@pytest.mark.slow
def test_a_sign_of_life_from_the_future(tmp_path: Path) -> None:
    """It is of a wrong clock, and keeps nothing."""
    with waiting(tmp_path) as (made, note, launcher):
        launcher.send_signal(signal.SIGKILL)
        launcher.wait(30)
        for file in note.parent.iterdir():
            file.unlink()
        (resource,) = made.api.resources.values()
        resource.script = [("ACTIVE", None)]
        assert len(made.api.left()) == 2
        (node,) = made.api.nodes.values()
        del node["labels"][KEPT_LABEL]
        node["createTime"] = LONG_AGO
        node["labels"][HEARTBEAT_LABEL] = str(int(time.time()) + 3600)
        assert "its lifetime is over; it would" in made.run("gc", *PLACE, "--dry-run")[1]
        node["labels"][HEARTBEAT_LABEL] = str(int(time.time()))
        assert "its launcher was alive" in made.run("gc", *PLACE, "--dry-run")[1]
        assert "its launcher was alive" in made.run("gc", *PLACE, "--force")[1]
        del node["labels"][HEARTBEAT_LABEL]
        assert "deleted: " in made.run("gc", *PLACE)[1]
