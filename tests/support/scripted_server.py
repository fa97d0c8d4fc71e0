"""One configurable MCP server for the tests of the engine: plain Python, no SDK.

Owns the wire, the two eras and the ways to misbehave, each switched on by a flag; `scripted_tools` owns what tools do,
`scripted_offers` whatever else a server may offer. Calls run in threads, so that none that hangs holds others up.
Run as a script over stdio, `scripted_server.py [flags]`, or within a test over anything that carries lines."""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

# Run as a script, sys.path starts with this folder; the package above it is two folders up.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.support.scripted_offers import LISTS, Offers, ScriptedTasks
from tests.support.scripted_tools import HANG_SECONDS, TOOLS, Json, NoAnswer, RpcError, definition, echo

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_SERVER = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# What a client can ask for and be answered later, from a thread.
CALLS = ("tools/call", "prompts/get", "resources/read")
# What `--noise` puts on stdout: a banner, blank lines, broken JSON, JSON that is no message, bytes that are no UTF-8.
NOISE = b'Starting up...\n\n   \n{"jsonrpc": "2.0", \n{"hello": "world"}\n[1, 2, 3]\n"text"\n\xff\xfe\x00\n'


class Call:
    """One `tools/call`, `prompts/get` or `resources/read` under way."""

    def __init__(self, server: ScriptedServer, request_id: str | int, method: str, params: Json, modern: bool) -> None:
        self.server, self.id, self.method, self.params, self.modern = server, request_id, method, params, modern
        self.tool: str = params.get("name", "")
        self.arguments: Json = params.get("arguments") or {}
        self.meta: Json = params.get("_meta") or {}
        self.progress_token = self.meta.get("progressToken")
        self.cancelled = threading.Event()

    def progress(self, progress: float, total: float, message: str) -> None:
        if self.progress_token is not None:
            params = {"progressToken": self.progress_token, "progress": progress, "total": total, "message": message}
            self.server.notify("notifications/progress", params)

    @property
    def client_capabilities(self) -> Json:
        """What the client declared, with this request or in the handshake."""
        declared: Json = self.meta[META_CAPABILITIES] if self.modern else self.server.client_capabilities
        return declared

    def log(self, level: str, data: Any) -> None:
        """A log message, where the client wants one of this level."""
        least = self.meta.get(META_LOG_LEVEL) if self.modern else self.server.log_level
        if least is not None and LEVELS.index(level) >= LEVELS.index(least):
            self.server.notify("notifications/message", {"level": level, "logger": "scripted", "data": data})

    def ask_client(self, method: str, params: Json, capability: str) -> Json:
        """The client's answer as `{"result": ...}` or `{"error": ...}`, asked for in the way of the era.

        A legacy client is asked even when it declared no such capability: what happens then is worth testing.
        """
        if not self.modern:
            if self.server.options.asking_tools == "refused" and capability not in self.client_capabilities:
                raise RpcError(-32603, f"Client does not support {capability}")
            return self.server.request(method, params, self.cancelled)
        if capability not in self.meta[META_CAPABILITIES]:
            required: Json = {"requiredCapabilities": {capability: {}}}
            raise RpcError(-32021, f"Missing client capability: {capability}", required)
        state = f"state of {self.tool}"
        answer = (self.params.get("inputResponses") or {}).get("question")
        if answer is None:
            raise InputRequired({"question": {"method": method, "params": params}}, state)
        if self.params.get("requestState") != state:
            raise RpcError(-32602, "Invalid requestState", {"received": self.params.get("requestState")})
        return {"result": answer}

    def ask_together(self, asked: dict[str, tuple[str, Json]]) -> Json:
        """Several questions; the answers by their keys."""
        if not self.modern:
            return {key: self.server.request(*question, self.cancelled) for key, question in asked.items()}
        answers = self.params.get("inputResponses") or {}
        missing = {key: {"method": asked[key][0], "params": asked[key][1]} for key in asked if key not in answers}
        if missing:
            raise InputRequired(missing, "together")
        return {key: {"result": answers[key]} for key in asked}


