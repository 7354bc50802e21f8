"""Code and values that are too large for the cluster travel through a bucket."""

import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pyreactant as pr
from pyreactant.base.storage import Folder, login_of_machine, login_of_user
from pyreactant.runs import store
from pyreactant.runs.places.kubernetes import brought
from pyreactant.runs.places.kubernetes.adopt import adopt
from tests import harness
from tests.checkpoint.buckets import Storage
from tests.harness import environment, free_port
from tests.kubernetes.api import Api
from tests.kubernetes.test_adopt import on_another_machine
from tests.kubernetes.test_brought import Pod as Log
from tests.kubernetes.test_brought import pod

Kubernetes = pr.targets.Kubernetes
STORE = "gs://bucket/some/jobs"
MIB = 1 << 20


def submitted(**settings: Any) -> pr.Job:
    """A job whose code is large."""
    return pr.submit(["train.py"], on=Kubernetes(store=STORE, **settings), copies=["large"])


def refusal(error: type[Exception], api: Api, bucket: Storage, **settings: Any) -> str:
    """The message of a submission that fails; nothing is left in the cluster and the bucket."""
    with pytest.raises(error) as caught:
        pr.submit(["train.py"], on=Kubernetes(**{"store": STORE, **settings}), copies=["large"])
    assert (api.objects, bucket.objects) == ({}, {})
    for _, record, status in store.rows():
        assert record is not None
        assert (status.state, status.reason) == ("failed", f"not started: {caught.value}")
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_code_and_value_travel_through_the_bucket(
    pods: Storage, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text(
        "import hashlib, os, numpy as np\n"
        "import pyreactant as pr\n"
        "def main(part):\n"
        "    pr.log(3, loss=0.5)\n"
        "    name = hashlib.sha256(open('large', 'rb').read()).hexdigest()\n"
        "    own = np.frombuffer(os.urandom(5 << 20), np.uint8)\n"
        "    return name, part.sum(), own, hashlib.sha256(own).hexdigest(), os.environ['OWN']\n"
    )
    import numpy as np

    monkeypatch.setenv("OWN", "a secret of the user")
    given = np.arange(1 << 18)
    on = Kubernetes(nodes=2, store=f"{STORE}/")
    job = pr.submit("program.py:main", [given], on=on, copies=["large"], env=["OWN"])
    found = job.result(timeout=300)
    code = hashlib.sha256((tmp_path / "large").read_bytes()).hexdigest()
    assert (found[0], found[1], found[4]) == (code, given.sum(), "a secret of the user")
    assert hashlib.sha256(found[2]).hexdigest() == found[3]
    assert [(m.step, m.value) for m in job.metrics()] == [(3, 0.5)]
    assert job.status().state == "done"
    names = sorted(pods.objects)
    assert all(name.startswith(f"some/jobs/{job.id}/") for name in names)
    assert len(names) == 3, "what process 0 wrote to try it, code and value"
    assert not any(b"a secret" in data for _, data in pods.objects.values())

    on_another_machine(tmp_path, monkeypatch)
    there = pr.Job(adopt(job.id))
    assert there.result()[3] == found[3]
    store.remove(there.record.folder)
    assert (api.objects, pods.objects) == ({}, {}), "it is cleaned"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cancelled_job_leaves_nothing(pods: Storage, api: Api) -> None:
    job = pr.submit("program.py:waits", on=Kubernetes(nodes=2, store=STORE), copies=["large"])
    harness.until(lambda: "waiting" in "".join(job.logs()))
    assert len(pods.objects) == 2
    assert job.cancel().state == "cancelled"
    assert (api.objects, pods.objects) == ({}, {})


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", ["no right", "deleted", "changed", "no account"])
def test_what_the_pods_cannot_read(pods: Storage, api: Api, case: str) -> None:
    """The reason is what the pod said."""
    api.starts = False
    job = pr.submit(["train.py"], on=Kubernetes(store=STORE), copies=["large"])
    (name,) = (n for n, (_, data) in pods.objects.items() if data)
    if case == "no right":
        pods.accounts = {"user"}
        said = "pods does not have storage.objects access to the bucket); give that account the"
    elif case == "deleted":
        del pods.objects[name]
        said = f"gs://bucket/{name} is not there any more; submit the job again"
    elif case == "changed":
        pods.objects[name] = (1, b"of another")
        said = f"gs://bucket/{name} must have the SHA-256 that is its name, and was changed; "
    else:
        pods.logins = {"user"}
        said = "Cloud Storage needs a login, and the metadata server metadata.google.internal gives"
    api.starts = True
    api.resume(f"pr-{job.id.lower()}")
    status = job.wait(timeout=300)
    assert (status.state, status.exit_code) == ("failed", 3)
    assert said in status.reason
    assert "pyreactant: error: " in "".join(job.logs())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_value_is_refused_before_it_is_computed(pods: Storage) -> None:
    """A pod that may read, and not write, says so at once."""
    pods.accounts = {"user"}
    job = pr.submit("program.py:waits", on=Kubernetes(store=STORE))
    status = job.wait(timeout=300)
    assert (status.state, status.exit_code) == ("failed", 3)
    assert f"Cloud Storage does not write {STORE}/{job.id} (403: pods" in status.reason
    assert "waiting" not in "".join(job.logs())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("on", [Kubernetes(store=STORE), Kubernetes()])
def test_a_value_that_does_not_come_back(
    on: pr.targets.Kubernetes, pods: Storage, tmp_path: Path
) -> None:
    """Report and metrics do; here the right to write goes while the program runs."""
    (tmp_path / "program.py").write_text(
        "import os, time, numpy as np\n"
        "import pyreactant as pr\n"
        "def main(file):\n"
        "    pr.log(3, loss=0.5)\n"
        "    print('waiting', flush=True)\n"
        "    while not os.path.exists(file):\n"
        "        time.sleep(0.1)\n"
        "    return np.frombuffer(os.urandom(5 << 20), np.uint8)\n"
    )
    job = pr.submit("program.py:main", [str(tmp_path / "go")], on=on)
    harness.until(lambda: "waiting" in "".join(job.logs()))
    pods.accounts = {"user"}
    (tmp_path / "go").touch()
    why = "must have at most 1 MiB when it is packed, and has 5.0 MiB; name a bucket for it by"
    if on.store is not None:
        why = f"Cloud Storage does not write {STORE}/{job.id} (403: pods"
    with pytest.raises(pr.RemoteError) as caught:
        job.result(timeout=300)
    assert why in str(caught.value)
    assert [(m.step, m.value) for m in job.metrics()] == [(3, 0.5)]
    assert job.record.report()["processes"]
    assert not (job.record.out / "value").exists()


def test_what_is_no_folder() -> None:
    wrong = ("mine", "s3://mine/jobs", "gs://", "gs:///jobs", "gs://Mine/x", "gs://mine/../x", "")
    others = ("gs://mine/\udcff", "gs://mine/$(HOME)", "gs://mine/*", f"gs://mine/{'x' * 201}")
    for given in (*wrong, *others):
        with pytest.raises(pr.InvalidArgumentError) as caught:
            Kubernetes(store=given).check_settings()
        words = (
            "store must be a folder of Cloud Storage such as gs://mine/jobs, with at most 200 "
            "letters, digits and -_.=+@: after the bucket, got"
        )
        assert str(caught.value) == f"{words} {given!r}"
    for given in ("gs://mine", "gs://mine/", "gs://my.own_bucket/a/b..c", "gs://mine/größe"):
        Kubernetes(store=given).check_settings()


def test_without_a_bucket_the_refusal_names_it(api: Api, bucket: Storage) -> None:
    said = refusal(pr.InvalidArgumentError, api, bucket, store=None)
    assert "at most 900 KiB when they are packed, for they travel in a Secret, and are 30" in said
    assert "name a bucket for them by store, or keep data in a volume (volumes)" in said


def test_no_such_bucket(api: Api, bucket: Storage) -> None:
    said = refusal(pr.InvalidArgumentError, api, bucket, store="gs://another/jobs")
    assert said.startswith("store must be in a bucket that exists, and Cloud Storage cannot write")
    assert "(404: The specified bucket does not exist.)" in said
    assert said.endswith("make the bucket with: gcloud storage buckets create gs://another")


def test_a_name_that_no_bucket_has(api: Api, bucket: Storage) -> None:
    bucket.faults = [400]
    said = refusal(pr.InvalidArgumentError, api, bucket)
    assert said.startswith("store must be a folder that Cloud Storage takes, and it does not write")
    assert said.endswith("(400: ); name another bucket or folder")


@pytest.mark.parametrize(
    "given", [{"env": {"LARGE": os.urandom(MIB).hex()}}, {"requirements": "long.txt"}]
)
def test_what_fits_in_no_secret(api: Api, bucket: Storage, given: dict[str, Any]) -> None:
    Path("long.txt").write_bytes(b"# caf\xe9, of another encoding\n" * (1 << 16))
    with pytest.raises(pr.InvalidArgumentError) as caught:
        pr.submit(["train.py"], on=Kubernetes(store=STORE), copies=["large"], **given)
    said = str(caught.value)
    assert said.startswith("what env and requirements name travels in a Secret, which must have at")
    assert said.endswith("; put what is large into a file of the code")
    assert (api.objects, bucket.objects) == ({}, {})


def test_no_right(api: Api, bucket: Storage) -> None:
    bucket.accounts = {"pods"}
    said = refusal(pr.RequirementError, api, bucket)
    assert f"Cloud Storage does not write {STORE}/" in said
    assert "(403: user does not have storage.objects access to the bucket); give that" in said
    assert said.endswith("Storage Object User (roles/storage.objectUser) on gs://bucket")


def test_no_login(api: Api, bucket: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")
    said = refusal(pr.RequirementError, api, bucket)
    assert said.startswith("Cloud Storage needs a login on this machine, and Google's application")
    assert said.endswith("log in with: gcloud auth application-default login")


def test_no_google_auth(api: Api, bucket: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    said = refusal(pr.RequirementError, api, bucket)
    assert said.endswith("install it with: python -m pip install 'pyreactant[kubernetes]'")


def test_a_login_that_is_not_accepted(api: Api, bucket: Storage) -> None:
    with pytest.raises(pr.RequirementError, match=r"does not accept the login .* \(401: "):
        Folder(STORE, lambda: "of another").check()


def test_a_login_that_is_good_for_an_hour(api: Api, bucket: Storage) -> None:
    """The first token of a pod is no longer good when its value goes to the bucket."""
    tokens = iter(["token-of-pods", "token-of-user"])
    stored = Folder(STORE, lambda: next(tokens))
    bucket.accounts = {"pods"}
    stored.check()
    bucket.accounts = {"user"}
    assert stored.put(io.BytesIO(b"value")) in "".join(bucket.objects)


def test_nobody_listens(
    api: Api,
    bucket: Storage,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The user sees why it waits, and it waits once: there is nothing to delete."""
    nobody = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", nobody)
    said = refusal(pr.RequirementError, api, bucket)
    assert "Connection refused); see whether this machine reaches " + nobody in said
    (waits,) = (line for line in capsys.readouterr().err.splitlines() if "asked again" in line)
    assert waits.startswith("pyreactant: Cloud Storage does not answer now to write gs://bucket/")


def test_what_passes_is_tried_again(api: Api, bucket: Storage) -> None:
    bucket.faults, bucket.cuts = [503], 1
    job = submitted()
    (code,) = (data for _, data in bucket.objects.values() if data)
    bucket.faults, bucket.cuts = [429], 1
    folder = Folder(f"{STORE}/{job.id}", login_of_user)
    folder.get(hashlib.sha256(code).hexdigest(), content := io.BytesIO())
    assert content.getvalue() == code
    bucket.faults = [503, 503, 429]
    with pytest.raises(pr.RequirementError, match=r"does not answer now to read .* \(429: \)"):
        folder.get(hashlib.sha256(code).hexdigest(), content)
    assert job.cancel().state == "cancelled"
    assert (api.objects, bucket.objects) == ({}, {})


def test_an_upload_that_is_cut_leaves_nothing(api: Api, bucket: Storage) -> None:
    bucket.cuts = 4  # the empty object is tried twice, then the code breaks off
    bucket.faults = []
    said = refusal(pr.RequirementError, api, bucket)
    assert "Cloud Storage does not answer now to write" in said


def test_an_answer_of_a_proxy(api: Api, bucket: Storage) -> None:
    bucket.faults = [200]
    said = refusal(pr.RequirementError, api, bucket)
    assert f"{bucket.url} gave no answer of Cloud Storage to write {STORE}/" in said
    assert said.endswith("but ''; see whether a proxy leads elsewhere")


def test_what_a_lost_job_has_stored(api: Api, bucket: Storage) -> None:
    job = submitted()
    api.objects.clear()
    assert job.status().state == "lost"
    assert bucket.objects
    assert job.cancel().state == "lost"
    assert bucket.objects == {}


def test_a_cluster_that_refuses_leaves_nothing(api: Api, bucket: Storage) -> None:
    assert "does not allow to create jobsets/pr-" in refusal(
        pr.RequirementError, api, bucket, context="viewer"
    )


def test_objects_that_cannot_be_deleted(
    api: Api, bucket: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submitted()
    bucket.denied = True
    assert job.cancel().state == "cancelled"
    said = capsys.readouterr().err
    assert f"what the job {job.id} has stored could not be deleted: Cloud Storage does not" in said
    assert f"later delete it with: gcloud storage rm --recursive {STORE}/{job.id}" in said


def test_a_value_that_is_not_there_any_more(bucket: Storage, tmp_path: Path, api: Api) -> None:
    made = submitted().record
    (tmp_path / "value").mkdir()
    (tmp_path / "value" / "tree.json").write_bytes(os.urandom(2 * MIB))
    folder = Folder(STORE, login_of_machine)
    lines = brought.sent({"value": tmp_path / "value"}, folder)
    assert [line[:19] for line in lines] == [b"pyreactant-end stor", b"pyreactant-end sha2"]
    log = Log()
    log.lines = [("2026-11-28T10:00:00.000000000Z", line) for line in lines]
    brought.bring_log(log, made, 0, pod())
    assert not brought.unpack_end(made, 0), "it is in the bucket"
    name = next(name for name in bucket.objects if name.count("/") == 2)
    content = bucket.objects.pop(name)
    with pytest.raises(pr.RequirementError, match="is not there any more; submit the job again"):
        brought.unpack_end(made, 0, folder)
    bucket.objects[name] = (1, content[1][:-1])
    with pytest.raises(pr.RequirementError, match="must have the SHA-256 that is its name, and"):
        brought.unpack_end(made, 0, folder)
    assert not made.out.exists()
    bucket.objects[name] = content
    assert brought.unpack_end(made, 0, folder)
    value = made.out / "value" / "tree.json"
    assert value.read_bytes() == (tmp_path / "value" / "tree.json").read_bytes()


def test_a_manifest_and_its_plan(api: Api, bucket: Storage, tmp_path: Path) -> None:
    settings = environment(
        **{name: os.environ[name] for name in ("KUBECONFIG", "GCE_METADATA_HOST")},
        GCE_METADATA_IP=os.environ["GCE_METADATA_IP"],
    )

    def run(*words: str) -> Any:
        argv = [sys.executable, "-m", "pyreactant", "run", "--on=kubernetes", "--copy=large"]
        line = [*argv, f"--store={STORE}", *words, "--", "train.py"]
        return harness.run(line, cwd=tmp_path, env=settings)

    plan = run("--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert f"# Code of more than 800 KiB, when packed, goes to {STORE}/ID.\n" in plan.stdout
    assert bucket.objects == {}
    (tmp_path / "there.yaml").touch()
    refused = run("--manifest=there.yaml")
    assert (refused.returncode, bucket.objects) == (2, {}), refused.stderr
    made = run("--manifest=job.yaml")
    assert made.returncode == 0, made.stderr
    *_, jobset = yaml.safe_load_all((tmp_path / "job.yaml").read_text())
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    folder = job["containers"][0]["command"][-1]
    assert {name.rpartition("/")[0] for name in bucket.objects} == {folder[len("gs://bucket/") :]}
    assert json.loads(job["containers"][0]["command"][-2])["platform"] == "cpu"
