"""The stand-in for the TPU API as a server on loopback, with the failures that a test injects."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.gcloud.tpu_api import STATUS, ApiError, TpuApi


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: TpuApi

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        call = f"{self.command} {parts.path}"
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        with self.api.lock:
            self.api.calls.append(call)
            fault = next((f for f in self.api.faults if f.count and re.search(f.call, call)), None)
            if fault is not None:
                fault.count -= 1
        self.api.on_call("before", call)
        if fault is not None and fault.delay:
            time.sleep(fault.delay)
        try:
            if fault is not None and fault.code is not None and fault.text is None:
                raise ApiError(fault.code, fault.message)
            code, answer = 200, {}
            if fault is None or fault.text is None:
                answer = self.api.answer(self.command, parts.path, query, body)
        except ApiError as error:
            status = STATUS.get(error.code, "UNKNOWN")
            code = error.code
            answer = {"error": {"code": code, "message": error.message, "status": status}}
        self.api.on_call("after", call)
        if fault is not None and fault.lost:
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        if fault is not None and fault.text is not None:
            code, data = fault.code or 200, fault.text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault is None or not fault.pause:
            self.wfile.write(data)
            return
        for byte in data:
            self.wfile.write(bytes([byte]))
            time.sleep(fault.pause)

    do_GET = do_POST = do_DELETE = do_PATCH = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: killed clients close their connections at any time."""


@contextmanager
def serve(api: TpuApi) -> Iterator[str]:
    """Serve the API; yields its address, "http://127.0.0.1:PORT"."""
    handler = type("Handler", (_Handler,), {"api": api})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
