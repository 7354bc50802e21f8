"""Checkpoints in buckets: moto's S3, and the stand-in for Cloud Storage in buckets.py."""

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyreactant as pr
from pyreactant.arrays.checkpoint import bucket, commit
from pyreactant.arrays.checkpoint import write as writing
from pyreactant.arrays.checkpoint.bucket import COMMIT, Bucket, one_context, tensorstore
from pyreactant.arrays.checkpoint.folder import list_steps, steps_in
from pyreactant.arrays.checkpoint.inspect import verify
from tests import harness
from tests.checkpoint import buckets
from tests.checkpoint.loops import fill, loops, tree
from tests.checkpoint.test_processes import run

pytestmark = pytest.mark.usefixtures("backend")

NUMBERS = itertools.count()


@dataclass
class Place:
    """A new folder in a bucket."""

    url: str
    services: buckets.Services

    @property
    def folder(self) -> Bucket:
        return Bucket.parse(self.url)

    def names(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir() if not p.name.startswith("."))

    def keys(self, folder: str) -> list[str]:
        return sorted((self.folder / folder)._below())


@pytest.fixture(scope="module")
def services() -> Iterator[buckets.Services]:
    with buckets.serving() as services:
        yield services


@pytest.fixture(params=["gs", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: Any, services: buckets.Services, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in services.settings.items():
        monkeypatch.setenv(name, value)
    url = f"{request.param}://bucket/run{next(NUMBERS)}"
    return Place(url, services)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "_RENEWAL", 0.2)
    monkeypatch.setattr(commit, "_LAPSE", 2.0)


def test_conditions_and_lists(place: Place) -> None:
    """What the writer of a bucket leans on, the same from both."""
    store = tensorstore().KvStore.open(place.folder.spec(), context=one_context()).result()
    absent = store.read("a").result()
    assert (absent.state, absent.stamp.generation) == ("missing", bucket.ABSENT)
    first = store.write("a", b"1", if_equal=absent.stamp.generation).result().generation
    assert first
    assert not store.write("a", b"2", if_equal=absent.stamp.generation).result().generation
    second = store.write("a", b"3", if_equal=first).result().generation
    assert second not in (b"", first)
    assert not store.write("a", None, if_equal=first).result().generation
    read = store.read("a").result()
    assert (read.value, read.stamp.generation) == (b"3", second)
    wanted = [f"b/{n:04}".encode() for n in range(3 * buckets.PAGE + 1)]
    for write in [store.write(key, b"") for key in wanted]:
        write.result()
    assert sorted(store.list().result()) == [b"a", *wanted]
    assert store.write("a", None, if_equal=second).result().generation
    assert store.read("a").result().state == "missing"


def test_a_loop(place: Place) -> None:
    with pr.Checkpoints(place.url, keep=2) as checkpoints:
        assert checkpoints.restore(like=tree(0)) is None
        for step in range(4):
            checkpoints.save(step, tree(step))
        assert checkpoints.restore()["step"] == 3
    assert place.names() == ["2", "3"]
    keys = place.keys("3")
    assert COMMIT in keys
    assert f"state/{COMMIT}" in keys
    assert not [key for key in keys if "unfinished" in key]
    assert [*Path.cwd().glob("gs:*"), *Path.cwd().glob("s3:*")] == []
    with pr.Checkpoints(place.url, keep=2) as checkpoints:  # nobody has it now
        assert checkpoints.restore()["w"].tolist() == [3.0] * 1000
        checkpoints.save(4, tree(4))
    assert place.names() == ["3", "4"]


def test_one_checkpoint(place: Place) -> None:
    sharding = pr.NamedSharding(pr.Mesh((2, 4), ("x", "y")), ("x", "y"))
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    pr.save(f"{place.url}/one", {"w": pr.device_put(values, sharding), "t": "text"})
    other = pr.NamedSharding(pr.Mesh((8,), ("d",)), (None, "d"))
    for folder in (f"{place.url}/one", f"{place.url}/one/state", Path(f"{place.url}/one")):
        found = pr.restore(folder, like={"w": values}, shardings=other)
        np.testing.assert_array_equal(found["w"].gather(), values)
    with pytest.raises(pr.FileError, match="one exists already; name a new folder"):
        pr.save(f"{place.url}/one", {"n": 1})
    alone = f"{place.url.rpartition('/')[0]}/alone"  # right in the bucket
    pr.save(alone, {"n": 1})
    assert pr.restore(alone) == {"n": 1}


def test_several_processes(place: Place, tmp_path: Path) -> None:
    settings = place.services.settings
    run("save_all", tmp_path, 1, more=settings, bucket=place.url)
    run("save_all", tmp_path, 2, more=settings, bucket=place.url)
    run(
        "restore_all+spread",
        tmp_path,
        4,
        more=settings,
        bucket=place.url,
        restore_all={"expected": 4},
    )
    run("restore_all", tmp_path, 1, more=settings, bucket=place.url, restore_all={"expected": 4})
    wrote = {
        key.split("/")[1].partition("-")[0]
        for key in place.keys("spread")
        if "ocdbt.process" in key
    }
    assert wrote == {f"ocdbt.process_{n}" for n in range(4)}


@pytest.fixture
def loop(place: Place) -> Iterator[Any]:
    with loops(place.url, keep=3, **place.services.settings) as start:
        yield start


@pytest.mark.slow
@pytest.mark.only("jax")
def test_another_run_writes_the_folder(place: Place, loop: Any) -> None:
    """It lives as long as it says so, and a dead process of this machine needs no wait."""
    other = loop()
    with pytest.raises(pr.FileError) as caught:
        fill(place.url, [1000])
    host = os.uname().nodename
    assert f"is written by another run (process {other.pid} on {host}, since" in str(caught.value)
    for _ in range(2):
        other.send_signal(signal.SIGKILL)
        other.wait()
        for step in steps_in(place.folder):
            found = pr.restore(f"{place.url}/{step}")
            assert found["step"] == step
            assert set(found["w"].tolist()) == {step}
        other = loop()
    other.send_signal(signal.SIGKILL)
    other.wait()
    fill(place.url, [1000])
    assert all(name.isdigit() for name in place.names())
    assert [verdict.damage for verdict in verify(place.folder)] == [""] * len(place.names())


@pytest.mark.usefixtures("brief")
def test_a_writer_of_another_machine(place: Place) -> None:
    """It is taken over when it has said nothing for a while; then its own saves fail."""
    lock = place.folder / ".pyreactant-writer"
    lock.write(json.dumps({"host": "n7", "process": 12, "since": 0}).encode())
    fill(place.url, [1])
    assert lock.read()[0] is None
    with pr.Checkpoints(place.url) as checkpoints:
        with pytest.raises(pr.FileError, match="is written by this process already"):
            fill(place.url, [2])
        lock.write(json.dumps({"host": "n8", "process": 13, "since": 0}).encode())
        with pytest.raises(pr.FileError, match=r"another run \(process 13 on n8, since"):
            checkpoints.save(2, tree(2))
    assert place.names() == ["1"]
    assert lock.read()[0] is not None


TAKER = """
import sys
import numpy as np
import pyreactant as pr
from pyreactant.arrays.checkpoint import commit

commit._LAPSE = 2.0
with pr.Checkpoints(sys.argv[1]) as checkpoints:
    assert checkpoints.restore()["step"] == 1
    checkpoints.save(2, {"w": np.full(1000, 7, np.float32), "text": "other"})
"""


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["write_arrays", "merge"])
def test_a_stopped_writer_goes_on(
    place: Place, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that took over writes the same step meanwhile, and keeps it."""
    monkeypatch.setattr(commit, "_RENEWAL", 3600.0)

    def stopped(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        settings = harness.environment(PYREACTANT_PLATFORM="cpu", **place.services.settings)
        done = harness.run([sys.executable, "-c", TAKER, place.url], env=settings)
        assert done.returncode == 0, done.stderr
        for name, value in place.services.settings.items():
            monkeypatch.setenv(name, value)
        return going_on(*args, **options)

    fill(place.url, [1])
    with pr.Checkpoints(place.url) as checkpoints:
        going_on = getattr(writing, phase)
        monkeypatch.setattr(writing, phase, stopped)
        checkpoints.save(2, {"w": np.full(1000, 2, np.float32), "text": "mine"})
        with pytest.raises(pr.FileError, match=r"another run has taken|Another run wrote it"):
            checkpoints.save(3, tree(3))
        with pytest.raises(pr.FileError, match="another run has taken it over and has ended"):
            checkpoints.save(3, tree(3))
    assert place.names() == ["1", "2"]
    found = pr.restore(f"{place.url}/2")
    assert (set(found["w"].tolist()), found["text"]) == ({7.0}, "other")
    assert [verdict.damage for verdict in verify(place.folder)] == ["", ""]


def test_a_lost_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that was repeated since its answer was lost is no other run's."""
    write_once = Bucket.write

    def repeated(self: Bucket, data: bytes | None, version: Any = None) -> Any:
        written = write_once(self, data, version)
        lost = version is not None and self.name == ".pyreactant-writer"
        return write_once(self, data, version) if lost else written

    monkeypatch.setattr(commit, "_RENEWAL", 0.2)
    monkeypatch.setattr(Bucket, "write", repeated)
    with pr.Checkpoints(place.url) as checkpoints:
        said = place.folder / ".pyreactant-writer"
        versions: set[Any] = set()

        def renewals() -> int:
            versions.add(said.read()[1])
            return len(versions)

        harness.until(lambda: renewals() > 2)
        checkpoints.save(1, tree(1))
    assert place.names() == ["1"]


def test_where_numbers_of_processes_say_nothing(place: Place) -> None:
    """Containers of one machine, and machines of one name: only silence says who has died."""
    lock = place.folder / ".pyreactant-writer"
    who = {"host": os.uname().nodename, "machine": "another", "process": os.getpid(), "since": 0}
    lock.write(json.dumps(who).encode())
    assert not commit._is_dead(lock.read_bytes())
    lock.write(None)
    assert commit._is_dead(json.dumps(who | {"machine": commit._machine()}).encode())


def test_one_name_for_two(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two processes that save one checkpoint at a time, one is refused."""
    monkeypatch.setattr(Bucket, "exists", lambda folder: False)
    (place.folder / "one" / "pyreactant-unfinished").write(b"{}")
    with pytest.raises(pr.FileError, match="one is written by another process; name a new folder"):
        pr.save(f"{place.url}/one", {"n": 1})
    assert place.keys("one") == ["pyreactant-unfinished"]


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_no_such_bucket(place: Place) -> None:
    url = place.url.replace("//bucket/", "//absent/")
    with pytest.raises(pr.FileError, match=r"NoSuchBucket.*; see whether the bucket exists, and"):
        pr.save(url, {"n": 1})
    with pytest.raises(pr.FileError, match="or there is no such bucket"):
        fill(url, [1])


def test_what_is_not_whole(place: Place) -> None:
    fill(place.url, [1, 2])
    (place.folder / "2" / COMMIT).write(None)
    assert steps_in(place.folder) == [1]
    with pytest.raises(pr.FileError, match="2 is no whole checkpoint: it lacks commit_success"):
        pr.restore(f"{place.url}/2")
    with pr.Checkpoints(place.url) as checkpoints:
        assert checkpoints.restore()["step"] == 1
        with pytest.raises(pr.FileError, match="2 exists and is no whole step; move it away"):
            checkpoints.save(2, tree(2))  # another tool may be writing it
    (place.folder / "2" / "pyreactant-unfinished").write(b"")
    fill(place.url, [2])
    with pr.Checkpoints(place.url) as checkpoints:
        checkpoints.restore(step=1)
        with pytest.raises(pr.FileError, match="2 is newer than the step that was restored, and a"):
            checkpoints.save(3, tree(3))
    assert place.names() == ["1", "2"]


@pytest.mark.parametrize("place", ["gs"], indirect=True)
def test_arrays_are_opened_side_by_side(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket answers each request after a while; one after the other takes minutes."""
    pr.save(f"{place.url}/many", {f"leaf{n}": np.full(1000, n) for n in range(60)})
    answer, asked, peak = buckets._Handler._is_refused, set[int](), 0

    def slow(handler: Any) -> bool:
        nonlocal peak
        asked.add(id(handler))
        peak = max(peak, len(asked))
        time.sleep(0.02)
        asked.discard(id(handler))
        return answer(handler)

    monkeypatch.setattr(buckets._Handler, "_is_refused", slow)
    found = pr.restore(f"{place.url}/many")
    assert [found[f"leaf{n}"][0] for n in range(60)] == list(range(60))
    assert peak > 5


def command(place: Place, *words: str) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "pyreactant", "checkpoints", *words]
    done = harness.run(argv, env=harness.environment(**place.services.settings))
    return done.returncode, done.stdout, done.stderr


def test_the_commands(place: Place) -> None:
    fill(place.url, [1, 20])
    code, out, _ = command(place, "list", place.url)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["1", "20"]
    listed = json.loads(command(place, "list", place.url, "--json")[1])
    assert [(row["step"], row["leaves"], row["bytes"]) for row in listed] == [
        (1, 2, None),
        (20, 2, None),
    ]
    assert listed[0]["written"] < listed[1]["written"]
    code, out, _ = command(place, "show", f"{place.url}/20")
    assert (code, out.splitlines()[-1]) == (0, "2 leaves, 4.0 kB, with checksums")
    code, out, _ = command(place, "verify", place.url)
    assert (code, out.count("whole, 4.0 kB")) == (0, 2)
    for key in place.keys("1/state"):
        if key.startswith("ocdbt.process_0-") and "/d/" in key:
            file = place.folder / "1/state" / key
            file.write(bytes(len(file.read_bytes())))
    code, out, _ = command(place, "verify", place.url)
    assert code == 5
    assert "1/state: the checkpoint is damaged: array w, block [0:1000]: " in out
    code, _, err = command(place, "list", f"{place.url}/absent")
    assert code == 2
    assert "absent: cannot be read (No such folder); name a folder" in " ".join(err.split())


@pytest.mark.only("jax")
def test_orbax(place: Place, tmp_path: Path) -> None:
    """A copy of ours is Orbax's; one of Orbax, copied here with its last object, can be read."""
    import orbax.checkpoint as ocp

    fill(place.url, [7])
    for key in place.keys("7"):
        path = tmp_path / "7" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        at = place.folder / "7" / key
        path.write_bytes(at.read_bytes())
    found = ocp.StandardCheckpointer().restore(tmp_path / "7" / "state")
    assert found["step"] == 7
    assert found["w"].tolist() == [7.0] * 1000
    with ocp.StandardCheckpointer() as plain:
        plain.save(tmp_path / "plain", {"w": np.arange(6.0)})
    for path in (tmp_path / "plain").rglob("*"):
        if path.is_file():
            at = place.folder / "plain" / str(path.relative_to(tmp_path / "plain"))
            at.write(path.read_bytes())
    (place.folder / "plain" / COMMIT).write(b"")
    assert pr.restore(f"{place.url}/plain")["w"].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["gs"], indirect=True)
