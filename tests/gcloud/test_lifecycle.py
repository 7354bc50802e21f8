"""The life of a queued resource on the stand-in API: every state and answer; nothing remains."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyreactant import DeadlineError, PyReactantError, RequirementError
from tests.gcloud.cloud import Cloud, cloud, hosts_of, slice_request
from tests.gcloud.tpu_api import QUICK, Fault, TpuApi

WAITING = QUICK[:-1]
QUOTA = (
    "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in "
    "region us-east5."
)


@contextmanager
def leased(
    folder: Path,
    api: TpuApi,
    *,
    patience: float = 3.0,
    slices: int = 1,
    deletion: float = 20.0,
    unseen: float = 0.3,
    tell: Callable[[str], None] | None = None,
    **options: Any,
) -> Iterator[tuple[Any, Cloud, list[str]]]:
    """A lease, closed as the commands close it."""
    with cloud(folder, api) as made:
        from pyreactant.runs.queued.client import Client
        from pyreactant.runs.queued.deletion import Deleter
        from pyreactant.runs.queued.journal import Journal
        from pyreactant.runs.queued.lifecycle import Lease
        from pyreactant.runs.queued.signals import cleaned_up

        lines: list[str] = []
        client = Client(environ=made.settings, patience=patience)
        request = slice_request(slice_count=slices)
        times = {"timeout": deletion, "pause": 0.01, "unseen": unseen}
        deleter = Deleter(client, Journal(made.state), tell or lines.append, **times)
        lease = Lease(deleter, request, "run1", **options)
        with cleaned_up(lease.close, lines.append):
            yield lease, made, lines


def outcome(folder: Path, api: TpuApi, act: Callable[[Any, TpuApi], None], **options: Any) -> Any:
    """The outcome of a life; nothing remains, including in the journal."""
    found: Any = None
    try:
        with leased(folder, api, **options) as (lease, _, _):
            act(lease, api)
    except PyReactantError as error:
        found = error
    assert [name for name in api.left() if "/test" in name] == []
    assert list((folder / "home" / "state").rglob("*.json")) == []
    return found


def life(lease: Any, api: TpuApi) -> None:
    lease.create()
    lease.wait(5)


@pytest.mark.parametrize("slices", [1, 2])
def test_success(tmp_path: Path, slices: int) -> None:
    # Long enough that a busy machine sees it.
    script = [(state, 0.5 if state == "WAITING_FOR_RESOURCES" else t) for state, t in QUICK]
    api = TpuApi(script=script, workers=hosts_of)
    with leased(tmp_path, api, slices=slices) as (lease, _, lines):
        lease.create()
        workers = lease.wait(5)
        assert [(w.node, w.index) for w in workers] == [
            (node, i) for node in lease.request.nodes for i in range(4)
        ]
        assert len(api.left()) == 1 + slices
        assert list((tmp_path / "home" / "state").rglob("*.json"))
    assert api.left() == []
    assert any("WAITING_FOR_RESOURCES" in line for line in lines)
    assert lines[-1] == "test is deleted"


def test_the_order_is_note_then_ask(tmp_path: Path) -> None:
    """A launcher that is killed during its request has written the journal first."""
    api = TpuApi(workers=hosts_of)
    noted: list[Path] = []

    def see(moment: str, call: str) -> None:
        if moment == "before" and call.startswith("POST"):
            noted.extend((tmp_path / "home" / "state").rglob("*.json"))

    api.on_call = see
    assert outcome(tmp_path, api, life) is None
    assert len(noted) == 1


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ([*WAITING[:2], ("FAILED", None)], 8, "could not provide test: There is no more capacity"),
        ([*WAITING, ("FAILED", None)], 8, "could not provide test"),
        ([*WAITING[:3], ("SUSPENDED", None)], 6, "SUSPENDED by Cloud TPU .preempted.; its VMs"),
        ([*WAITING, ("ACTIVE", 0.0), ("SUSPENDING", None)], 6, "test is SUSPENDING by Cloud TPU"),
        ([*WAITING, ("DELETING", None)], 8, "is being deleted by somebody else"),
        (
            [*WAITING[:3], ("WAITING_FOR_RESOURCES", None)],
            7,
            "WAITING_FOR_RESOURCES and not ACTIVE",
        ),
    ],
)
def test_states_that_end_it(tmp_path: Path, script: Any, code: int, message: str) -> None:
    def act(lease: Any, api: TpuApi) -> None:
        lease.create()
        lease.wait(0.6)

    error = outcome(tmp_path, TpuApi(script=script, workers=hosts_of), act)
    with pytest.raises(PyReactantError, match=message):
        raise error
    assert error.exit_code == code


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (Fault("POST", lost=True), None, None),
        (Fault("POST", code=503, message="busy"), None, None),
        (
            Fault("POST", code=429, message=QUOTA, count=99),
            8,
            "region us-east5.; request more quota",
        ),
        (Fault("POST", code=403, message="no permission"), 8, "no permission; ask the project's"),
        (Fault("POST", code=404, message="no such zone"), 8, "refused the request: no such zone"),
        (Fault("POST", code=400, message="bad"), 8, "Cloud TPU refused the request: bad"),
        (Fault("GET .*queuedResources", code=503, count=3), None, None),
        (Fault("GET .*queuedResources", lost=True, count=2), None, None),
        (
            Fault("GET .*queuedResources", code=403, message="revoked"),
            8,
            "refused the request: revoked",
        ),
        (Fault("GET .*nodes", code=500), None, None),
        (Fault("GET .*queuedResources", code=502, count=2), None, None),
        (Fault("DELETE", lost=True), None, None),
        (Fault("DELETE", code=503, count=2), None, None),
        (Fault("DELETE", code=403, message="for now"), None, None),
    ],
)
def test_answers(tmp_path: Path, fault: Fault, code: int | None, message: str | None) -> None:
    api = TpuApi(workers=hosts_of)
    api.faults.append(fault)
    # The wait outlasts passing states on a slow machine, and ends with an error for lasting ones.
    error = outcome(tmp_path, api, life, patience=2.5 if message else 30.0)
    if message is None:
        assert error is None
    else:
        with pytest.raises(PyReactantError, match=message):
            raise error
        assert error.exit_code == code


def test_refusals_are_not_repeated(tmp_path: Path) -> None:
    """A permanent error is not retried; repeated 403 and 404 would look like an attack."""
    for number in (403, 404, 400):
        api = TpuApi(workers=hosts_of)
        api.faults.append(Fault("POST", code=number, count=99))
        outcome(tmp_path / str(number), api, life)
        assert len([call for call in api.calls if call.startswith("POST")]) == 1


@pytest.mark.parametrize(
    ("created", "asked", "now", "message"),
    [
        (1000.0, 990.0, 1200.0, None),  # retries for minutes do not mean that a clock is wrong
        (1000.0, 1059.0, 1061.0, None),
        (1000.0, 1061.0, 1062.0, "clock is 61 s ahead of Google's: set it"),
        (1000.0, 700.0, 701.0, "clock is 299 s behind Google's: set it"),
    ],
)
def test_clock_error(created: float, asked: float, now: float, message: str | None) -> None:
    from pyreactant.runs.queued.lifecycle import clock_error

    found = clock_error(created, asked, now)
    assert found is None if message is None else message in (found or "")


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_clock_skew_is_said(hours: int, tmp_path: Path) -> None:
    """The skew is reported, and the resource is still created and deleted."""
    api = TpuApi(workers=hosts_of)
    api.ahead = hours * 3600.0
    with leased(tmp_path, api) as (lease, _, lines):
        life(lease, api)
    assert api.left() == []
    wrong = [line for line in lines if "this machine's clock" in line]
    assert len(wrong) == abs(hours)
    if hours:
        assert ("behind" if hours > 0 else "ahead of") in wrong[0]


@pytest.mark.parametrize("code", [502, 403])
def test_every_page_of_a_list(code: int, tmp_path: Path) -> None:
    """An error on a later page is retried, or raised, like one on the first."""
    api = TpuApi(workers=hosts_of)
    api.page = 1
    with cloud(tmp_path, api) as made:
        from pyreactant.runs.queued.client import Client
        from pyreactant.runs.queued.request import CloudError

        client = Client(environ=made.settings, patience=5.0)
        for name in ("one", "two", "three"):
            client.create(slice_request(name=name), "run1", "")

        def see(moment: str, call: str) -> None:
            if moment == "after" and call.endswith("/queuedResources") and not api.faults:
                api.faults.append(Fault("GET .*queuedResources$", code=code))

        api.on_call = see
        parent = "projects/my-project/locations/asia-northeast1-b"
        if code == 502:
            assert sorted(r.name for r in client.resources(parent)) == ["one", "three", "two"]
        else:
            with pytest.raises(CloudError, match="refused the request: injected"):
                client.resources(parent)


def test_active_without_its_vms(tmp_path: Path) -> None:
    """It costs money, so it is said and ends at a limit."""
    api = TpuApi(workers=lambda _: 3)
    lines: list[str] = []
    found = None
    try:
        with leased(tmp_path, api, bare=0.3) as (lease, _, lines):
            lease.create()
            lease.wait(20)
    except PyReactantError as error:
        found = error
    assert "test is ACTIVE for" in str(found)
    assert "with 3 of 4 VMs" in str(found)
    assert any("is ACTIVE (for 0 s), with 3 of 4 VMs" in line for line in lines)
    assert api.left() == []


def test_the_timeout_of_a_deletion_is_kept(tmp_path: Path) -> None:
    """No call is retried beyond it, whatever the client's own patience is."""
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        from pyreactant.runs.queued.client import Client
        from pyreactant.runs.queued.deletion import Deleter
        from pyreactant.runs.queued.journal import Journal
        from pyreactant.runs.queued.request import CloudError

        client = Client(environ=made.settings, patience=10_000.0)
        request = slice_request()
        client.create(request, "run1", "")
        api.faults.append(Fault("GET .*queuedResources", code=503, count=10**6))
        with pytest.raises(CloudError, match="could NOT be deleted"):
            Deleter(client, Journal(made.state), print, 1.0, pause=0.1).delete(request.path, "run1")


