"""The page's files behind an API that answers what a test tells it to: for states that are hard to bring about.

Headers are those that the page is served with, so that what its policy forbids fails here too.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import mcp_workbench

WEB: Final = Path(mcp_workbench.__file__).parent / "seeing" / "page" / "web"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
KINDS: Final = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
HEARTBEAT_INTERVAL: Final = 0.5

Answer = tuple[int, Any]


class ScriptedApi:
    """`answers` by method and path, `state`, and the events that are pushed; `posted` is what the page sent."""

    def __init__(self, state: dict[str, Any], port: int = 0, now: Callable[[], float] = time.time) -> None:
        self.state = state
        self._now = now
        self.answers: dict[str, Answer] = {}
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.earlier: list[tuple[str, Any]] = []
        self.is_signed_in = True
        self._streams: list[queue.Queue[bytes | None]] = []
        self._server = _Server(("127.0.0.1", port), _handler_of(self))
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> ScriptedApi:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        for stream in self._streams:
            stream.put(None)
        self._server.server_close()
        self._thread.join()

    def push(self, event: str, data: object) -> None:
        for stream in self._streams:
            stream.put(_event(event, data))

    def change(self, **members: object) -> None:
        """Change members of the state, and send them."""
        self.state.update(members)
        self.push("state", members)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any] | None) -> Answer:
        if not self.is_signed_in:
            return 401, {"error": "The session has ended."}
        if body is not None:
            self.posted.append((path, body))
        if method == "GET" and path == "/api/state":
            return 200, {**self.state, "now": self._now()}
        given = self.answers.get(f"{method} {path}")
        return given or (404, {"error": f"nothing is scripted for {method} {path}"})


KEY = "example"


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    allow_reuse_address = True


def _event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _handler_of(api: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path.startswith("/api/") and self.headers["x-csrf"] != KEY:
                self._answer(401, {"error": "x-csrf is missing"})
            elif url.path == "/api/events" and api.is_signed_in:
                self._stream()
            elif url.path.startswith("/api/"):
                self._answer(*api.answer("GET", url.path, parse_qs(url.query), None))
            else:
                self._file("index.html" if url.path == "/" else url.path.removeprefix("/web/"))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.headers["x-csrf"] != KEY:
                self._answer(403, {"error": "x-csrf is missing"})
                return
            self._answer(*api.answer("POST", urlsplit(self.path).path, {}, body))

        def _answer(self, status: int, value: object) -> None:
            self._send(status, "application/json", json.dumps(value).encode())

        def _file(self, name: str) -> None:
            path = WEB / name
            if path.parent != WEB or not path.is_file():
                self._answer(404, {"error": "no such file"})
                return
            meta = b'<meta name="page-key" content="%b"></head>' % KEY.encode()
            self._send(200, KINDS[path.suffix], path.read_bytes().replace(b"</head>", meta))

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("content-security-policy", POLICY)
            self.send_header("x-content-type-options", "nosniff")
            # Nothing is kept open, so that the threads end with the test.
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def _stream(self) -> None:
            events: queue.Queue[bytes | None] = queue.Queue()
            for name, data in api.earlier:
                events.put(_event(name, data))
            api._streams.append(events)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                while True:
                    try:
                        event = events.get(timeout=HEARTBEAT_INTERVAL)
                    except queue.Empty:
                        event = b":\n\n"
                    if event is None:
                        return
                    self.wfile.write(event)
            except OSError:
                pass
            finally:
                api._streams.remove(events)

    return Handler
