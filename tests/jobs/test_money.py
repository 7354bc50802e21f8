"""No command ends with 0, and no record goes, while slices may cost money that nothing uses.

Every command meets every answer of the API. What the user must see is the reason, the amount and
the command to try; `jobs` commands know them without an answer.
"""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import harness
from tests.gcloud.cloud import Cloud, cloud, hosts_of
from tests.gcloud.tpu_api import Fault, TpuApi
from tests.harness import REPOSITORY, until

pytestmark = pytest.mark.slow

PLACE = ("--project", "my-project", "--zone", "asia-northeast1-b")
AMOUNT = r"they cost about \d+ USD an hour, at most about \d+ USD until \d\d:\d\d UTC on"
PORTAL = "<html>Please log in</html>"


@dataclass
class Lost:
    """A job whose keeper was killed while its slices were ACTIVE."""

    made: Cloud
    job: str

    @property
    def name(self) -> str:
        """The name of its slices."""
        return f"job-{self.job}"

    def run(self, *words: str, **settings: str) -> tuple[int, str]:
        """A command's exit code, and all that it printed."""
        argv = [sys.executable, "-m", "pyreactant", *words]
        env = {**self.made.settings, **settings}
        ran = harness.run(argv, env=env, cwd=self.made.folder, timeout=100)
        return ran.returncode, ran.stdout + ran.stderr

    @property
    def notes(self) -> list[Path]:
        """The journal's entries."""
        return list((self.made.state / "queued-resources").glob("*.json"))

    def is_recorded(self) -> bool:
        """Whether the job's record and the journal's entry are there."""
        return (self.made.state / "jobs" / self.job / "job.json").exists() and bool(self.notes)


def submit(made: Cloud, **more: object) -> str:
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", made.folder)
    settings = {
        "accelerator_type": "v5p-16",
        "reach": "ssh",
        "python": sys.executable,
        "platform": "cpu",
        "devices_per_process": 1,
        **more,
    }
    settings["topology"] = settings.pop("accelerator_type")
    settings["runtime_version"] = "v2-alpha-tpuv5"  # that of the environment is of another slice
    words = [f"--{name.replace('_', '-')}={text}" for name, text in settings.items()]
    argv = [sys.executable, "-m", "pyreactant", "run", "--on", "tpu", "--detach", *words, "--json"]
    ran = harness.run([*argv, "--", "program.py"], env=made.settings, cwd=made.folder)
    assert ran.returncode == 0, ran.stderr
    job: str = json.loads(ran.stdout)["id"]
    return job


def kill_keeper(job: str) -> None:
    mark = f"PYREACTANT_JOB={job}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def lose(made: Cloud, **more: object) -> Lost:
    from pyreactant.runs.record import load

    job = submit(made, **more)
    folder = made.state / "jobs" / job
    until(lambda: any(node.get("state") == "READY" for node in made.api.nodes.values()))
    kill_keeper(job)
    until(lambda: not load(folder).is_kept(), 20)
    return Lost(made, job)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    with cloud(tmp_path_factory.mktemp("money"), TpuApi(workers=hosts_of)) as made:
        found = lose(made)
        yield found
        code, output = found.run("jobs", "cancel", found.job)
        assert (code, made.api.left(), found.notes) == (0, [], []), output
        code, output = found.run("jobs", "status", found.job)
        assert (code, "cost" in output) == (0, False), output
        code, output = found.run("jobs", "clean", found.job)
        assert (code, found.is_recorded()) == (0, False), output


ANSWERS: dict[str, list[Fault]] = {
    "403": [Fault("DELETE", code=403, message="no permission", count=10**6)],
    "403 to all": [Fault("", code=403, message="no permission", count=10**6)],
    "401": [Fault("", code=401, message="expired", count=10**6)],
    "404 of a proxy": [Fault("", code=404, text=PORTAL, count=10**6)],
    "429": [Fault("", code=429, message="slow down", count=10**6)],
    "500": [Fault("", code=500, message="internal", count=10**6)],
    "garbage": [Fault("", text=PORTAL, count=10**6)],
    "an empty object": [Fault("", text="{}", count=10**6)],
    "no answer": [Fault("", lost=True, count=10**6)],
    "a byte at a time": [Fault("", pause=0.9, count=10**6)],
    "a late answer": [Fault("", delay=4.0, code=503, count=10**6)],
}
ASKS: dict[str, Callable[[Lost], tuple[str, ...]]] = {
    "jobs cancel": lambda lost: ("jobs", "cancel", lost.job, "--timeout", "1.5"),
    "tpu delete": lambda lost: (
        *("tpu", "delete", "--name", lost.name, *PLACE, "--timeout", "1.5"),
    ),
    "tpu gc": lambda lost: ("tpu", "gc", "--timeout", "1.5"),
    "tpu gc PLACE": lambda lost: ("tpu", "gc", *PLACE, "--timeout", "1.5"),
}


