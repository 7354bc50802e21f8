"""tensorstore itself, and by it folders of buckets, with the methods of `Path` that we need.

A bucket has keys and no folders. `iterdir` lists all keys below, and what it returns answers from
that list, so that many steps take one request.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import FileError, RequirementError
from ...base.process import interrupts_held
from ...base.words import tensorstore_reason

COMMIT = "commit_success.txt"
"""What Orbax writes last into a step and its item in a bucket; without it a step is not whole."""

TENSORSTORE_ERRORS = (ValueError, OSError, RuntimeError, IndexError)

_URL = re.compile(r"(gs|s3):/{1,2}([a-z0-9][-_.a-z0-9]{1,220}[a-z0-9])/(.+?)/*")  # a Path has one /
ABSENT = b"\x02"
"""The version that tensorstore gives to no object."""

_RETRIES = 6
"""Tries of a request that fails in passing; the last comes after about a minute."""

_context: Any = None


def tensorstore() -> Any:
    """The module tensorstore.

    Raises:
        RequirementError: It is not installed.
    """
    try:
        with interrupts_held():  # in its start one becomes an ImportError
            import tensorstore as ts
    except ImportError as error:
        raise RequirementError(
            f"checkpoints need tensorstore, which cannot be imported ({error})",
            "python -m pip install 'pyreactant[state]'",
            advice="install it with",
        ) from None
    return ts


def one_context() -> Any:
    """The context of all that this process opens."""
    # Databases of different contexts cannot be copied into each other.
    global _context
    if _context is None:
        how: dict[str, Any] = {"file_io_locking": {"mode": "none"}}
        for driver in ("gcs", "s3"):
            how[f"{driver}_request_retries"] = {"max_retries": _RETRIES}
        _context = tensorstore().Context(how)
    return _context


@dataclass(frozen=True, slots=True)
class Bucket:
    """A folder, or an object, in a bucket of Cloud Storage (gs) or S3.

    Attributes:
        scheme: "gs" or "s3".
        bucket: Name of the bucket.
        key: What comes after it, without slashes around it.
    """

    scheme: str
    bucket: str
    key: str
    _keys: frozenset[str] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def parse(url: str) -> "Bucket":
        """The folder that a URL names.

        Raises:
            FileError: It is no such URL.
        """
        match = _URL.fullmatch(url)
        if match is None or not all(part.strip(".") for part in match[3].split("/")):
            raise FileError(
                "a checkpoint must be in a folder of a disk that all processes share, or of a "
                f"bucket as gs://BUCKET/FOLDER or s3://BUCKET/FOLDER, got {url!r}"
            )
        return Bucket(match[1], match[2], match[3])

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> "Bucket":
        return replace(self, key=f"{self.key}/{name}".lstrip("/"))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> "Bucket":
        """The folder that has it."""
        return replace(self, key=self.key.rpartition("/")[0], _keys=None)

    def spec(self) -> dict[str, Any]:
        """What tensorstore opens: all keys in this folder."""
        driver = {"gs": "gcs", "s3": "s3"}[self.scheme]
        path = f"{self.key}/" if self.key else ""
        spec: dict[str, Any] = {"driver": driver, "bucket": self.bucket, "path": path}
        setting = os.environ.get
        if self.scheme == "s3" and setting("AWS_ACCESS_KEY_ID"):
            spec["aws_credentials"] = {"type": "environment"}  # else it complains of absent files
        endpoint = setting("AWS_ENDPOINT_URL_S3") or setting("AWS_ENDPOINT_URL")
        if self.scheme == "s3" and endpoint:  # tensorstore reads neither
            region = setting("AWS_REGION") or setting("AWS_DEFAULT_REGION") or "us-east-1"
            spec |= {"endpoint": endpoint, "aws_region": region}
        return spec

    def mkdir(self) -> None:
        """Nothing: a bucket needs no folders."""

    def iterdir(self) -> Iterator["Bucket"]:
        """The folders and objects in it; FileNotFoundError if there are none."""
        keys = self._below()
        if not keys:
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(self))
        known = frozenset(f"{self.key}/{key}" for key in keys)
        for name in sorted({key.partition("/")[0] for key in keys}):
            yield replace(self, key=f"{self.key}/{name}", _keys=known)

    def is_dir(self) -> bool:
        """Whether there are keys in it."""
        return bool(self._below())

    def is_file(self) -> bool:
        """Whether there is an object of this key."""
        if self._keys is not None:
            return self.key in self._keys
        return self.read()[0] is not None

    def exists(self) -> bool:
        """Whether it is one of both."""
        return self.is_dir() or self.is_file()

    def read(self) -> tuple[bytes | None, Any]:
        """The object, None if there is none, and the version that `write` takes."""
        with storage_errors():
            result = self.parent._store().read(self.name).result()
        return bytes(result.value) if result.state == "value" else None, result.stamp.generation

    def read_bytes(self) -> bytes:
        """The object; FileNotFoundError if there is none."""
        if (data := self.read()[0]) is None:
            raise FileNotFoundError(errno.ENOENT, "No such object", str(self))
        return data

    def read_text(self, encoding: str) -> str:
        """The same as text."""
        return self.read_bytes().decode(encoding)

    def write(self, data: bytes | None, version: Any = None) -> Any:
        """Write or delete (None) the object, if its version is still the given one.

        Returns:
            Its version now; None if it was another one.
        """
        how = {} if version is None else {"if_equal": version}
        with storage_errors():
            stamp = self.parent._store().write(self.name, data, **how).result()
        return stamp.generation or None

    def write_text(self, text: str, encoding: str) -> None:
        """Make the object; FileExistsError if another one is there."""
        data = text.encode(encoding)
        if self.write(data, ABSENT) is None and self.read()[0] != data:
            raise FileExistsError(errno.EEXIST, "Another run wrote it", str(self))

    def delete_below(self, *, but: str = "") -> None:
        """Delete all keys in it, one of them last."""
        with storage_errors():
            store = self._store()
            for future in [store.write(key, None) for key in self._below() if key != but]:
                future.result()
            if but:
                store.write(but, None).result()

    def _below(self) -> list[str]:
        prefix = f"{self.key}/"
        if self._keys is not None:
            return [key.removeprefix(prefix) for key in self._keys if key.startswith(prefix)]
        with storage_errors():
            keys = [key.decode() for key in self._store().list().result()]
        if not keys:
            (self / COMMIT).read()  # tensorstore lists nothing, too, where the service refuses
        return keys

    def _store(self) -> Any:
        return tensorstore().KvStore.open(self.spec(), context=one_context()).result()


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Turn what tensorstore raises where it reads and writes into OSError."""
    try:
        yield
    except TENSORSTORE_ERRORS as error:
        raise OSError(errno.EIO, tensorstore_reason(error)) from None
