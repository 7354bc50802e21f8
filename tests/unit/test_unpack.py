"""Archives from other machines, by Python's own filter and by ours for Python before 3.11.4."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreactant.base.files import unpack

HAS_FILTER = hasattr(tarfile, "data_filter")
WAYS = ["python's", "ours"] if HAS_FILTER else ["ours"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which filter is used."""
    if request.param == "ours":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    return str(request.param)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> bytes:
    """An archive with one entry, without its end."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = kind, link, mode
        info.size = 4 if kind == tarfile.REGTYPE else 0
        info.uid = info.gid = 12345
        file.addfile(info, io.BytesIO(b"data"))
        return made.getvalue()[: file.offset]


def extract(entries: bytes, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(entries + bytes(1024))) as file:
        unpack(file, folder)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 wants a filter
def test_what_is_unpacked(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "private").mkdir(mode=0o700)
    extract(
        entry("private", tarfile.DIRTYPE, mode=0o777)
        + entry("a", tarfile.DIRTYPE, mode=0o777)
        + entry("a/file", mode=0o4666)
        + entry("/a/run", mode=0o777)
        + entry("a/again", tarfile.LNKTYPE, "a/file", 0o777)
        + entry("a/up", tarfile.SYMTYPE, "../a/run"),
        folder,
    )
    assert (folder / "a/file").read_bytes() == b"data"
    assert (folder / "a/up").resolve() == folder / "a/run"
    assert (folder / "a/again").samefile(folder / "a/file")
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (folder / "a").iterdir()}
    assert modes["run"] == 0o755
    assert modes["file"] in (0o644, 0o755), "the link's mode may be the file's"
    assert (folder / "a").stat().st_mode & 0o022 == 0
    assert (folder / "private").stat().st_mode & 0o777 == 0o700, "a folder keeps its mode"
    assert (folder / "a/file").stat().st_uid == tmp_path.stat().st_uid


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "entries",
    [
        entry("../outside"),
        entry("a/../../outside"),
        entry("link", tarfile.SYMTYPE, "/etc"),
        entry("link", tarfile.SYMTYPE, ".."),
        entry("link", tarfile.SYMTYPE, "../outside"),
        entry("link", tarfile.LNKTYPE, "../outside"),
        entry("link", tarfile.SYMTYPE, "a/..") + entry("link/../../outside"),
        entry("pipe", tarfile.FIFOTYPE),
        entry("null", tarfile.CHRTYPE),
    ],
)
def test_what_is_refused(tmp_path: Path, way: str, entries: bytes) -> None:
    with pytest.raises(tarfile.TarError):
        extract(entries, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=4).map("/".join)
ENTRIES = st.lists(
    st.builds(
        entry,
        NAMES.filter(bool),
        st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
        NAMES,
        st.integers(0, 0o7777),
    ),
    max_size=4,
)


@pytest.mark.skipif(not HAS_FILTER, reason="this Python has no filter to compare with")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@given(entries=ENTRIES)
def test_both_filters_let_nothing_out(
    tmp_path_factory: pytest.TempPathFactory, entries: list[bytes]
) -> None:
    """Nothing lands outside, and ours refuses all that Python's refuses."""
    place = tmp_path_factory.mktemp("place")
    accepted = {}
    for way in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            if way == "ours":
                patch.delattr(tarfile, "data_filter")
            try:
                extract(b"".join(entries), place / way)
                accepted[way] = True
            except (tarfile.TarError, OSError, KeyError):
                accepted[way] = False
    assert sorted(path.name for path in place.iterdir()) == sorted(WAYS)
    assert accepted["python's"] or not accepted["ours"], accepted