@pytest.mark.parametrize("command", ASKS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_no_answer_ends_with_0(lost: Lost, answer: str, command: str) -> None:
    api = lost.made.api
    api.faults = [Fault(**vars(fault)) for fault in ANSWERS[answer]]
    try:
        code, output = lost.run(*ASKS[command](lost))
    finally:
        api.faults = []
    assert code == (3 if (answer, command) == ("401", "tpu delete") else 8), output
    assert len(api.left()) == 2
    assert lost.is_recorded()
    if command == "jobs cancel":
        assert re.search(AMOUNT, output), output
        assert f"gcloud compute tpus queued-resources delete {lost.name} --project=my" in output
        seen_by_status(lost)


@pytest.mark.parametrize("absent", ["labels", "spec"])
@pytest.mark.parametrize("command", ["tpu delete", "tpu gc"])
def test_answers_without_labels(lost: Lost, absent: str, command: str) -> None:
    """The resource may be another user's: it is left, with the command for its owner."""
    lost.made.api.absent["ACTIVE"] = absent
    try:
        code, output = lost.run(*ASKS[command](lost))
    finally:
        lost.made.api.absent.clear()
    assert code == 8, output
    assert f"gcloud compute tpus queued-resources delete {lost.name} --project=my" in output
    assert lost.is_recorded()


NO_API = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": "http://127.0.0.1:1/"}


def seen_by_status(lost: Lost) -> None:
    """The reason, the amount and the command stand in `jobs status`, which asks nobody."""
    code, output = lost.run("jobs", "status", lost.job, **NO_API)
    assert code == 8, output
    assert "may still cost money: " in output
    assert re.search(AMOUNT, output), output
    assert f"run: pyreactant jobs cancel {lost.job}" in output


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("status", "ID"), 8),
        (("list",), 8),
        (("clean", "ID"), 8),
        (("clean", "ID", "--dry-run"), 8),
        (("clean", "--older-than", "0d"), 8),
        (("result", "ID"), 6),
        (("attach", "ID"), 6),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_needs_no_answer(lost: Lost, words: tuple[str, ...], code: int) -> None:
    """The service cannot be reached; the journal knows what is there."""
    argv = [lost.job if word == "ID" else word for word in words]
    found, output = lost.run("jobs", *argv, **NO_API)
    assert found == code, output
    assert re.search(AMOUNT, output), output
    assert f"run: pyreactant jobs cancel {lost.job}" in output
    assert lost.is_recorded()


@pytest.mark.slow
def test_it_says_more_than_once_why(lost: Lost) -> None:
    """At once, and then each minute: whoever waits for 16 minutes must know for what."""
    words = ("jobs", "cancel", lost.job, "--timeout", "75")
    code, output = lost.run(*words, **NO_API)
    assert code == 8, output
    assert output.count("deletion has not succeeded yet: Cloud TPU is unreachable") == 2, output
    assert lost.is_recorded()


def test_json(lost: Lost) -> None:
    """What is left is data, also for a program that reads it."""
    for words in (("status", lost.job), ("list",)):
        argv = [sys.executable, "-m", "pyreactant", "jobs", *words, "--json"]
        ran = harness.run(argv, env={**lost.made.settings, **NO_API}, cwd=lost.made.folder)
        assert ran.returncode == 8
        shown: Any = json.loads(ran.stdout)
        ((slices,),) = [row["left"] for row in (shown if words == ("list",) else [shown])]
        assert slices["path"].endswith(f"/queuedResources/{lost.name}")
        assert slices["usd"] == pytest.approx(slices["usd_per_hour"] * 6)
        assert slices["kept"] is False


def test_a_damaged_record_stays(lost: Lost) -> None:
    """`jobs clean` removes damaged records, but not the record of slices that cost money."""
    file = lost.made.state / "jobs" / lost.job / "job.json"
    text = file.read_text()
    file.write_text("{")
    try:
        code, output = lost.run("jobs", "clean", lost.job)
        assert (code, file.exists()) == (8, True), output
        assert re.search(AMOUNT, output), output
    finally:
        file.write_text(text)


def test_a_damaged_entry(lost: Lost) -> None:
    """Which slices it is about is not known; they may be the job's."""
    (note,) = lost.notes
    text = note.read_text()
    note.write_text("{")
    try:
        for words in (
            ("jobs", "status", lost.job),
            ("jobs", "clean", lost.job),
            ASKS["tpu gc"](lost),
        ):
            code, output = lost.run(*words, **NO_API)
            assert (code, f"{note} is damaged" in " ".join(output.split())) == (8, True), output
    finally:
        note.write_text(text)
    assert lost.is_recorded()


