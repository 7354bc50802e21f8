"""The law of money under any answers of the API: states, fields that lack, refusals, garbage.

Whatever was answered: what is left makes its command fail, and stays in the journal; and once the
API answers again, `gc` finds it there and deletes it.
"""

import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from pyreactant import PyReactantError
from tests.gcloud.cloud import Cloud, cloud, hosts_of, slice_request
from tests.gcloud.tpu_api import ABSENT, Fault, TpuApi

pytestmark = pytest.mark.slow

STATES = (
    *("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"),
    *("FAILED", "SUSPENDING", "SUSPENDED", "DELETING"),
    99,  # one that the client does not know
)
RESOURCE = "(GET|DELETE) .*queuedResources/test"
CALLS = (RESOURCE, RESOURCE, "", "POST", "DELETE", "GET .*nodes", "GET .*operations", "PATCH")
TEXTS = ("<html>Please log in</html>", "", "null", "[]", "{}", '{"name": 1}', '{"error": "x"}')

scripts = st.lists(
    st.tuples(st.sampled_from(STATES), st.sampled_from([0.0, 0.02, 0.05])), min_size=1, max_size=5
)
REFUSALS = [{"code": code} for code in (400, 401, 403, 409, 429, 500, 503)]
GARBAGE = [{"code": code, "text": text} for code in (None, 403, 404, 500) for text in TEXTS]
wrong_answers = st.builds(
    lambda call, kind, count: Fault(call, count=count, **kind),
    st.sampled_from(CALLS),
    st.sampled_from([*REFUSALS, *GARBAGE, {"lost": True}]),
    st.sampled_from([10**6, 3, 1]),
)
# What the API itself calls gone counts as gone, but for a resource that it does not show yet.
unseen = st.builds(
    Fault, st.just("GET .*queuedResources/test"), code=st.just(404), count=st.sampled_from([2, 4])
)
faults = st.builds(
    list.__add__, st.lists(unseen, max_size=1), st.lists(wrong_answers, min_size=1, max_size=3)
)
absent = st.dictionaries(st.sampled_from(STATES[:-1]), st.sampled_from(sorted(ABSENT)), max_size=3)


def deleter_of(made: Cloud, lines: list[str], patience: float, limit: float) -> Any:
    from pyreactant.runs.queued.client import Client
    from pyreactant.runs.queued.deletion import Deleter
    from pyreactant.runs.queued.journal import Journal

    client = Client(environ=made.settings, patience=patience)
    return Deleter(client, Journal(made.state), lines.append, limit, pause=0.01, unseen=0.1)


def notes(made: Cloud) -> list[Path]:
    return list((made.state / "queued-resources").glob("*.json"))


def left_behind(made: Cloud, asked: float) -> None:
    """A resource and its entry, whose launcher is dead."""
    from pyreactant.runs.queued.client import Client
    from pyreactant.runs.queued.journal import entry

    request = slice_request()
    Client(environ=made.settings).create(request, "run1", "")
    folder = made.state / "queued-resources"
    folder.mkdir(parents=True)
    noted = entry(request, "run1", asked=asked, kept=False)
    (folder / "run1.json").write_text(json.dumps({"schema": 1, **asdict(noted)}))
    (folder / "run1.lock").touch()


def act(
    made: Cloud, action: str, lines: list[str], *, patience: float = 0.1, limit: float = 0.5
) -> bool:
    """Do it; whether its command would end with 0."""
    from pyreactant.runs.queued.deletion import Collector
    from pyreactant.runs.queued.lifecycle import Lease
    from pyreactant.runs.queued.signals import cleaned_up

    deleter = deleter_of(made, lines, patience, limit)
    try:
        if action == "launcher":
            lease = Lease(deleter, slice_request(), "run1", bare=0.2)
            with cleaned_up(lease.close, lines.append):
                lease.create()
                lease.wait(0.3)
        elif action == "delete":
            deleter.delete_named(slice_request().path)
        else:
            findings = Collector(deleter).collect([slice_request().parent])
            lines += map(str, findings)
            return not any(finding.costs for finding in findings)
    except PyReactantError as error:
        lines.append(f"{type(error).__name__}: {error}")
        return error.exit_code == 0
    return True


def check(action: str, script: Any, wrong: list[Fault], lacking: dict[str, str]) -> None:
    api, lines = TpuApi(workers=hosts_of, script=script), list[str]()
    api.script[-1] = (api.script[-1][0], None)
    with tempfile.TemporaryDirectory() as folder, cloud(Path(folder, "cloud"), api) as made:
        if action != "launcher":
            # A request of long ago cannot be on its way, so that "gone" is believed.
            invisible = any(fault.code == 404 and fault.text is None for fault in wrong)
            left_behind(made, time.time() if invisible else 0.0)
        api.faults, api.absent = [Fault(**vars(fault)) for fault in wrong], lacking
        done = act(made, action, lines)
        left = api.left()
        assert not (left and done), (left, lines)
        assert not left or notes(made), (left, lines)

        api.faults, api.absent = [], {}
        for note in notes(made):
            note.write_text(json.dumps({**json.loads(note.read_text()), "asked": 0.0}))
            note.with_suffix(".lock").unlink()
            note.with_suffix(".lock").touch()  # its launcher is dead
        act(made, "gc", lines, patience=60, limit=60)  # on a busy machine, too
        assert (api.left(), notes(made)) == ([], []), lines


@pytest.mark.timeout(900)  # a busy machine
@pytest.mark.parametrize("action", ["launcher", "delete", "gc"])
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(script=scripts, wrong=faults, lacking=absent)
def test_what_is_left_is_known(
    action: str, script: Any, wrong: list[Fault], lacking: dict[str, str]
) -> None:
    check(action, script, wrong, lacking)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a busy machine
@pytest.mark.parametrize("action", ["launcher", "delete", "gc"])
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(script=scripts, wrong=faults, lacking=absent)
def test_what_is_left_is_known_in_more_cases(
    action: str, script: Any, wrong: list[Fault], lacking: dict[str, str]
) -> None:
    check(action, script, wrong, lacking)
