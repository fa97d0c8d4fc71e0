"""One configurable stdio MCP server for the tests of the engine: plain Python, no SDK.

Owns the wire, the two eras and the ways to misbehave, each switched on by a flag; `scripted_tools` owns what tools do.
Calls run in threads, so that one that hangs does not hold up the others. Run as a script: `scripted_server.py [flags]`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, NoReturn

# Run as a script, sys.path starts with this folder; the package above it is two folders up.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.support.scripted_tools import HANG_SECONDS, TOOLS, Json, NoAnswer, RpcError, definition, echo

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# What `--noise` puts on stdout: a banner, blank lines, broken JSON, JSON that is no message, bytes that are no UTF-8.
NOISE = b'Starting up...\n\n   \n{"jsonrpc": "2.0", \n{"hello": "world"}\n[1, 2, 3]\n"text"\n\xff\xfe\x00\n'


class Call:
    """One `tools/call` under way."""

    def __init__(self, server: ScriptedServer, request_id: str | int, params: Json, modern: bool) -> None:
        self.server, self.id, self.params, self.modern = server, request_id, params, modern
        self.tool: str = params.get("name", "")
        self.arguments: Json = params.get("arguments") or {}
        self.meta: Json = params.get("_meta") or {}
        self.progress_token = self.meta.get("progressToken")
        self.cancelled = threading.Event()

    def progress(self, progress: float, total: float, message: str) -> None:
        if self.progress_token is not None:
            params = {"progressToken": self.progress_token, "progress": progress, "total": total, "message": message}
            self.server.notify("notifications/progress", params)

    def ask_client(self, method: str, params: Json, capability: str) -> Json:
        """The client's answer as `{"result": ...}` or `{"error": ...}`, asked for in the way of the era.

        A legacy client is asked even when it declared no such capability: what happens then is worth testing.
        """
        if not self.modern:
            return self.server.request(method, params, self.cancelled)
        if capability not in self.meta[META_CAPABILITIES]:
            raise RpcError(
                -32021, f"Missing client capability: {capability}", {"requiredCapabilities": {capability: {}}}
            )
        state = f"state of {self.tool}"
        answer = (self.params.get("inputResponses") or {}).get("question")
        if answer is None:
            raise InputRequired({"question": {"method": method, "params": params}}, state)
        if self.params.get("requestState") != state:
            raise RpcError(-32602, "Invalid requestState", {"received": self.params.get("requestState")})
        return {"result": answer}


class InputRequired(Exception):
    """A modern call that needs the client's input first."""

    def __init__(self, requests: Json, state: str) -> None:
        super().__init__(state)
        self.result = {"resultType": "input_required", "inputRequests": requests, "requestState": state}


