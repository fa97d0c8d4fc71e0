"""A complete MCP server over stdio in one file of plain Python, for the demo servers.

Owns the wire (one JSON-RPC message per line), both eras of the protocol, progress, logging and cancellation, and checks
arguments against the few JSON Schema keywords that the demo servers use. Knows nothing about what the tools do. One
thread reads and answers; only tools marked `background` get their own thread. Each request chooses its era: one with
the modern `_meta` is served statelessly, `initialize` opens the legacy session of this process. JSON-RPC batches, which
only revision 2025-03-26 had, are refused.

It speaks both eras because people use `mcp-workbench demo SERVER` with any client. It is not built on the official SDK,
whose servers take 0.9 s of CPU and 65 MB to start, because the demo starts eight of these, with 0.03 s and 12 MB each.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from mcp_workbench import __version__

# As in `typing`, without importing it: these servers start as fast as they can.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Json = dict[str, Any]
    # A tool returns text for people and, where it declared an output schema, the same as structured content.
    Outcome = str | tuple[str, Json]
    RequestId = str | int

# Repeated here, because demo servers import nothing from the workbench.
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = PREFIX + "protocolVersion"
CLIENT_CAPABILITIES = PREFIX + "clientCapabilities"
LOG_LEVEL = PREFIX + "logLevel"
SERVER_INFO = PREFIX + "serverInfo"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"

# JSON-RPC 2.0, section 5.1; the one below is MCP's own.
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNSUPPORTED_PROTOCOL_VERSION = -32022

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

# How long a client may cache a result. Tools and prompts are part of the program; resources come and go.
HOUR = {"ttlMs": 3_600_000, "cacheScope": "public"}
AT_ONCE_STALE = {"ttlMs": 0, "cacheScope": "private"}
CACHING = {
    "server/discover": HOUR,
    "tools/list": HOUR,
    "prompts/list": HOUR,
    "resources/templates/list": HOUR,
    "resources/list": AT_ONCE_STALE,
    "resources/read": AT_ONCE_STALE,
}


class ToolError(Exception):
    """The tool failed; the model reads the message and may try again."""


class RpcError(Exception):
    """The request ends in a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class Cancelled(Exception):
    """The client has cancelled the request, so no response is sent."""


class Request:
    """One request, as tools see it."""

    def __init__(self, server: Server, request_id: RequestId, method: str, params: Json) -> None:
        self.server, self.id, self.method, self.params = server, request_id, method, params
        meta = params.get("_meta")
        self.meta: Json = meta if isinstance(meta, dict) else {}
        # The stateless revisions name themselves in each request; older ones do so once, in `initialize`.
        self.modern = PROTOCOL_VERSION in self.meta
        self.cancelled = threading.Event()

    def string(self, name: str) -> str:
        value = self.params.get(name)
        if not isinstance(value, str):
            raise RpcError(INVALID_PARAMS, f"`{name}` must be a string")
        return value

    def object(self, name: str) -> Json:
        value = self.params.get(name, {})
        if not isinstance(value, dict):
            raise RpcError(INVALID_PARAMS, f"`{name}` must be an object")
        return value

    def progress(self, progress: float, total: float, message: str) -> None:
        token = self.meta.get("progressToken")
        if token is not None:
            params = {"progressToken": token, "progress": progress, "total": total, "message": message}
            self.server.notify("notifications/progress", params, self)

    def log(self, level: str, data: Any) -> None:
        # Without a level nothing is logged: a modern client asks for it with each request, a legacy one with
        # `logging/setLevel`.
        wanted = self.meta.get(LOG_LEVEL) if self.modern else self.server.legacy_log_level
        if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted):
            params = {"level": level, "logger": self.server.name, "data": data}
            self.server.notify("notifications/message", params, self)

    def pause(self, seconds: float) -> None:
        """Wait, and raise `Cancelled` at once if the client cancels the request."""
        if self.cancelled.wait(seconds):
            raise Cancelled


