"""A deletion goes on until the API shows that the resource is gone, whatever it answers before."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyreactant import PyReactantError
from tests.gcloud.cloud import cloud, hosts_of, slice_request
from tests.gcloud.test_lifecycle import leased, life, outcome
from tests.gcloud.tpu_api import ABSENT, QUICK, Fault, TpuApi

PORTAL = "<html>Please log in</html>"
WRONG = (
    {"code": 401, "message": "expired"},
    {"text": PORTAL},
    {"text": ""},
    {"text": "null"},
    {"text": "[]"},
    {"text": "{}"},
    {"text": '{"error": "x"}', "code": 403},
    {"text": PORTAL, "code": 404},  # no proof that the resource is gone
)
ANY = ".*queuedResources/test"


def notes(folder: Path) -> list[Path]:
    return list((folder / "home" / "state").rglob("*.json"))


def failure(
    folder: Path, api: TpuApi, act: Callable[[Any], None], **options: Any
) -> tuple[PyReactantError, list[str]]:
    """The error that ends a life, and the lines that the user saw."""
    lines: list[str] = []
    try:
        with leased(folder, api, patience=0.2, **options) as (lease, _, lines):
            act(lease)
    except PyReactantError as error:
        return error, lines
    raise AssertionError(lines)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_answers_mean_not_yet(tmp_path: Path, wrong: dict[str, Any], method: str) -> None:
    """Answers that Google's client does not understand; the resource is ACTIVE meanwhile."""

    def act(lease: Any, api: TpuApi) -> None:
        life(lease, api)
        api.faults.append(Fault(method + ANY, count=2, **wrong))

    assert outcome(tmp_path, TpuApi(workers=hosts_of), act, patience=0.2) is None


