"""Objects in Cloud Storage, each named by the digest of its content.

With the standard library alone: a pod reads its code before it has any package.

Source: https://cloud.google.com/storage/docs/json_api/v1.
"""

import contextlib
import hashlib
import http.client
import io
import json
import logging
import os
import shutil
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from .errors import InvalidArgumentError, PyReactantError, RequirementError, argument
from .metadata import ask, server_of
from .say import say

_BUCKET = r"gs://[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]"
FORM = _BUCKET + r"(?=.{0,200}$)(/(?!\.\.?(/|$))[-\w.=+@:]+)*/?"
"""A bucket, and a folder in it; with a job's own names after it, an object's has 1024 bytes."""
FORM_IN_WORDS = (
    "a folder of Cloud Storage such as gs://mine/jobs, with at most 200 letters, digits and "
    "-_.=+@: after the bucket"
)

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds between tries of what fails in passing."""
_SAID = 2
"""After so many tries the user sees why it takes so long."""
_SILENCE = 60.0
_PASSING = (0, 408, 429, 500, 502, 503, 504)
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def login_of_machine() -> str:
    """The token of the account of this VM or pod, as its metadata server gives it.

    Raises:
        RequirementError: There is none.
    """
    server = server_of(os.environ)
    for pause in (*_PAUSES, 0.0):  # that of a new pod may answer late
        status, answer = ask(server, "service-accounts/default/token")
        if status not in _PASSING or not pause:
            break
        time.sleep(pause)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        if status == 200:
            return str(json.loads(answer)["access_token"])
    raise RequirementError(
        f"Cloud Storage needs a login, and the metadata server {server} gives none "
        f"({f'{status}: ' if status else ''}{answer.strip():.200}); give the machine a service "
        f"account that may use the bucket, pods by {argument('service_account')}"
    )


def login_of_user() -> str:
    """The token of the user's application default credentials.

    Raises:
        RequirementError: There are none.
    """
    try:
        import google.auth
        from google.auth.transport.requests import Request
    except ImportError:
        raise RequirementError(
            "Cloud Storage needs google-auth, which is not installed",
            "python -m pip install 'pyreactant[kubernetes]'",
            advice="install it with",
        ) from None
    try:
        logging.getLogger("google.auth").setLevel(logging.ERROR)  # it misses a project
        with warnings.catch_warnings(action="ignore"):
            credentials, _ = google.auth.default(scopes=[_SCOPE])
            credentials.refresh(Request())
    except google.auth.exceptions.GoogleAuthError as error:
        raise RequirementError(
            "Cloud Storage needs a login on this machine, and Google's application default "
            f"credentials give none ({' '.join(str(error).split()):.200})",
            "gcloud auth application-default login",
            advice="log in with",
        ) from None
    return str(credentials.token)


class Folder:
    """A folder of a bucket.

    Args:
        address: Such as "gs://bucket/folder".
        login: Gives the token, which is asked for again at each request: a job may last longer than
            the hour for which a token is good.
    """

    def __init__(self, address: str, login: Callable[[], str]) -> None:
        self._bucket, _, self._key = address.removeprefix("gs://").partition("/")
        self._address, self._login = address, login
        # The variable is that of Google's own libraries.
        self._server = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")

    def __str__(self) -> str:
        return self._address

    def check(self) -> None:
        """Write an empty object, so that what cannot be written is not found out too late.

        Raises:
            PyReactantError: As `put`.
        """
        self.put(io.BytesIO())

    def put(self, content: BinaryIO) -> str:
        """Write an object, which appears when it is whole, and name it.

        Raises:
            InvalidArgumentError: There is no such bucket.
            RequirementError: The account may not do it, or Cloud Storage does not answer.
        """
        name, size = digest_of(content), content.tell()
        query = {"uploadType": "media", "name": f"{self._key}/{name}", "ifGenerationMatch": "0"}
        what = f"write {self}"
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        path = f"/upload/storage/v1/b/{self._bucket}/o?{urlencode(query)}"
        status, said = self._answer("POST", path, what, headers, content)
        if status != 412:  # it is there, and has the same content
            self._read(status, said, what)
        return name

    def get(self, name: str, into: BinaryIO) -> None:
        """Read an object into an empty file.

        Raises:
            RequirementError: It is not there, was changed, or cannot be read.
        """
        what = f"read {self}/{name}"
        path = f"{self._path_of(name)}?alt=media"
        status, said = self._answer("GET", path, what, into=into)
        if status == 404:
            raise RequirementError(f"{self}/{name} is not there any more; submit the job again")
        if status != 200:
            raise self._refusal(status, said, what)
        if digest_of(into) != name:
            raise RequirementError(
                f"{self}/{name} must have the SHA-256 that is its name, and was changed; delete "
                "it, and submit the job again"
            )
        into.seek(0)

    def names(self) -> list[str]:
        """The names of some objects, at most a page of them; none if it has none.

        Raises:
            PyReactantError: As `put`.
        """
        what = f"list {self}"
        query = urlencode({"prefix": f"{self._key}/", "fields": "items/name"})
        found = self._read(*self._answer("GET", f"{self._objects}?{query}", what), what)
        return [item["name"].removeprefix(f"{self._key}/") for item in found.get("items", ())]

    def delete(self) -> None:
        """Delete what is in it.

        Raises:
            PyReactantError: As `put`.
        """
        what = f"delete what is in {self}"
        while names := self.names():
            for name in names:
                status, said = self._answer("DELETE", self._path_of(name), what)
                if status not in (200, 204, 404):
                    raise self._refusal(status, said, what)

    @property
    def _objects(self) -> str:
        return f"/storage/v1/b/{self._bucket}/o"

    def _path_of(self, name: str) -> str:
        return f"{self._objects}/{quote(f'{self._key}/{name}', safe='')}"

    def _answer(
        self,
        method: str,
        path: str,
        what: str,
        headers: dict[str, str] | None = None,
        body: BinaryIO | None = None,
        *,
        into: BinaryIO | None = None,
    ) -> tuple[int, bytes]:
        """Status and content of an answer that is not a passing trouble."""
        for tries, pause in enumerate((*_PAUSES, 0.0), 1):
            if body is not None:
                body.seek(0)
            request = urllib.request.Request(  # noqa: S310 - of this class
                self._server + path,
                data=body,
                method=method,
                headers={**(headers or {}), "Authorization": f"Bearer {self._login()}"},
            )
            try:
                with urllib.request.urlopen(request, timeout=_SILENCE) as answer:  # noqa: S310
                    if into is None:
                        return answer.status, answer.read()
                    return answer.status, _copied(answer, into)
            except urllib.error.HTTPError as error:
                trouble = f"{error.code}: {_said(error.read())}"
                if error.code not in _PASSING:
                    return error.code, trouble.encode()
            except _BROKEN as error:
                trouble = str(getattr(error, "reason", error)) or type(error).__name__
            if tries == _SAID:
                say(f"Cloud Storage does not answer now to {what} ({trouble}); it is asked again")
            time.sleep(pause)
        raise RequirementError(
            f"Cloud Storage does not answer now to {what} ({trouble}); see whether this machine "
            f"reaches {self._server}, and try again"
        )

    def _read(self, status: int, said: bytes, what: str) -> dict[str, Any]:
        """What an answer says that is to be a success."""
        if status != 200:
            raise self._refusal(status, said, what)
        with contextlib.suppress(ValueError):
            if isinstance(read := json.loads(said), dict):
                return read
        raise RequirementError(
            f"{self._server} gave no answer of Cloud Storage to {what}, but {_said(said)!r}; see "
            "whether a proxy leads elsewhere"
        )

    def _refusal(self, status: int, said: bytes, what: str) -> PyReactantError:
        """The error of an answer that is no success."""
        text = said.decode("utf-8", "replace")
        if status == 404:
            return InvalidArgumentError(
                f"{argument('store')} must be in a bucket that exists, and Cloud Storage cannot "
                f"{what} ({text}); make the bucket with: gcloud storage buckets create "
                f"gs://{self._bucket}"
            )
        if status == 400:  # such as two dots in the name of a bucket
            return InvalidArgumentError(
                f"{argument('store')} must be a folder that Cloud Storage takes, and it does not "
                f"{what} ({text}); name another bucket or folder"
            )
        if status == 401:
            return RequirementError(
                f"Cloud Storage does not accept the login to {what} ({text}); log in again with: "
                "gcloud auth application-default login"
            )
        return RequirementError(
            f"Cloud Storage does not {what} ({text}); give that account the role Storage Object "
            f"User (roles/storage.objectUser) on gs://{self._bucket}"
        )


def digest_of(content: BinaryIO) -> str:
    """The SHA-256 of a file, which is then at its end."""
    content.seek(0)
    return hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]


def _copied(answer: Any, into: BinaryIO) -> bytes:
    """Copy the content of an answer, which must be whole."""
    into.seek(0)
    into.truncate()
    shutil.copyfileobj(answer, into, 1 << 20)
    if answer.length:  # what is still to come
        raise http.client.IncompleteRead(b"", answer.length)
    return b""


def _said(data: bytes) -> str:
    """What Cloud Storage says in an answer that is no success."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:300]
