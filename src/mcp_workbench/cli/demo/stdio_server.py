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


class DemoTool:
    def __init__(self, function: Callable[..., Outcome], definition: Json, background: bool) -> None:
        self.function, self.definition = function, definition
        # Background tools take long and can be cancelled, so they run in their own thread.
        self.background = background

    def run(self, request: Request, arguments: Json) -> Json:
        """The result of `tools/call`. A failure of the tool is a result too, marked as an error."""
        try:
            # By hand: a library for JSON Schema takes longer to import than this server to start.
            if problems := check_arguments(self.definition["inputSchema"], arguments):
                raise ToolError("; ".join(problems))
            outcome = self.function(request, **arguments)
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


class Prompt:
    def __init__(self, function: Callable[..., str], definition: Json, complete: dict[str, Callable[[], list[str]]]):
        self.function, self.definition = function, definition
        # For some arguments, all values that make sense at the moment.
        self.complete = complete


class Resources:
    """What `resources/…` shows. A server that has resources derives from this."""

    templates: tuple[Json, ...] = ()

    def listed(self) -> list[Json]:
        raise NotImplementedError

    def read(self, uri: str) -> Json | None:
        """The contents at `uri`; None if there is no such resource."""
        raise NotImplementedError


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
        # What each `subscriptions/listen` wants to be told; under None, what the legacy session does.
        self._listening: dict[RequestId | None, Json] = {}
        self._running: dict[RequestId, Request] = {}
        self._output = sys.stdout.buffer
        # Tools in the background write progress and results meanwhile; a line must not be torn.
        self._output_lock = threading.Lock()
        self._methods: dict[str, Callable[[Request], Json]] = {
            "tools/list": lambda request: {"tools": [tool.definition for tool in self.tools.values()]},
            "tools/call": lambda request: self._named(request, self.tools).run(request, request.object("arguments")),
            "prompts/list": lambda request: {"prompts": [prompt.definition for prompt in self.prompts.values()]},
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "resources/list": lambda request: {"resources": self._offered_resources().listed()},
            "resources/templates/list": lambda request: {
                "resourceTemplates": list(self._offered_resources().templates)
            },
            "resources/read": self._read_resource,
        }
        self._legacy_methods: dict[str, Callable[[Request], Json]] = {
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
            definition = _definition(function, description)
            definition["inputSchema"] = object_schema(properties, required)
            definition["annotations"] = {"readOnlyHint": read_only, "openWorldHint": False}
            if output is not None:
                definition["outputSchema"] = output
            self.tools[function.__name__] = DemoTool(function, definition, background)
            return function

        return register

    def prompt(
        self, description: str, arguments: dict[str, str], complete: dict[str, Callable[[], list[str]]]
    ) -> Callable[[Callable[..., str]], Callable[..., str]]:
        def register(function: Callable[..., str]) -> Callable[..., str]:
            definition = _definition(function, description)
            definition["arguments"] = [
                {"name": name, "description": text, "required": False} for name, text in arguments.items()
            ]
            self.prompts[function.__name__] = Prompt(function, definition, complete)
            return function

        return register

    def resources_changed(self, *uris: str) -> None:
        """Notify those who asked to be told: the list has changed, and so have these resources."""
        for subscription, wanted in self._listening.items():
            meta = {} if subscription is None else {"_meta": {SUBSCRIPTION_ID: subscription}}
            if wanted.get("resourcesListChanged"):
                self.notify("notifications/resources/list_changed", meta)
            for uri in uris:
                if uri in wanted.get("resourceSubscriptions", ()):
                    self.notify("notifications/resources/updated", {**meta, "uri": uri})

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
            self._listening.pop(request_id, None)
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
        if not request.modern:
            if self.legacy_version is None and request.method not in ("initialize", "ping"):
                message = f"Neither came `initialize` before, nor is there `_meta` with `{PROTOCOL_VERSION}`"
                raise RpcError(INVALID_PARAMS, message)
            return self._handler(request, self._legacy_methods)(request)
        self._check_meta(request.meta)
        if request.method == "subscriptions/listen":
            # It has no result while it lasts: the acknowledgement is a notification, and the request stays open.
            self._listen(request.id, request.object("notifications"))
            return None
        handler = self._handler(request, {"server/discover": self._discover})
        # A stateless result says by itself who gave it, and that nothing more is asked.
        stamp = {"_meta": {SERVER_INFO: self.info}, "resultType": "complete"}
        return {**handler(request), **CACHING.get(request.method, {}), **stamp}

    def _handler(self, request: Request, of_its_era: dict[str, Callable[[Request], Json]]) -> Callable[[Request], Json]:
        handler = self._methods.get(request.method) or of_its_era.get(request.method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        return handler

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
        if self.resources is not None:
            # Legacy clients are notified of list changes without a subscription.
            self._listening[None] = {"resourcesListChanged": True, "resourceSubscriptions": []}
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
        self._listening[request_id] = honoured

    # Tools, prompts, completion, logging, resources

    def _named(self, request: Request, offered: Json) -> Any:
        name = request.string("name")
        if name not in offered:
            raise RpcError(INVALID_PARAMS, f"Unknown {'tool' if offered is self.tools else 'prompt'}: {name}")
        return offered[name]

    def _get_prompt(self, request: Request) -> Json:
        prompt, given = self._named(request, self.prompts), request.object("arguments")
        names = [argument["name"] for argument in prompt.definition["arguments"]]
        text = prompt.function(**{name: given[name] for name in names if name in given})
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": prompt.definition["description"], "messages": [message]}

    def _complete(self, request: Request) -> Json:
        reference, argument = request.object("ref"), request.object("argument")
        values: list[str] = []
        if reference.get("type") == "ref/prompt" and (prompt := self.prompts.get(reference.get("name", ""))):
            start = str(argument.get("value", "")).casefold()
            candidates = prompt.complete.get(argument.get("name", ""), list)()
            values = [value for value in candidates if value.casefold().startswith(start)]
        shown = values[:MAX_COMPLETIONS]
        return {"completion": {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}}

    def _set_level(self, request: Request) -> Json:
        level = request.params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"Unknown log level: {level}")
        self.legacy_log_level = level
        return {}

    def _offered_resources(self) -> Resources:
        if self.resources is None:
            raise RpcError(METHOD_NOT_FOUND, "This server has no resources")
        return self.resources

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
        self._listening[None]["resourceSubscriptions"].append(request.string("uri"))
        return {}

    def _unsubscribe(self, request: Request) -> Json:
        subscribed: list[str] = self._listening[None]["resourceSubscriptions"] if None in self._listening else []
        subscribed[:] = [uri for uri in subscribed if uri != request.string("uri")]
        return {}


def usage_error(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(2)


def _definition(function: Callable[..., object], description: str) -> Json:
    name = function.__name__
    return {"name": name, "title": name.replace("_", " ").capitalize(), "description": description}


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