def test_a_service_that_refuses_or_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = place.services.storage
    fill(place.url, [1])
    storage.faults += [503, 429, 500]
    assert pr.restore(f"{place.url}/1")["step"] == 1
    storage.denied = True
    try:
        for use in (
            lambda: pr.save(f"{place.url}/2", {"n": 1}),
            lambda: pr.restore(f"{place.url}/1"),
            lambda: list_steps(place.folder),
            lambda: fill(place.url, [5]),
        ):
            with pytest.raises(pr.FileError, match=r"no storage.objects access|403"):
                use()
    finally:
        storage.denied = False
    monkeypatch.setattr(bucket, "_RETRIES", 1)
    monkeypatch.setattr(bucket, "_context", None)
    storage.faults += [503] * 5
    try:
        with pytest.raises(pr.FileError, match=f"{place.url}/1"):
            pr.restore(f"{place.url}/1")
    finally:
        storage.faults.clear()
    storage.away = "ocdbt.process_0-"
    try:
        with pytest.raises(pr.FileError, match=f"{place.url}/1/state: cannot be read now.*503"):
            pr.restore(f"{place.url}/1")
        storage.away = "array_metadatas/process_0"  # which is no damage
        with pytest.raises(pr.FileError, match=f"{place.url}/1/state: cannot be read .*503"):
            pr.restore(f"{place.url}/1")
        storage.away = "unfinished"
        with pytest.raises(pr.FileError, match=f"{place.url}/2: cannot be written on .*503"):
            pr.save(f"{place.url}/2", {"n": 1})
    finally:
        storage.away = "none"