class InputRequired(Exception):
    """A modern call that needs the client's input first."""

    def __init__(self, requests: Json, state: str) -> None:
        super().__init__(state)
        self.result = {"resultType": "input_required", "inputRequests": requests, "requestState": state}


class ScriptedServer:
    """`write` takes whole lines; `end` is what a crash does."""

    def __init__(
        self, options: argparse.Namespace, write: Callable[[bytes], None], end: Callable[[int], NoReturn]
    ) -> None:
        self.options = options
        self.tool_names = _listed_tools(options)
        self.offers = Offers(options.offers) if options.offers else None
        self.tasks = ScriptedTasks()
        self.log_level = "debug"
        self.client_capabilities: Json = {}
        self.answer_at_start: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self.end = end
        self._write = write
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
            self._write(data)

    def send(self, message: Json) -> None:
        noise = NOISE if self.options.noise else b""
        self.write(noise + _line(message))

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

    def notify_changed(self, kind: str, times: int = 1) -> None:
        """`kind` is `tools`, `prompts` or `resources`; told in the way of every era that somebody listens in."""
        told: list[Json] = [{}] if self._initialized else []
        for subscription, wanted in list(self._listening.items()):
            if wanted.get(f"{kind}ListChanged"):
                told.append({"_meta": {META_SUBSCRIPTION: subscription}})
        # In one piece: a storm comes at once, however slow the machine is.
        self.write(
            b"".join(_line({"method": f"notifications/{kind}/list_changed", "params": each}) for each in told) * times
        )

    def notify_updated(self, uri: str) -> None:
        """A resource changed: told to those who subscribed to it."""
        assert self.offers is not None
        if uri in self.offers.subscribed:
            self.notify("notifications/resources/updated", {"uri": uri, "x-unknown": 1})
        for subscription, wanted in list(self._listening.items()):
            if uri in wanted.get("resourceSubscriptions", ()):
                params = {"uri": uri, "x-unknown": 1, "_meta": {META_SUBSCRIPTION: subscription}}
                self.notify("notifications/resources/updated", params)

    def end_subscriptions(self) -> None:
        """End every subscription as the specification asks, with the answer to the request that opened it."""
        for subscription in list(self._listening):
            del self._listening[subscription]
            self._send_result(subscription, {"_meta": {META_SUBSCRIPTION: subscription}}, True)

    # The wire

    def serve(self, lines: Iterable[bytes]) -> None:
        for line in lines:
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

    def _ask_at_start(self) -> None:
        self.answer_at_start.put(self.request(self.options.ask_at_start, {}, threading.Event()))

    def _handle_notification(self, method: str, params: Json) -> None:
        if method == "notifications/initialized" and self.options.ask_at_start:
            threading.Thread(target=self._ask_at_start, daemon=True).start()
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
            self.end(9)
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
        if method in CALLS:
            call = self._running[request_id] = Call(self, request_id, method, params, modern)
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
        cache: Json = {"ttlMs": 60_000, "cacheScope": "public"} if modern else {}
        if method == "tools/list":
            hidden = "ask" if self.options.asking_tools == "hidden" and not self.client_capabilities else None
            tools = [definition(name) for name in self.tool_names if name != hidden]
            return {**self._page("tools", tools, params), **cache}
        if self.offers is not None and method in LISTS:
            kind = LISTS[method]
            return {**self._page(kind, self.offers.listed(kind), params), **cache}
        if self.offers is not None and method == "completion/complete":
            return self.offers.complete(params)
        if self.options.tasks and modern and method.startswith("tasks/"):
            return self.tasks.answer(method, params)
        if method == "example/method" and self.options.unknown_method:
            return {"received": {key: value for key, value in params.items() if key != "_meta"}}
        return self._result_of_legacy(method, params, modern)

    def _result_of_legacy(self, method: str, params: Json, modern: bool) -> Json:
        if modern:
            raise RpcError(-32601, f"Method not found: {method}")
        if method == "ping":
            return {}
        if method == "logging/setLevel":
            self.log_level = params["level"]
            return {}
        if self.offers is not None and method in ("resources/subscribe", "resources/unsubscribe"):
            return self.offers.subscribe(params["uri"], method == "resources/subscribe")
        raise RpcError(-32601, f"Method not found: {method}")

    def _initialize(self, params: Json) -> Json:
        _append_declared(self.options, "legacy", params.get("protocolVersion"), params.get("capabilities"), params)
        self._initialized = True
        self.client_capabilities = params.get("capabilities") or {}
        offered = self.options.versions
        version = params.get("protocolVersion") if params.get("protocolVersion") in offered else offered[-1]
        return {"protocolVersion": version, "serverInfo": self._server_info(), **self._identity()}

    def _server_info(self) -> Json:
        return {"name": self.options.name, "version": "1.2.3", "x-unknown": True}

    def _identity(self) -> Json:
        capabilities: Json = {"tools": {"listChanged": True}, "logging": {}}
        if self.offers is not None:
            capabilities["prompts"] = {"listChanged": True}
            capabilities["resources"] = {"listChanged": True, "subscribe": True}
            capabilities["completions"] = {}
        extensions = json.loads(self.options.extensions)
        if self.options.tasks:
            extensions["io.modelcontextprotocol/tasks"] = {}
        if extensions:
            capabilities["extensions"] = extensions
        identity: Json = {"capabilities": capabilities}
        return {**identity, "instructions": self.options.instructions} if self.options.instructions else identity

    def _page(self, kind: str, items: Sequence[Json], params: Json) -> Json:
        size = self.options.page_size or len(items) or 1
        try:
            start = int(params.get("cursor", 0))
        except ValueError:
            raise RpcError(-32602, "Invalid cursor") from None
        page: Json = {kind: list(items[start : start + size])}
        if self.options.cursor_loop:
            return {**page, "nextCursor": "0"}
        return page if start + size >= len(items) else {**page, "nextCursor": str(start + size)}

    def _listen(self, request_id: str | int, params: Json) -> None:
        wanted = params.get("notifications", {})
        honoured: Json = {key: True for key in wanted if key.endswith("ListChanged") and wanted[key]}
        if wanted.get("resourceSubscriptions"):
            honoured["resourceSubscriptions"] = wanted["resourceSubscriptions"]
        meta = {META_SUBSCRIPTION: request_id}
        self.notify("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": honoured})
        self._listening[request_id] = honoured

    def _run(self, call: Call) -> None:
        try:
            self._send_result(call.id, self._outcome(call), call.modern)
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

    def _outcome(self, call: Call) -> Json:
        if call.method == "tools/call":
            if call.tool not in self.tool_names:
                raise RpcError(-32602, f"Unknown tool: {call.tool}")
            return TOOLS.get(call.tool, echo)(call)
        if self.offers is None:
            raise RpcError(-32601, f"Method not found: {call.method}")
        return self.offers.prompt(call) if call.method == "prompts/get" else self.offers.read(call)


