"""The compiler's answers on disk: one file per question, written atomically."""

import gzip
import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..._system.files import cache_folder, replacing

LIMIT = 512 * 2**20
"""Bytes that the folder may hold; above them the least recently used entries are removed."""


def folder() -> Path:
    """The folder of the entries, in the user's cache folder."""
    return cache_folder() / "preflight"


def key_of(question: Mapping[str, Any]) -> str:
    """A digest of everything that an answer depends on."""
    text = json.dumps(question, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read(key: str) -> dict[str, Any] | None:
    """The entry, or None; a damaged entry is removed."""
    path = _path(key)
    try:
        entry = json.loads(gzip.decompress(path.read_bytes()))
        if entry["key"] != key:
            raise ValueError(key)
        os.utime(path)  # mark it as used
        return dict(entry["answer"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError, KeyError, TypeError):
        _remove(path)
    except OSError as error:
        _warn("read", error)
    return None


def write(key: str, answer: Mapping[str, Any]) -> None:
    """Store an answer; a failure is only a warning."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": key, "answer": answer})
        with replacing(path) as partial:
            partial.write_bytes(gzip.compress(text.encode(), compresslevel=3))
        _prune(path.parent)
    except OSError as error:
        _warn("written", error)


def _path(key: str) -> Path:
    return folder() / f"{key}.json.gz"


def _prune(entries: Path) -> None:
    """Remove the least recently used entries until the folder is within its limit."""
    found = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in entries.glob("*.json.gz"))
    size = sum(bytes_ for _, bytes_, _ in found)
    for _, bytes_, path in found:
        if size <= LIMIT:
            break
        _remove(path)
        size -= bytes_


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _warn("changed", error)


def _warn(what: str, error: OSError) -> None:
    warnings.warn(
        f"the preflight cache cannot be {what} ({error.strerror}: {folder()}), so the answer is "
        "not stored; set XDG_CACHE_HOME to another folder, or disable the cache with cache=False "
        "(--no-cache)",
        RuntimeWarning,
        stacklevel=2,
    )
