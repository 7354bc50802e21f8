"""What Perfetto demands of an archive of traces, as its documentation publishes it.

https://perfetto.dev/docs/reference/perfetto-manifest: version 1 of the manifest, the only one.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

_START = '{"perfetto_manifest"'
"""What tells a manifest from a trace; its name and its place in the archive do not matter."""


def opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest's entries and the traces of an archive, by path, after all checks."""
    with tarfile.open(path) as archive:
        texts = {}
        for member in archive:
            assert member.isreg()
            assert not member.pax_headers  # which Perfetto does not read
            file = archive.extractfile(member)
            assert file is not None
            texts[member.name] = file.read().decode()
    manifests = [name for name, text in texts.items() if _is_manifest(text)]
    (name,) = manifests  # at most one; without one the clocks would not be related
    manifest = json.loads(texts.pop(name))["perfetto_manifest"]
    entries = {entry["path"]: entry for entry in manifest["files"]}
    _check(manifest, entries, set(texts))
    traces = {path: json.loads(text) for path, text in texts.items()}
    for trace in traces.values():
        assert isinstance(trace["traceEvents"], list)
    return entries, traces


def _is_manifest(text: str) -> bool:
    return "".join(text[:100].split()).startswith(_START)


def _check(manifest: dict[str, Any], entries: dict[str, Any], members: set[str]) -> None:
    assert manifest.keys() <= {"version", "trace_time", "files", "attributes"}
    assert manifest["version"] == 1
    assert type(manifest["version"]) is int
    assert len(entries) == len(manifest["files"])
    assert entries.keys() == members  # a file that is not listed has a clock of its own
    for entry in entries.values():
        assert entry.keys() <= {"path", "machine", "machines", "clocks"}
        assert "machines" not in entry  # of traces of several machines only
        assert entry["machine"]["name"]
        if "clocks" not in entry:
            continue
        clocks = entry["clocks"]
        assert clocks.keys() <= {"sync_to", "offset_ns"}  # "clock" is for traces with clocks
        assert clocks["sync_to"].keys() == {"file"}  # of a file without clocks of its own
        reference = clocks["sync_to"]["file"]
        assert reference in entries
        assert "clocks" not in entries[reference]
        assert type(clocks["offset_ns"]) is int
        # Events before the start of the reference would be dropped.
        assert 0 <= clocks["offset_ns"] < 1 << 63
