"""Buckets on loopback: moto's S3, and a stand-in for the JSON API of Cloud Storage, in memory.

The stand-in has what tensorstore's driver asks for: list, read of a range, write and delete, each
under a condition on the object's generation, and pages of a list. test_buckets.py holds its answers
against those of moto's S3, by tensorstore. It is a metadata server, too, which gives logins: one
for who asks it by its name, which pods do, and one for all others.
"""

import itertools
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from moto.server import ThreadedMotoServer

PAGE = 100


class Storage(ThreadingHTTPServer):
    """The server, with its objects as name: (generation, data), and faults still to answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[int, bytes]] = {}
        self.faults: list[int] = []
        self.denied = False
        self.away = "none"
        """Objects with this in their names cannot be read now."""
        self.accounts: set[str] | None = None
        """Who may use it, "pods" or "user"; None for everybody, with and without a login."""
        self.logins = {"pods", "user"}
        """To whom it gives logins."""
        self.cuts = 0
        """How many of the next contents break off in the middle."""
        self.generations = itertools.count(1_700_000_000_000_000)
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for 40 ms
    server: Storage

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, status: int, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _request(self) -> tuple[str, dict[str, str], bytes]:
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return split.path, query, body

    def _is_refused(self) -> bool:
        account = self.headers.get("Authorization", "").removeprefix("Bearer token-of-")
        if self.server.accounts is not None and account not in self.server.accounts:
            text = f"{account} does not have storage.objects access to the bucket"
            status = 403 if account in ("pods", "user") else 401
            self._answer(status, {"error": {"code": status, "message": text}})
        elif "/b/bucket/" not in self.path:
            text = "The specified bucket does not exist."
            self._answer(404, {"error": {"code": 404, "message": text}})
        elif self.server.denied:
            self._answer(403, {"error": {"code": 403, "message": "no storage.objects access"}})
        elif self.server.faults:
            self._answer(self.server.faults.pop(0))
        else:
            return False
        return True

    def do_GET(self) -> None:
        path, query, _ = self._request()
        if path.startswith("/computeMetadata") or path == "/":
            return self._tell(path)
        if self._is_refused():
            return
        if path.endswith("/o"):
            return self._list(query)
        name = unquote(path.rpartition("/o/")[2])
        generation, data = self.server.objects.get(name, (0, b""))
        if self.server.away in name:
            return self._answer(503)
        if not generation:
            return self._answer(404, {"error": {"code": 404, "message": "No such object"}})
        if query.get("ifGenerationMatch", str(generation)) != str(generation):
            return self._answer(412)
        if query.get("ifGenerationNotMatch") == str(generation):
            return self._answer(304)
        if query.get("alt") != "media":
            return self._answer(200, {"name": name, "generation": str(generation)})
        status, more = 200, {}
        if part := self.headers.get("Range"):
            first, _, last = part.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(data) - int(last))
            stop = int(last) + 1 if first and last else len(data)
            status = 206
            more = {"Content_Range": f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}"}
            data = data[start:stop]
        if self._breaks_off():
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            return
        self._answer(status, data, x_goog_generation=str(generation), **more)

    def _breaks_off(self) -> bool:
        self.server.cuts -= 1
        self.close_connection = self.server.cuts >= 0
        return self.close_connection

    def _tell(self, path: str) -> None:
        """Answer as a metadata server."""
        account = "pods" if self.headers["Host"] == "metadata.google.internal" else "user"
        token = {"access_token": f"token-of-{account}", "expires_in": 3600}
        email = {"email": f"{account}@example", "scopes": [], "aliases": ["default"]}
        answers: dict[str, Any] = {"/token": token, "/default/": email, "/": {}}
        known = next((answers[end] for end in answers if path.endswith(end)), None)
        if account not in self.server.logins:
            known = None
        status = 404 if known is None else 200
        more = {"Metadata_Flavor": "Google", "Content_Type": "application/json"}
        self._answer(status, known or {}, **more)

    def _list(self, query: dict[str, str]) -> None:
        start = max(query.get("startOffset", ""), query.get("pageToken", ""))
        end, prefix = query.get("endOffset") or "\U0010ffff", query.get("prefix", "")
        with self.server.lock:
            objects = self.server.objects
            names = sorted(n for n in objects if start <= n < end and n.startswith(prefix))
        body: dict[str, Any] = {"items": [{"name": name} for name in names[:PAGE]]}
        if names[PAGE:]:
            body["nextPageToken"] = names[PAGE]
        self._answer(200, body)

    def do_POST(self) -> None:
        if self._breaks_off():
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            return
        _, query, body = self._request()
        if len(body) < int(self.headers.get("Content-Length") or 0):
            return  # whoever sent it is gone, and half an object is none
        if self._is_refused():
            return
        name = query["name"]
        with self.server.lock:
            now, _ = self.server.objects.get(name, (0, b""))
            if query.get("ifGenerationMatch", str(now)) != str(now):
                return self._answer(412)
            generation = next(self.server.generations)
            self.server.objects[name] = (generation, body)
        self._answer(200, {"name": name, "generation": str(generation)})

    def do_DELETE(self) -> None:
        path, query, _ = self._request()
        if self._is_refused():
            return
        name = unquote(path.rpartition("/o/")[2])
        with self.server.lock:
            now, _ = self.server.objects.get(name, (0, b""))
            if query.get("ifGenerationMatch", str(now)) != str(now):
                return self._answer(412)
            self.server.objects.pop(name, None)
        self._answer(204 if now else 404)


@dataclass(frozen=True)
class Services:
    """Both services, each with a bucket "bucket", and the variables by which they are used."""

    storage: Storage
    settings: dict[str, str]


@contextmanager
def cloud_storage() -> Iterator[Storage]:
    """The stand-in alone."""
    storage = Storage()
    thread = threading.Thread(target=storage.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield storage
    finally:
        storage.shutdown()
        storage.server_close()
        thread.join()


@contextmanager
def serving() -> Iterator[Services]:
    """Both services in threads of this process."""
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        s3 = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{s3}/bucket", method="PUT")).close()
        with cloud_storage() as storage:
            settings = {
                "TENSORSTORE_GCS_HTTP_URL": storage.url,
                "GCE_METADATA_ROOT": "127.0.0.1:9",  # else Google's login is looked for elsewhere
                "AWS_ENDPOINT_URL": s3,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
            }
            yield Services(storage, settings)
    finally:
        moto.stop()