def test_an_entry_of_an_earlier_version(lost: Lost) -> None:
    """It does not say the slice, so the amount is not known."""
    (note,) = lost.notes
    text = note.read_text()
    data = json.loads(text)
    for name in ("accelerator_type", "slice_count", "valid_for", "trouble"):
        del data[name]
    note.write_text(json.dumps(data))
    try:
        code, output = lost.run("jobs", "status", lost.job, **NO_API)
    finally:
        note.write_text(text)
    assert (code, "they cost an unknown amount an hour" in output) == (8, True), output


def test_tpu_status(lost: Lost) -> None:
    code, output = lost.run("tpu", "status", "--name", lost.name, *PLACE)
    assert code == 8
    assert re.search(AMOUNT, output), output
    assert f"{lost.name}  ACTIVE" in output


def test_a_deletion_that_is_refused(tmp_path: Path) -> None:
    """The keeper goes on; `jobs status` says why at once, and `jobs cancel` does not end with 0."""
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        job = submit(made)
        until(lambda: any(node.get("state") == "READY" for node in made.api.nodes.values()))
        made.api.faults = [Fault("DELETE", code=403, message="no permission", count=10**6)]
        held = Lost(made, job)
        code, output = held.run("jobs", "cancel", job, "--timeout", "3")
        assert code == 8, output
        for text in (output, held.run("jobs", "list", **NO_API)[1]):
            words = " ".join(text.split())
            assert (
                "to delete it, so far without success (Cloud TPU refused the request: no " in words
            )
            assert re.search(AMOUNT, words), text
        code, output = held.run("jobs", "status", job, **NO_API)
        assert (code, f"{job}: running" in output) == (8, True), output
        assert re.search(AMOUNT, output), output
        assert held.run("jobs", "clean", job)[0] == 2  # it has not ended
        code, output = held.run("jobs", "result", job, "--timeout", "1", **NO_API)
        assert (code, "so far without success" in output) == (7, True), output
        made.api.faults = []
        code, output = held.run("jobs", "cancel", job)
        assert (code, made.api.left(), held.notes) == (0, [], []), output
        assert f"{job}: cancelled" in held.run("jobs", "status", job)[1]


_RUN = ("run", "--on", "tpu", "--backend", "jax", "--reach", "ssh")
_CHECK = ("crosscheck", "--on", "tpu", "--backends", "jax")


def test_another_run_of_the_same_name(tmp_path: Path) -> None:
    """`jobs cancel` of a lost `run --on tpu` leaves the slices that somebody created since then."""
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", made.folder)
        cpu = ("--platform", "cpu", "--devices-per-process", "1", "--python", sys.executable)
        run = made.start(*_RUN, *cpu, "--", "program.py")
        until(lambda: any(node.get("state") == "READY" for node in made.api.nodes.values()))
        run.kill()
        run.wait()
        (folder,) = (made.state / "jobs").iterdir()
        held = Lost(made, folder.name)
        code, output = held.run("jobs", "status", held.job)
        assert (code, f"{held.job}: lost" in output) == (8, True), output
        assert made.run("delete")[0] == 0
        assert made.run("create")[0] == 0
        assert len(made.api.left()) == 2
        assert held.run("jobs", "status", held.job)[0] == 0
        assert held.run("jobs", "cancel", held.job)[0] == 0
        assert len(made.api.left()) == 2
        code, output = made.run("status")  # its user keeps it
        assert (code, "its user asked to keep it" in output) == (0, True), output
        assert made.run("delete")[0] == 0
        assert made.api.left() == []


def test_the_cost_counts_retries(tmp_path: Path) -> None:
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        words = (*_CHECK, "--reach", "ssh", "--max-restarts", "2", "--dry-run")
        code, output = made.run(*words)
        assert code == 0, output
        assert "16 chips for 6 h in each of 3 attempts are 288 chip-hours, about 778 USD" in output
        assert "attempts" not in made.run(*words[:-3], "--dry-run")[1]


def test_why_there_is_no_answer_yet(tmp_path: Path) -> None:
    """A command that asks again says why, once for several failures."""
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        assert made.run("create")[0] == 0
        made.api.faults = [Fault("GET", code=503, message="overloaded", count=2)]
        code, output = made.run("status")
        assert code == 0, output
        assert output.count("overloaded; trying again for up to 120 s") == 1
        assert made.run("delete")[0] == 0
