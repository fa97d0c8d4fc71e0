"""An MCP server that misbehaves as it is told: plain Python, no SDK, over stdio or HTTP.

How it misbehaves while it starts and on whole methods is written in a file, `--faults FILE`, which is read again at
every start and, over HTTP, with every request: so a cause can be mended without another configuration. How it
misbehaves in a call is the matter of the tool that is called (`bad_tools`). Without either it is a healthy server of
both eras. Run as a script: `bad_server.py [--name NAME] [--faults FILE] [--log FILE] [--notes FILE] [--http PORT_FILE]
[--exit-after SECONDS]`.

The file is a JSON object: `{"start": FAULT, "on": {"tools/list": FAULT}, "pages": "endless"}`, where FAULT is
`{"exit": 3}`, `{"hang": true}`, `{"raw": "bytes as latin-1 instead of the answer, $ID is the id"}`,
`{"error": {"code": 1, "message": "m"}}`; each may have `"stderr": "text"`. What `http` says is explained in `bad_http`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    # Run as a script, sys.path starts with this folder; the package above it is two folders up.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

Json = dict[str, Any]

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
EXIT_AFTER = 600.0


class BadServer:
    """What the server knows, however it is reached. One for each process."""

    def __init__(
        self, name: str = "bad", faults: str | None = None, log: str | None = None, notes: str | None = None
    ) -> None:
        self.name = name
        self.cancelled: list[Any] = []
        self.counted = 0
        self.extra_tools = 0
        self._faults = faults
        self._log = log
        self._notes = notes

    def note(self, number: int) -> None:
        """Write a number down, for all servers in one file."""
        if self._notes is not None:
            with open(self._notes, "ab", buffering=0) as file:
                file.write(b"%d\n" % number)

    def faults(self) -> Json:
        """What the file says now."""
        if self._faults is None:
            return {}
        try:
            with open(self._faults) as file:
                found: Json = json.load(file)
                return found
        except FileNotFoundError:
            return {}

    def answer(self, line: bytes, write: Callable[[bytes], None]) -> None:
        """One message; what is written to the peer are whole lines, or whatever the fault wants."""
        from tests.faults import bad_tools

        message = json.loads(line)
        if self._log is not None:
            with open(self._log, "ab", buffering=0) as log:
                log.write(json.dumps({**message, "bytes": len(line)}).encode()[:2000] + b"\n")
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "notifications/cancelled":
            self.cancelled.append(params)
        if method is None or id is None:
            return
        fault = self.faults().get("on", {}).get(method)
        if fault is not None:
            misbehave(fault, id, write)
            return
        if method == "tools/call":
            bad_tools.call(self, id, params, len(line), write)
        else:
            is_modern = META_VERSION in params.get("_meta", {})
            result = self.result(method, params, is_modern)
            write(encode(error(id, -32601, method) if result is None else {"id": id, "result": result}))

    def result(self, method: str, params: Json, is_modern: bool) -> Json | None:
        """The healthy answer; None for a method that does not exist."""
        from tests.faults import bad_tools

        identity: Json = {"capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}}}
        if method == "initialize":
            return {"protocolVersion": LEGACY, "serverInfo": {"name": self.name, "version": "1"}, **identity}
        if method == "server/discover" and is_modern:
            return {"resultType": "complete", "supportedVersions": [MODERN], "ttlMs": 0, **identity}
        if method == "tools/list":
            return bad_tools.page(self, params.get("cursor"), self.faults().get("pages"))
        if method in ("resources/list", "resources/templates/list"):
            watched = [{"uri": f"bad://{self.name}/watched", "name": "watched"}]
            return {"resources": watched} if method == "resources/list" else {"resourceTemplates": []}
        if method in ("ping", "resources/subscribe", "resources/unsubscribe"):
            return {}
        return None


def encode(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def error(id: Any, code: int, message: str) -> Json:
    return {"id": id, "error": {"code": code, "message": message}}


def misbehave(fault: Json, id: Any, write: Callable[[bytes], None]) -> None:
    """Do what a fault says instead of answering."""
    if "stderr" in fault:
        sys.stderr.write(fault["stderr"])
        sys.stderr.flush()
    if "raw" in fault:
        write(fault["raw"].replace("$ID", json.dumps(id)).encode("latin-1"))
    if "error" in fault:
        write(encode({"id": id, "error": fault["error"]}))
    if "exit" in fault:
        os._exit(fault["exit"])


def write_all(data: bytes) -> None:
    """To stdout, past any buffer."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def serve_stdio(server: BadServer) -> None:
    start = server.faults().get("start")
    if start is not None:
        misbehave(start, None, write_all)
        if start.get("hang"):
            signal.pause()
    for line in sys.stdin.buffer:
        server.answer(line, write_all)


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def main() -> None:
    # Numbers of any length are no fault of the client's.
    sys.set_int_max_str_digits(0)
    server = BadServer(option("--name") or "bad", option("--faults"), option("--log"), option("--notes"))
    # Nothing that a test forgets may live for ever.
    forgotten = threading.Timer(float(option("--exit-after") or EXIT_AFTER), lambda: os._exit(99))
    forgotten.daemon = True
    forgotten.start()
    port_file = option("--http")
    if port_file is None:
        serve_stdio(server)
    else:
        from tests.faults.bad_http import serve_http

        serve_http(server, port_file)
    os._exit(0)


if __name__ == "__main__":
    main()