class ScriptedServer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tool_names = _listed_tools(options)
        self._write_lock = threading.Lock()
        self._state_lock = threading.Condition()
        self._running: dict[str | int, Call] = {}
        self._asked: dict[str, queue.SimpleQueue[Json]] = {}
        self._cancellations: list[Json] = []
        self._listening: dict[str | int, Json] = {}
        self._counter = 0
        self._initialized = False

    # What the tools use

    def write(self, data: bytes) -> None:
        with self._write_lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, message: Json) -> None:
        noise = NOISE if self.options.noise else b""
        self.write(noise + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method: str, params: Json) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: Json, cancelled: threading.Event) -> Json:
        with self._state_lock:
            request_id = f"ask-{len(self._asked)}"
            answers = self._asked[request_id] = queue.SimpleQueue()
        self.send({"id": request_id, "method": method, "params": params})
        while not cancelled.is_set():
            try:
                return answers.get(timeout=0.05)
            except queue.Empty:
                continue
        raise NoAnswer

    def increment(self) -> int:
        with self._state_lock:
            self._counter += 1
            return self._counter

    def wait_for_cancellations(self, enough: int, seconds: float) -> list[Json]:
        with self._state_lock:
            self._state_lock.wait_for(lambda: len(self._cancellations) >= enough, seconds)
            return list(self._cancellations)

    def notify_tools_changed(self) -> None:
        if self._initialized:
            self.notify("notifications/tools/list_changed", {})
        for subscription, wanted in list(self._listening.items()):
            if wanted.get("toolsListChanged"):
                self.notify("notifications/tools/list_changed", {"_meta": {META_SUBSCRIPTION: subscription}})

    # The wire

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            if self.options.log:
                _append(self.options.log, line.strip())
            message = json.loads(line)
            if "method" not in message:
                if message.get("id") in self._asked:
                    self._asked[message["id"]].put({k: message[k] for k in ("result", "error") if k in message})
            elif "id" in message:
                self._handle_request(message["id"], message["method"], message.get("params") or {})
            else:
                self._handle_notification(message["method"], message.get("params") or {})

    def _handle_notification(self, method: str, params: Json) -> None:
        if method != "notifications/cancelled":
            return
        with self._state_lock:
            self._cancellations.append(params)
            self._listening.pop(params.get("requestId", ""), None)
            if (call := self._running.get(params.get("requestId", ""))) is not None:
                call.cancelled.set()
            self._state_lock.notify_all()

    def _handle_request(self, request_id: str | int, method: str, params: Json) -> None:
        if method in self.options.crash_on or (method == "server/discover" and self.options.die_on_discover):
            os._exit(9)
        if method in self.options.hang_on:
            return
        modern = META_VERSION in (params.get("_meta") or {}) and self.options.era in ("modern", "dual")
        try:
            if method in self.options.error_on:
                raise RpcError(-32603, f"{method} fails as asked", {"asked": True})
            self._check_era(method, params, modern)
        except RpcError as error:
            self.send({"id": request_id, "error": error.as_json()})
            return
        except NoAnswer:
            return
        if method == "tools/call":
            call = self._running[request_id] = Call(self, request_id, params, modern)
            threading.Thread(target=self._run, args=(call,), daemon=True).start()
        elif method == "subscriptions/listen" and modern:
            self._listen(request_id, params)
        else:
            self._answer(request_id, method, params, modern)

    def _check_era(self, method: str, params: Json, modern: bool) -> None:
        """Reject what the era does not allow, as servers of that era do."""
        meta = params.get("_meta") or {}
        if modern:
            _append_declared(self.options, "modern", meta.get(META_VERSION), meta.get(META_CAPABILITIES), meta)
            if meta[META_VERSION] != MODERN_VERSION:
                data = {"supported": [MODERN_VERSION], "requested": meta[META_VERSION]}
                raise RpcError(-32022, "Unsupported protocol version", data)
            if not isinstance(meta.get(META_CAPABILITIES), dict):
                raise RpcError(-32602, f"Missing `_meta` field {META_CAPABILITIES}")
        elif self.options.era == "modern":
            if method == "initialize":
                raise RpcError(-32601, "Method not found: initialize")
            raise RpcError(-32602, f"Missing `_meta` field {META_VERSION}")
        elif not self._initialized and method not in ("initialize", "ping"):
            if self.options.era == "silent":
                raise NoAnswer
            raise RpcError(self.options.discover_error, f"Not initialized: {method}")

    def _answer(self, request_id: str | int, method: str, params: Json, modern: bool) -> None:
        try:
            result = self._result(method, params, modern)
        except RpcError as error:
            self.send({"id": request_id, "error": error.as_json()})
        else:
            self._send_result(request_id, result, modern)

    def _send_result(self, request_id: str | int, result: Json, modern: bool) -> None:
        if modern:
            meta = {META_SERVER: self._server_info(), **result.get("_meta", {})}
            result = {"resultType": "complete", **result, "_meta": meta}
        self.send({"id": request_id, "result": result})

    def _result(self, method: str, params: Json, modern: bool) -> Json:
        if method == "initialize" and not modern:
            return self._initialize(params)
        if method == "server/discover" and modern:
            return {"supportedVersions": [MODERN_VERSION], **self._identity(), "ttlMs": 60_000, "cacheScope": "public"}
        if method == "tools/list":
            return {**self._page(params), **({"ttlMs": 60_000, "cacheScope": "public"} if modern else {})}
        if method in ("ping", "logging/setLevel") and not modern:
            return {}
        raise RpcError(-32601, f"Method not found: {method}")

    def _initialize(self, params: Json) -> Json:
        _append_declared(self.options, "legacy", params.get("protocolVersion"), params.get("capabilities"), params)
        self._initialized = True
        offered = self.options.versions
        version = params.get("protocolVersion") if params.get("protocolVersion") in offered else offered[-1]
        return {"protocolVersion": version, "serverInfo": self._server_info(), **self._identity()}

    def _server_info(self) -> Json:
        return {"name": self.options.name, "version": "1.2.3", "x-unknown": True}

    def _identity(self) -> Json:
        identity: Json = {"capabilities": {"tools": {"listChanged": True}, "logging": {}}}
        return {**identity, "instructions": self.options.instructions} if self.options.instructions else identity

    def _page(self, params: Json) -> Json:
        size = self.options.page_size or len(self.tool_names) or 1
        try:
            start = int(params.get("cursor", 0))
        except ValueError:
            raise RpcError(-32602, "Invalid cursor") from None
        page: Json = {"tools": [definition(name) for name in self.tool_names[start : start + size]]}
        if self.options.cursor_loop:
            return {**page, "nextCursor": "0"}
        return page if start + size >= len(self.tool_names) else {**page, "nextCursor": str(start + size)}

    def _listen(self, request_id: str | int, params: Json) -> None:
        honoured = {key: True for key in ("toolsListChanged",) if params.get("notifications", {}).get(key)}
        meta = {META_SUBSCRIPTION: request_id}
        self.notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": honoured})
        self._listening[request_id] = honoured

    def _run(self, call: Call) -> None:
        try:
            if call.tool not in self.tool_names:
                raise RpcError(-32602, f"Unknown tool: {call.tool}")
            self._send_result(call.id, TOOLS.get(call.tool, echo)(call), call.modern)
        except RpcError as error:
            self.send({"id": call.id, "error": error.as_json()})
        except InputRequired as needed:
            self._send_result(call.id, needed.result, call.modern)
        except NoAnswer:
            pass
        except Exception as error:
            self.send({"id": call.id, "error": {"code": -32603, "message": repr(error)}})
        finally:
            self._running.pop(call.id, None)