def test_operation_that_fails(tmp_path: Path) -> None:
    """The API accepts the create, which fails later without a resource."""
    api = TpuApi(workers=hosts_of)
    api.operation_error = {
        "code": 8,
        "message": "Insufficient reserved capacity. Contact customer support",
    }
    error = outcome(tmp_path, api, life)
    assert "did not create test: Insufficient reserved capacity" in str(error)
    assert error.exit_code == 8


def test_deleted_by_somebody_else(tmp_path: Path) -> None:
    api = TpuApi(script=[*WAITING[:3], ("WAITING_FOR_RESOURCES", None)], workers=hosts_of)

    def act(lease: Any, api: TpuApi) -> None:
        lease.create()
        name = lease.request.path

        def vanish(moment: str, call: str) -> None:
            if len(api.calls) > 5:
                api.resources.pop(name, None)

        api.on_call = vanish
        lease.wait(5)

    assert "was deleted by somebody else" in str(outcome(tmp_path, api, act))


def test_name_of_somebody_else(tmp_path: Path) -> None:
    """The error names the other resource, which is not deleted."""
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path / "first", api) as made:
        from pyreactant.runs.queued.client import Client

        client = Client(environ=made.settings)
        request = slice_request()
        client.create(request, "another", "")
        del api.resources[request.path].body["tpu"]["nodeSpec"][0]["node"]["labels"]
    with (
        pytest.raises(PyReactantError, match="taken in asia-northeast1-b by a resource that pyr"),
        leased(tmp_path, api) as (lease, _, _),
    ):
        lease.create()
    time.sleep(0.2)
    assert request.path in api.left()