def _line(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--era", choices=("legacy", "modern", "dual", "silent"), default="dual")
    add("--versions", type=lambda text: text.split(","), default=list(LEGACY_VERSIONS), help="legacy revisions offered")
    add("--name", default="scripted")
    add("--instructions", default="")
    add("--tools", type=int, metavar="N", help="list tool_1 to tool_N instead of the standard tools")
    add("--tool-names", metavar="A,B", help="list these; a name that is no standard tool behaves like echo")
    add("--offers", metavar="SCHEME", help="also prompts, resources `SCHEME:///...`, templates and completions")
    add("--tasks", action="store_true", help="the tasks extension")
    add("--extensions", default="{}", metavar="JSON", help="further extensions to declare")
    add("--unknown-method", action="store_true", help="answer the method `example/method`")
    add("--ask-at-start", metavar="METHOD", help="asked after the handshake; `asked_at_start` tells the answer")
    add("--asking-tools", choices=("hidden", "refused"), help="`ask`, for legacy clients that cannot be asked")
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
    return parser.parse_args(list(arguments))


def _write_stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def main() -> NoReturn:
    options = parse(sys.argv[1:])
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
    ScriptedServer(options, _write_stdout, os._exit).serve(sys.stdin.buffer)
    if options.ignore_eof:
        time.sleep(HANG_SECONDS)
    # Not sys.exit: a call that still runs in a thread must not hold us back.
    os._exit(0)


if __name__ == "__main__":
    main()