class Server:
    """Register tools with the decorator, add `methods` and `capabilities` for what else there is, then `run()`."""

    def __init__(self, name: str, title: str, instructions: str) -> None:
        self.name = name
        self.info = {"name": f"demo-{name}", "title": title, "version": __version__}
        self.instructions = instructions
        self.tools: dict[str, tuple[Callable[..., Outcome], Json]] = {}
        # Tools that take long and can be cancelled, so that each call runs in a thread of its own.
        self.background: set[str] = set()
        self.capabilities: Json = {"tools": {}, "logging": {}}
        self.legacy_version: str | None = None
        self.legacy_log_level: str | None = None
        # What each `subscriptions/listen` wants to be told; under None, what the legacy session does.
        self.listening: dict[RequestId | None, Json] = {}
        self._running: dict[RequestId, Request] = {}
        self._output = sys.stdout.buffer
        # Tools in the background write progress and results meanwhile; a line must not be torn.
        self._output_lock = threading.Lock()
        self.methods: dict[str, Callable[[Request], Json]] = {
            "tools/list": lambda request: {"tools": [definition for _, definition in self.tools.values()]},
            "tools/call": self._call_tool,
        }
        self.modern_methods = {
            "server/discover": lambda request: {"supportedVersions": list(MODERN_VERSIONS), **self._identity()}
        }
        self.legacy_methods: dict[str, Callable[[Request], Json]] = {
            "initialize": self._initialize,
            "ping": lambda request: {},
            "logging/setLevel": self._set_level,
        }

    # What a server offers

    def tool(
        self,
        description: str,
        properties: Json,
        *,
        required: tuple[str, ...] = (),
        output: Json | None = None,
        read_only: bool = True,
        background: bool = False,
    ) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
        def register(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
            name = function.__name__
            definition: Json = {
                "name": name,
                "title": name.replace("_", " ").capitalize(),
                "description": description,
                "inputSchema": object_schema(properties, required),
                "annotations": {"readOnlyHint": read_only, "openWorldHint": False},
            }
            if output is not None:
                definition["outputSchema"] = output
            self.tools[name] = function, definition
            if background:
                self.background.add(name)
            return function

        return register

    # The wire

    def run(self) -> NoReturn:
        """Serve until stdin ends."""
        # Anything printed by mistake must not mix with the messages.
        sys.stdout = sys.stderr
        try:
            for line in sys.stdin.buffer:
                if line.strip():
                    self._receive(line)
        except KeyboardInterrupt:
            pass
        # Python waits for the threads of running calls before it exits.
        for request in list(self._running.values()):
            request.cancelled.set()
        sys.exit(0)

    def notify(self, method: str, params: Json, request: Request | None = None) -> None:
        self._send({"method": method, "params": params}, request)

    def _send(self, message: Json, request: Request | None = None) -> None:
        """Write one message, unless it belongs to a cancelled request."""
        data = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
        with self._output_lock:
            if request is not None and request.cancelled.is_set():
                return
            try:
                self._output.write(data)
                self._output.flush()
            except BrokenPipeError:
                # The client is gone. A normal exit would try to flush once more and report an error.
                os._exit(0)

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._send({"id": None, "error": {"code": PARSE_ERROR, "message": "Parse error"}})
            return
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            # We never send requests to the client, so a response is as invalid as a number or a list.
            self._send({"id": None, "error": {"code": INVALID_REQUEST, "message": "Not a request or notification"}})
            return
        params = message.get("params", {})
        if "id" not in message:
            if message["method"] == "notifications/cancelled" and isinstance(params, dict):
                self._cancel(params.get("requestId"))
        elif not isinstance(message["id"], (str, int)) or not isinstance(params, dict):
            error = {"code": INVALID_REQUEST, "message": "`id` must be a string or integer, `params` an object"}
            self._send({"id": message["id"] if isinstance(message["id"], (str, int)) else None, "error": error})
        else:
            self._serve(Request(self, message["id"], message["method"], params))

    def _cancel(self, request_id: Any) -> None:
        if isinstance(request_id, (str, int)):
            self.listening.pop(request_id, None)
            if (request := self._running.get(request_id)) is not None:
                # Under the lock, so that nothing more is written for it afterwards.
                with self._output_lock:
                    request.cancelled.set()

    def _serve(self, request: Request) -> None:
        if request.method != "tools/call" or str(request.params.get("name")) not in self.background:
            self._answer(request)
            return
        self._running[request.id] = request
        threading.Thread(target=self._answer, args=(request,)).start()

    def _answer(self, request: Request) -> None:
        try:
            result = self._dispatch(request)
        except RpcError as error:
            self._send({"id": request.id, "error": error.error}, request)
        except Cancelled:
            pass
        except Exception as error:
            print(f"{request.method} failed: {error!r}", file=sys.stderr)
            answer = {"code": INTERNAL_ERROR, "message": f"Internal error: {error!r}"}
            self._send({"id": request.id, "error": answer}, request)
        else:
            if result is not None:
                self._send({"id": request.id, "result": result}, request)
        finally:
            self._running.pop(request.id, None)

    # The eras

    def _dispatch(self, request: Request) -> Json | None:
        """The result of a request; None if none is sent now."""
        # We never give one out, so whoever sends one has it from elsewhere.
        if request.method.endswith("/list") and request.params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "Invalid cursor: our lists have one page")
        if request.modern:
            self._check_meta(request.meta)
            if request.method == "subscriptions/listen":
                # It has no result while it lasts: the acknowledgement is a notification, and the request stays open.
                self._listen(request.id, request.object("notifications"))
                return None
        elif self.legacy_version is None and request.method not in ("initialize", "ping"):
            message = f"Send `initialize` first, or `_meta` with `{PROTOCOL_VERSION}`"
            raise RpcError(INVALID_PARAMS, message)
        methods = self.methods | (self.modern_methods if request.modern else self.legacy_methods)
        if request.method not in methods:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        result = methods[request.method](request)
        if request.modern:
            # A stateless result says by itself who gave it, and that nothing more is asked.
            stamp = {"_meta": {SERVER_INFO: self.info}, "resultType": "complete"}
            return {**result, **CACHING.get(request.method, {}), **stamp}
        return result

    def _check_meta(self, meta: Json) -> None:
        version = meta[PROTOCOL_VERSION]
        if version not in MODERN_VERSIONS:
            data = {"supported": list(MODERN_VERSIONS), "requested": version}
            raise RpcError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
        if not isinstance(meta.get(CLIENT_CAPABILITIES), dict):
            raise RpcError(INVALID_PARAMS, f"`_meta` lacks `{CLIENT_CAPABILITIES}`")
        if meta.get(LOG_LEVEL, "info") not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level: {meta[LOG_LEVEL]}")

    def _initialize(self, request: Request) -> Json:
        wanted = request.params.get("protocolVersion")
        # The specification: where the requested revision is not known, the newest that is; the client decides then.
        self.legacy_version = wanted if wanted in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
        # Legacy clients are notified of list changes without a subscription.
        self.listening[None] = {"resourcesListChanged": "resources" in self.capabilities, "resourceSubscriptions": []}
        return {"protocolVersion": self.legacy_version, "serverInfo": self.info, **self._identity()}

    def _identity(self) -> Json:
        return {"capabilities": self.capabilities, "instructions": self.instructions}

    def _listen(self, request_id: RequestId, wanted: Json) -> None:
        """Acknowledge the supported subscriptions; the request stays open until it is cancelled."""
        honoured: Json = {}
        if wanted.get("resourcesListChanged") is True:
            honoured["resourcesListChanged"] = True
        if isinstance(uris := wanted.get("resourceSubscriptions"), list):
            honoured["resourceSubscriptions"] = uris
        # What is not among them the client knows it will not get.
        params = {"_meta": {SUBSCRIPTION_ID: request_id}, "notifications": honoured}
        self.notify("notifications/subscriptions/acknowledged", params)
        self.listening[request_id] = honoured

    def _call_tool(self, request: Request) -> Json:
        """A failure of the tool is a result too, marked as an error."""
        name, arguments = request.string("name"), request.object("arguments")
        if name not in self.tools:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        function, definition = self.tools[name]
        try:
            # By hand: a library for JSON Schema takes longer to import than this server to start.
            if problems := check_arguments(definition["inputSchema"], arguments):
                raise ToolError("; ".join(problems))
            outcome = function(request, **arguments)
        # An error of the protocol would be the client's to handle; this one its model can read and act on.
        except ToolError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if isinstance(outcome, str):
            return {"content": [{"type": "text", "text": outcome}]}
        text, structured = outcome
        # Clients that ignore structured content need all of it as text.
        everything = json.dumps(structured, ensure_ascii=False)
        content = [{"type": "text", "text": part} for part in (text, everything)]
        return {"content": content, "structuredContent": structured}

    def _set_level(self, request: Request) -> Json:
        level = request.params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level: {level}")
        self.legacy_log_level = level
        return {}


