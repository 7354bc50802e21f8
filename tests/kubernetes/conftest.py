"""A cluster whose pods never start by themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyreactant.runs.places.kubernetes import client, watch
from tests.kubernetes.api import Api, running


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