def test_lost_answer_of_another_run(tmp_path: Path) -> None:
    """409 does not prove that the resource is ours; the label decides."""
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path / "first", api) as made:
        from pyreactant.runs.queued.client import Client

        request = slice_request()
        Client(environ=made.settings).create(request, "another", "")
    with (
        pytest.raises(PyReactantError, match=r"another run of pyreactant \(another\)"),
        leased(tmp_path, api) as (lease, _, _),
    ):
        lease.create()
    time.sleep(0.2)
    assert request.path in api.left()


def test_deletion_that_never_gets_through(tmp_path: Path) -> None:
    """The message contains the command for the deletion, and the journal keeps its entry."""
    api = TpuApi(workers=hosts_of)
    api.faults.append(Fault("DELETE", code=403, message="revoked", count=10**6))
    message = r"could NOT be deleted .* gcloud compute tpus queued"
    with (
        pytest.raises(PyReactantError, match=message),
        leased(tmp_path, api, deletion=0.5) as (lease, _, lines),
    ):
        lease.create()
    assert "deletion has not succeeded yet: Cloud TPU refused the request: revoked" in lines[-1]
    assert len(list((tmp_path / "home" / "state").rglob("*.json"))) == 1


def test_created_unseen_and_then_deleted(tmp_path: Path) -> None:
    """The answer is lost and the resource appears late; the deletion waits for it."""
    api = TpuApi(workers=hosts_of)
    api.faults += [
        Fault("POST", lost=True),
        *[Fault("GET .*queuedResources", code=404) for _ in range(3)],
    ]

    def act(lease: Any, api: TpuApi) -> None:
        lease.create()
        raise DeadlineError("something else")

    assert isinstance(outcome(tmp_path, api, act), DeadlineError)


def test_no_credentials(tmp_path: Path) -> None:
    with cloud(tmp_path, TpuApi()) as made:
        made.settings["CLOUDSDK_AUTH_DISABLE_CREDENTIALS"] = ""
        made.settings["GOOGLE_APPLICATION_CREDENTIALS"] = ""
        made.settings["NO_GCE_CHECK"] = "true"
        code, output = made.run("status")
        assert code == RequirementError.exit_code
        assert "no usable Google credentials" in output
        assert "gcloud auth application-default login" in output


def test_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Without a journal entry, nothing is created."""
    api = TpuApi(workers=hosts_of)
    with cloud(tmp_path, api) as made:
        (tmp_path / "file").touch()
        made.settings["XDG_STATE_HOME"] = str(tmp_path / "file")
        code, output = made.run("create")
        assert (code, api.left()) == (3, [])
        assert "cannot be written" in output
        assert not [call for call in api.calls if call.startswith("POST")]


def test_a_full_disk_leaves_no_lock(tmp_path: Path) -> None:
    """A lock without its note would stay for ever."""
    from pyreactant import RequirementError
    from pyreactant.runs.queued.journal import Journal, Launcher, entry

    journal, limits = Journal(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    made = entry(slice_request(), "run1", asked=0, kept=False)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(RequirementError, match="cannot be written and locked"):
            journal.write(made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(journal.folder.iterdir()) == []
    journal.write(made)
    assert journal.launcher(made) is Launcher.ALIVE