def usage_error(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(2)


def object_schema(properties: Json, required: tuple[str, ...] | None = None) -> Json:
    """An object schema with exactly these properties, all of them required unless `required` is given."""
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
}


def check_arguments(schema: Json, arguments: Json) -> list[str]:
    """All problems with `arguments`, one sentence each."""
    properties: Json = schema["properties"]
    problems = [f"`{name}` is missing" for name in schema["required"] if name not in arguments]
    for name, value in arguments.items():
        if name in properties:
            problems += _check_value(f"`{name}`", properties[name], value)
        else:
            problems.append(f"`{name}` is unknown; the arguments are {', '.join(f'`{known}`' for known in properties)}")
    return problems


def _check_value(what: str, schema: Json, value: object) -> list[str]:
    expected = schema["type"]
    # In Python a bool is an int; in JSON it is not.
    if not isinstance(value, _JSON_TYPES[expected]) or isinstance(value, bool):
        return [f"{what} must be of type {expected}"]
    if isinstance(value, list):
        return [
            problem for at, one in enumerate(value) for problem in _check_value(f"{what}[{at}]", schema["items"], one)
        ]
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return [f"{what} must not be empty"]
    if isinstance(value, (int, float)):
        # Infinity and NaN, which Python's JSON reader lets through.
        if value - value != 0:
            return [f"{what} must be a finite number"]
        if value < schema.get("minimum", value):
            return [f"{what} must be at least {schema['minimum']}"]
        if value > schema.get("maximum", value):
            return [f"{what} must be at most {schema['maximum']}"]
    return []
