"""A complete MCP server over stdio in one file of plain Python, for the demo servers.

Owns the wire (one JSON-RPC message per line), both eras of the protocol, progress, logging and cancellation. Knows
nothing about what the tools do. One thread reads and answers; only tools marked `background` get their own thread. Each
request chooses its era: one with the modern `_meta` is served statelessly, `initialize` opens the legacy session of
this process. JSON-RPC batches, which only revision 2025-03-26 had, are refused.

It speaks both eras because people use `mcp-workbench demo SERVER` with any client. It is not built on the official SDK,
whose servers take 0.9 s of CPU and 65 MB to start, because the demo starts ten of these, with 0.03 s and 12 MB each.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from mcp_workbench import __version__
from mcp_workbench.cli.demo.offerings import DemoTool, Prompt

# As in `typing`, without importing it: these servers start as fast as they can.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from mcp_workbench.cli.demo.offerings import Json, Outcome, Resources

    RequestId = str | int

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
# Repeated here, because demo servers import nothing from the workbench.
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = PREFIX + "protocolVersion"
CLIENT_CAPABILITIES = PREFIX + "clientCapabilities"
LOG_LEVEL = PREFIX + "logLevel"
SERVER_INFO = PREFIX + "serverInfo"

# JSON-RPC 2.0, section 5.1; the two below are MCP's own.
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
LEGACY_RESOURCE_NOT_FOUND = -32002
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
# The specification's limit for one response.
MAX_COMPLETIONS = 100


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
    """Register tools and prompts with the decorators, set `resources`, then `run()`."""

    def __init__(self, name: str, title: str, instructions: str) -> None:
        self.name = name
        self.info = {"name": f"demo-{name}", "title": title, "version": __version__}
        self.instructions = instructions
        self.tools: dict[str, DemoTool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: Resources | None = None
        self.legacy_version: str | None = None
        self.legacy_log_level: str | None = None
        self.subscribers = Subscribers(self.notify)
        self._running: dict[RequestId, Request] = {}
        self._output = sys.stdout.buffer
        # Tools in the background write progress and results meanwhile; a line must not be torn.
        self._output_lock = threading.Lock()
        self._methods = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
        }
        self._legacy_methods = {
            "initialize": self._initialize,
            "ping": lambda request: {},
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
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
            tool = DemoTool(function, description, properties, required, output, read_only, background)
            self.tools[tool.name] = tool
            return function

        return register

    def prompt(
        self, description: str, arguments: dict[str, str], complete: dict[str, Callable[[], list[str]]]
    ) -> Callable[[Callable[..., str]], Callable[..., str]]:
        def register(function: Callable[..., str]) -> Callable[..., str]:
            prompt = Prompt(function, description, arguments, complete)
            self.prompts[prompt.name] = prompt
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
            self.subscribers.stop(request_id)
            if (request := self._running.get(request_id)) is not None:
                # Under the lock, so that nothing more is written for it afterwards.
                with self._output_lock:
                    request.cancelled.set()

    def _serve(self, request: Request) -> None:
        name = request.params.get("name")
        tool = self.tools.get(name) if request.method == "tools/call" and isinstance(name, str) else None
        if tool is None or not tool.background:
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
        return self._dispatch_modern(request) if request.modern else self._dispatch_legacy(request)

    def _dispatch_legacy(self, request: Request) -> Json:
        if self.legacy_version is None and request.method not in ("initialize", "ping"):
            message = f"Neither came `initialize` before, nor is there `_meta` with `{PROTOCOL_VERSION}`"
            raise RpcError(INVALID_PARAMS, message)
        handler = self._methods.get(request.method) or self._legacy_methods.get(request.method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        return handler(request)

    def _dispatch_modern(self, request: Request) -> Json | None:
        self._check_meta(request.meta)
        if request.method == "subscriptions/listen":
            # It has no result while it lasts: the acknowledgement is a notification, and the request stays open.
            self.subscribers.listen(request.id, request.object("notifications"))
            return None
        handler = self._discover if request.method == "server/discover" else self._methods.get(request.method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        # A stateless result says by itself who gave it, and that nothing more is asked.
        stamp = {"_meta": {SERVER_INFO: self.info}, "resultType": "complete"}
        return {**handler(request), **CACHING.get(request.method, {}), **stamp}

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
        self.subscribers.legacy_session = self.resources is not None
        return {"protocolVersion": self.legacy_version, "serverInfo": self.info, **self._identity()}

    def _discover(self, request: Request) -> Json:
        return {"supportedVersions": list(MODERN_VERSIONS), **self._identity()}

    def _identity(self) -> Json:
        capabilities: Json = {"tools": {}, "logging": {}}
        if self.prompts:
            # Only prompts have arguments that we complete.
            capabilities.update(prompts={}, completions={})
        if self.resources is not None:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        return {"capabilities": capabilities, "instructions": self.instructions}

    # Tools, prompts, completion, logging

    def _list_tools(self, request: Request) -> Json:
        return {"tools": [tool.definition for tool in self.tools.values()]}

    def _call_tool(self, request: Request) -> Json:
        name = request.string("name")
        if name not in self.tools:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        return self.tools[name].run(request, request.object("arguments"))

    def _list_prompts(self, request: Request) -> Json:
        return {"prompts": [prompt.definition for prompt in self.prompts.values()]}

    def _get_prompt(self, request: Request) -> Json:
        return self._prompt(request.string("name")).get(request.object("arguments"))

    def _prompt(self, name: str) -> Prompt:
        if name not in self.prompts:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {name}")
        return self.prompts[name]

    def _complete(self, request: Request) -> Json:
        reference, argument = request.object("ref"), request.object("argument")
        values: list[str] = []
        if reference.get("type") == "ref/prompt":
            candidates = self._prompt(str(reference.get("name"))).complete.get(argument.get("name", ""))
            start = str(argument.get("value", "")).casefold()
            values = [value for value in candidates() if value.casefold().startswith(start)] if candidates else []
        shown = values[:MAX_COMPLETIONS]
        return {"completion": {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}}

    def _set_level(self, request: Request) -> Json:
        level = request.params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level: {level}")
        self.legacy_log_level = level
        return {}

    # Resources

    def _offered_resources(self) -> Resources:
        if self.resources is None:
            raise RpcError(METHOD_NOT_FOUND, "This server has no resources")
        return self.resources

    def _list_resources(self, request: Request) -> Json:
        return {"resources": self._offered_resources().listed()}

    def _list_templates(self, request: Request) -> Json:
        return {"resourceTemplates": list(self._offered_resources().templates)}

    def _read_resource(self, request: Request) -> Json:
        uri = request.string("uri")
        contents = self._offered_resources().read(uri)
        if contents is None:
            # Revision 2026-07-28 has no code of its own for it any more.
            code = INVALID_PARAMS if request.modern else LEGACY_RESOURCE_NOT_FOUND
            raise RpcError(code, "Resource not found", {"uri": uri})
        return {"contents": [{"uri": uri, **contents}]}

    def _subscribe(self, request: Request) -> Json:
        self._offered_resources()
        self.subscribers.legacy_uris.add(request.string("uri"))
        return {}

    def _unsubscribe(self, request: Request) -> Json:
        self.subscribers.legacy_uris.discard(request.string("uri"))
        return {}


def usage_error(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(2)


class Subscribers:
    """Which clients are notified when resources change: legacy `resources/subscribe`, modern `subscriptions/listen`."""

    def __init__(self, notify: Callable[[str, Json], None]) -> None:
        self._notify = notify
        # Set by `initialize`: legacy clients are notified of list changes without a subscription.
        self.legacy_session = False
        self.legacy_uris: set[str] = set()
        self._listening: dict[str | int, Json] = {}

    def listen(self, request_id: str | int, wanted: Json) -> None:
        """Acknowledge the supported subscriptions; the request stays open until it is cancelled."""
        honoured: Json = {}
        if wanted.get("resourcesListChanged") is True:
            honoured["resourcesListChanged"] = True
        if isinstance(uris := wanted.get("resourceSubscriptions"), list):
            honoured["resourceSubscriptions"] = uris
        # What is not among them the client knows it will not get.
        params = {"_meta": {SUBSCRIPTION_ID: request_id}, "notifications": honoured}
        self._notify("notifications/subscriptions/acknowledged", params)
        self._listening[request_id] = honoured

    def stop(self, request_id: str | int) -> None:
        self._listening.pop(request_id, None)

    def updated(self, uri: str) -> None:
        if uri in self.legacy_uris:
            self._notify("notifications/resources/updated", {"uri": uri})
        for subscription, honoured in self._listening.items():
            if uri in honoured.get("resourceSubscriptions", ()):
                self._notify("notifications/resources/updated", {"_meta": {SUBSCRIPTION_ID: subscription}, "uri": uri})

    def list_changed(self) -> None:
        if self.legacy_session:
            self._notify("notifications/resources/list_changed", {})
        for subscription, honoured in self._listening.items():
            if honoured.get("resourcesListChanged"):
                self._notify("notifications/resources/list_changed", {"_meta": {SUBSCRIPTION_ID: subscription}})
