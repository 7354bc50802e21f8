"""A cluster whose pods never start by themselves."""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyreactant.runs.places.kubernetes import client, watch
from tests.checkpoint.buckets import Storage, cloud_storage
from tests.harness import REPOSITORY, require
from tests.kubernetes.api import Api, running
from tests.kubernetes.pods import relay


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The cluster of the current context, and the current folder with a program."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "cluster" / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    client.cluster_at.cache_clear()
    watch.watch_of.cache_clear()
    with running(tmp_path / "cluster") as there:
        there.starts = False
        yield there
    client.cluster_at.cache_clear()


@pytest.fixture(scope="session")
def one() -> Iterator[Storage]:
    """One server for all tests: Google's library reads its address once."""
    with cloud_storage() as storage:
        yield storage


@pytest.fixture
def bucket(one: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A bucket that this machine may use, and a file that does not fit in a Secret."""
    monkeypatch.setattr("pyreactant.base.storage._PAUSES", (0.1, 0.1))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-login"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    (tmp_path / "large").write_bytes(os.urandom(3 << 20))
    one.accounts, one.denied, one.faults, one.cuts = {"user", "pods"}, False, [], 0
    one.logins = {"user", "pods"}
    one.objects.clear()
    host = one.url.removeprefix("http://")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", one.url)
    monkeypatch.setenv("GCE_METADATA_HOST", host)
    monkeypatch.setenv("GCE_METADATA_IP", host)
    return one


@pytest.fixture
def pods(api: Api, bucket: Storage, tmp_path: Path) -> Iterator[Storage]:
    """The bucket, which pods reach, and a program."""
    require(os.geteuid() == 0, "root, for the pods' file systems")
    shutil.copy(REPOSITORY / "tests" / "jobs" / "program.py", tmp_path)
    folder = tempfile.mkdtemp()  # a socket's path has 108 characters at most
    address = bucket.server_address
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        to = lambda: socket.create_connection((str(address[0]), int(address[1])))  # noqa: E731
        threading.Thread(target=relay, args=(listener, to), daemon=True).start()
        api.starts, api.late = True, ("--storage", f"{folder}/socket")
        yield bucket
    shutil.rmtree(folder)