def _listed_tools(options: argparse.Namespace) -> list[str]:
    if options.tools is None and options.tool_names is None:
        return list(TOOLS)
    named = [name for name in (options.tool_names or "").split(",") if name]
    return named + [f"tool_{number}" for number in range(1, (options.tools or 0) + 1)]


def _append(path: str, line: bytes) -> None:
    # One write to a file opened for appending: several servers may share a log.
    with open(path, "ab", buffering=0) as log:
        log.write(line + b"\n")


def _append_declared(options: argparse.Namespace, era: str, version: Any, capabilities: Any, source: Json) -> None:
    if options.capabilities_log:
        client = source.get("clientInfo", source.get(META_CLIENT))
        declared = {"era": era, "version": version, "capabilities": capabilities, "clientInfo": client}
        _append(options.capabilities_log, json.dumps(declared).encode())


def _write_whole(path: str, text: str) -> None:
    # A reader that polls for the file must never see half of it.
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def _spawn_grandchild(path: str, kind: str) -> None:
    """A `sleep` that outlives us unless somebody ends it: in our group, or a daemon that left it and ignores TERM."""
    sleeper = ["sleep", str(int(HANG_SECONDS))]
    if kind == "group":
        _write_whole(path, str(os.posix_spawnp(sleeper[0], sleeper, os.environ)))
        return
    if (intermediate := os.fork()) != 0:
        os.waitpid(intermediate, 0)
        return
    os.setsid()
    # Before the fork: whoever reads the process id may send a signal at once.
    for ignored in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    if (daemon := os.fork()) != 0:
        _write_whole(path, str(daemon))
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.execvp(sleeper[0], sleeper)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--era", choices=("legacy", "modern", "dual", "silent"), default="dual")
    add("--versions", type=lambda text: text.split(","), default=list(LEGACY_VERSIONS), help="legacy revisions offered")
    add("--name", default="scripted")
    add("--instructions", default="")
    add("--tools", type=int, metavar="N", help="list tool_1 to tool_N instead of the standard tools")
    add("--tool-names", metavar="A,B", help="list these; a name that is no standard tool behaves like echo")
    add("--page-size", type=int, default=0)
    add("--cursor-loop", action="store_true", help="pagination that never ends")
    add("--discover-error", type=int, default=-32601, help="what a legacy server answers before initialize")
    add("--die-on-discover", action="store_true")
    add("--hang-on", action="append", default=[], metavar="METHOD")
    add("--error-on", action="append", default=[], metavar="METHOD")
    add("--crash-on", action="append", default=[], metavar="METHOD")
    add("--start-delay", type=float, default=0.0, metavar="SECONDS")
    add("--exit-at-start", type=int, metavar="CODE")
    add("--require-file", metavar="FILE", help="exit with status 1 unless the file exists")
    add("--stderr", metavar="TEXT", help="one line written at the start")
    add("--noise", action="store_true", help="garbage on stdout before every message")
    add("--ignore-term", action="store_true")
    add("--ignore-eof", action="store_true")
    add("--log", metavar="FILE", help="append every received message as a line")
    add("--capabilities-log", metavar="FILE", help="append what the client declared")
    add("--starts", metavar="FILE", help="append our process id at every start")
    add("--spawn-grandchild", metavar="FILE", help="write its process id to the file")
    add("--grandchild-kind", choices=("group", "daemon"), default="group")
    return parser.parse_args(arguments)


def main() -> NoReturn:
    options = _parse(sys.argv[1:])
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.starts:
        _append(options.starts, str(os.getpid()).encode())
    if options.spawn_grandchild:
        _spawn_grandchild(options.spawn_grandchild, options.grandchild_kind)
    if options.stderr:
        print(options.stderr, file=sys.stderr, flush=True)
    time.sleep(options.start_delay)
    if options.require_file and not os.path.exists(options.require_file):
        sys.exit(f"missing {options.require_file}")
    if options.exit_at_start is not None:
        sys.exit(options.exit_at_start)
    ScriptedServer(options).serve()
    if options.ignore_eof:
        time.sleep(HANG_SECONDS)
    # Not sys.exit: a call that still runs in a thread must not hold us back.
    os._exit(0)


if __name__ == "__main__":
    main()