@pytest.mark.parametrize("wrong", [*WRONG[:2], {"text": PORTAL, "code": 404}], ids=str)
def test_wrong_answers_that_last(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """The error has the command for the deletion, the code of the cloud, and the note stays."""
    api = TpuApi(workers=hosts_of)

    def act(lease: Any) -> None:
        life(lease, api)
        api.faults.append(Fault(ANY, count=10**6, **wrong))

    error, _ = failure(tmp_path, api, act, deletion=0.6)
    assert error.exit_code == 8
    assert "test could NOT be deleted (" in str(error)
    assert "still costs money; run: gcloud compute tpus queued-resources delete test" in str(error)
    assert "--project=my-project --zone=asia-northeast1-b --force" in str(error)
    assert len(notes(tmp_path)) == 1


@pytest.mark.parametrize("wrong", WRONG[:3], ids=str)
def test_wrong_answers_while_it_waits(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """They end the run with the code of the cloud: 3 would mean that nothing was requested."""

    def act(lease: Any, api: TpuApi) -> None:
        lease.create()
        api.faults.append(Fault("GET" + ANY, count=3, **wrong))
        lease.wait(5)

    error = outcome(tmp_path, TpuApi(workers=hosts_of), act, patience=0.2)
    assert error.exit_code == 8


def test_credentials_that_expired_before(tmp_path: Path) -> None:
    """Nothing was requested, so nothing is deleted, and the error comes at once."""
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        made.api.faults.append(Fault("", code=401, count=10**6))
        code, output = made.run("create", "--wait", "9")
        assert code == 3
        assert "no usable Google credentials" in output
        assert not [call for call in made.api.calls if not call.startswith("GET")]
        assert notes(tmp_path) == []


def test_a_note_without_labels_stays(tmp_path: Path) -> None:
    """The answer to the request is lost, so that only labels could tell whose resource it is."""
    api = TpuApi(workers=hosts_of)
    api.faults.append(Fault("POST", lost=True))
    labels: dict[str, str] = {}

    def unlabel(moment: str, call: str) -> None:
        if moment == "after" and call.startswith("POST") and not labels:
            labels.update(node().pop("labels"))

    api.on_call = unlabel

    def node() -> dict[str, Any]:
        (resource,) = api.resources.values()
        found: dict[str, Any] = resource.body["tpu"]["nodeSpec"][0]["node"]
        return found

    error, _ = failure(tmp_path, api, lambda lease: lease.create(), deletion=0.3)
    assert "could NOT be deleted (test has no labels" in str(error)
    assert len(notes(tmp_path)) == 1
    assert not [call for call in api.calls if call.startswith("DELETE")]

    with cloud(tmp_path / "later", api) as made:
        from pyreactant.runs.queued.client import Client
        from pyreactant.runs.queued.deletion import Collector, Deleter
        from pyreactant.runs.queued.journal import Journal

        def gc() -> list[str]:
            client, journal = Client(environ=made.settings), Journal(note.parent.parent)
            deleter = Deleter(client, journal, print, pause=0.01, unseen=0.1)
            return [finding.action for finding in Collector(deleter).collect()]

        (note,) = notes(tmp_path)
        lock = note.with_suffix(".lock")
        lock.unlink()
        lock.touch()  # nobody holds this one
        assert gc() == ["left"]
        assert note.exists()
        node()["labels"] = labels
        assert gc() == ["deleted"]
        assert (api.left(), note.exists()) == ([], False)


@pytest.mark.slow
@pytest.mark.parametrize("absent", ABSENT)
@pytest.mark.parametrize(
    ("state", "code"),
    [("ACTIVE", 8), ("SUSPENDED", 6), ("FAILED", 8), ("WAITING_FOR_RESOURCES", 7)],
)
def test_answers_that_lack_fields(tmp_path: Path, state: str, code: int, absent: str) -> None:
    """The API answered this run's request, so the resource is this run's: it ends soon, deleted."""
    api = TpuApi(script=[*QUICK[:3], (state, None)], workers=hosts_of)
    api.absent[state] = absent

    def act(lease: Any, api: TpuApi) -> None:
        lease.create()
        lease.wait(0.5 if absent == "state" or state == "WAITING_FOR_RESOURCES" else 60)

    error = outcome(tmp_path, api, act)
    if (state, absent) == ("ACTIVE", "created"):
        assert error is None
    elif absent == "state":
        assert error.exit_code == 7, error
    else:
        assert error.exit_code == code, error
        assert state != "ACTIVE" or "Cloud TPU's answers lack its labels" in str(error)


def test_another_resource_without_labels(tmp_path: Path) -> None:
    """Somebody deleted the resource and created another one of its name, which is left alone."""
    api = TpuApi(workers=hosts_of)

    def act(lease: Any) -> None:
        life(lease, api)
        (resource,) = api.resources.values()
        resource.body["createTime"] = "2030-01-01T00:00:00Z"
        del resource.body["tpu"]["nodeSpec"][0]["node"]["labels"]

    error, _ = failure(tmp_path, api, act, deletion=0.3)
    assert "could NOT be deleted (test has no labels" in str(error)
    assert not [call for call in api.calls if call.startswith("DELETE")]


def test_a_request_that_may_still_arrive(tmp_path: Path) -> None:
    """A request without an answer, and no resource: the note stays for gc."""
    api = TpuApi(workers=hosts_of)
    api.faults.append(Fault("POST", code=503, count=10**6))
    error, lines = failure(tmp_path, api, lambda lease: lease.create())
    assert "unreachable or busy" in str(error)
    assert "whether the request arrived is not known" in lines[-1]
    assert len(notes(tmp_path)) == 1


def test_a_terminal_that_is_gone(tmp_path: Path) -> None:
    """Messages that nobody can read do not end the deletion."""
    api = TpuApi(workers=hosts_of)

    closed = threading.Event()

    def tell(text: str) -> None:
        if closed.is_set():
            raise OSError(5, "Input/output error")

    with leased(tmp_path, api, tell=tell) as (lease, _, _):
        life(lease, api)
        closed.set()
    assert (api.left(), notes(tmp_path)) == ([], [])


def test_states_that_the_client_does_not_know(tmp_path: Path) -> None:
    """A number without a name is text; the launcher waits on, and every command goes on."""
    unknown: Any = 99
    api = TpuApi(script=[*QUICK[:3], (unknown, None)], workers=hosts_of)
    with leased(tmp_path, api) as (lease, _, lines), ThreadPoolExecutor(1) as threads:
        assert lease.create() is None
        (resource,) = api.resources.values()
        waiting = threads.submit(lease.wait, 60)
        while not any("test is STATE_99 (for" in line for line in lines):
            assert not waiting.done(), waiting.result()
            time.sleep(0.01)
        resource.script = [("ACTIVE", None)]
        assert len(waiting.result()) == 4
        resource.script = [(unknown, None)]
        api.nodes[next(iter(api.nodes))]["state"] = unknown
        assert lease.deleter.client.workers(lease.request) == []
    assert (api.left(), notes(tmp_path)) == ([], [])


def test_a_run_that_failed_before_its_deletion_did(tmp_path: Path) -> None:
    """Both are in the report; the exit code is that of the cloud, and each phase was told."""
    api = TpuApi(script=[("WAITING_FOR_RESOURCES", None)], workers=hosts_of)
    api.faults.append(Fault("DELETE", code=403, message="no permission", count=10**6))
    with cloud(tmp_path, api) as made:
        from pyreactant.check.places import SlicesCheck
        from pyreactant.runs.queued.client import Client
        from pyreactant.runs.queued.job import Job, Listener, Phase, SliceSettings
        from pyreactant.runs.queued.journal import Journal
        from pyreactant.runs.queued.run import run_job

        job = Job(
            settings=SliceSettings("v6e-16", reach="ssh", wait=0.2),
            request=slice_request(),
            out=tmp_path / "out",
            deletion=0.5,
        )
        phases = list[Phase]()
        listener = Listener(print, print, phases.append)
        client = Client(environ=made.settings)
        report = run_job(job, client, Journal(made.state), listener, SlicesCheck())
    assert (report.exit_code, report.cause) == (8, "cloud")
    assert "could NOT be deleted (Cloud TPU refused the request: no permission" in report.summary
    assert "; before that: test is WAITING_FOR_RESOURCES and not ACTIVE after" in report.summary
    assert phases == [Phase.QUEUED, Phase.DELETING]
    assert len(notes(tmp_path)) == 1


@pytest.mark.slow
def test_a_kept_resource_that_its_user_could_not_delete(tmp_path: Path) -> None:
    """Its user keeps it no more: `gc` goes on with the deletion, and does not end with 0 before."""
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        assert made.run("create")[0] == 0
        assert "its user asked to keep it" in made.run("gc")[1]
        api.deleting = 10**6
        assert made.run("delete", "--timeout", "2")[0] == 8
        code, output = made.run("gc", "--timeout", "2")
        assert (code, "failed: " in output, len(notes(tmp_path))) == (8, True, 1), output
        (resource,) = api.resources.values()
        resource.ends = time.monotonic()
        code, output = made.run("gc")
        assert (code, "gone: " in output) == (0, True), output
        assert (api.left(), notes(tmp_path)) == ([], [])


def test_a_name_in_another_zone(tmp_path: Path) -> None:
    """What the journal knows elsewhere is not called absent with exit code 0."""
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        assert made.run("create")[0] == 0
        for place, other in (("--zone", "us-east5-b"), ("--project", "another-project")):
            code, output = made.run("delete", place, other)
            assert code == 8, output
            assert "there is no queued resource test in projects/" in output
            assert "give --project my-project --zone asia-northeast1-b to delete it" in output
        assert made.run("delete", "--name", "other")[0] == 0
        assert len(api.left()) == 2
        assert made.run("delete")[0] == 0
        assert made.run("delete", "--zone", "us-east5-b")[0] == 0


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--wait", "0", "--wait must be a positive number, got 0.0"),
        ("--wait", "-1", "--wait: it must be a duration, such as 90s, got '-1'"),
        ("--valid-for", "0h", "--valid-for must be a positive number, got 0.0"),
        ("--network", "a b", "--network must be a network's name; got 'a b'"),
    ],
)
def test_nothing_is_created_for_a_wrong_limit(
    option: str, value: str, message: str, tmp_path: Path
) -> None:
    with cloud(tmp_path, TpuApi(workers=hosts_of)) as made:
        code, output = made.run("create", option, value)
        assert (code, made.api.calls) == (2, []), output
        assert f"error: {message}" in output
