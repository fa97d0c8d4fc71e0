"""One client's side of the conversation.

A legacy client (up to 2025-11-25) opens with `initialize`; a modern one (2026-07-28) stamps every request. Both may
speak on the same connection, and each request is served in the era it was written in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from mcp_workbench.downstream.traffic import Traffic
from mcp_workbench.errors import DownstreamError, WorkbenchError
from mcp_workbench.jsonrpc import messages
from mcp_workbench.jsonrpc.framing import Oversized
from mcp_workbench.jsonrpc.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Envelope,
    Malformed,
    decode_object,
)
from mcp_workbench.jsonrpc.pending import Exchange, PendingRequests
from mcp_workbench.protocol.meta import RequestMeta, read_request_meta
from mcp_workbench.protocol.versions import MODERN_VERSIONS, negotiate_legacy
from mcp_workbench.router import Router
from mcp_workbench.session.call import ClientCall
from mcp_workbench.session.welcome import Welcome
from mcp_workbench.transport.link import Link

log = logging.getLogger(__name__)

# Requests that one client may have under way at once. Far beyond what agents do; a bound on what we hold for them.
MOST_CALLS: Final = 10_000
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
NO_CAPABILITIES: Final = b"{}"


class _Initialize(Struct):
    protocolVersion: str
    capabilities: Raw = Raw(b"{}")
    clientInfo: Raw | UnsetType = UNSET


_decode_initialize: Final = Decoder(_Initialize).decode
_decode_string: Final = Decoder(str).decode


class Question(Exchange):
    """A server's request on its way to the client."""

    __slots__ = ("id", "traffic")

    def __init__(self, traffic: Traffic, id: bytes) -> None:
        super().__init__()
        self.traffic = traffic
        self.id = id

    def on_result(self, result: Raw) -> None:
        """The client answered."""
        self.traffic.answer(self.id, b'"result":' + bytes(result))

    def on_error(self, error: Raw) -> None:
        """The client answered with an error."""
        self.traffic.answer(self.id, b'"error":' + bytes(error))

    def on_failure(self, error: WorkbenchError) -> None:
        """The client is gone."""
        self.traffic.answer(self.id, b'"error":' + messages.encode({"code": -32603, "message": error.message}))


class Session:
    """A client that is connected."""

    def __init__(
        self, link: Link, router: Router, welcome: Welcome, principal: str, closed: Callable[[str], None]
    ) -> None:
        self.principal = principal
        self.calls: dict[bytes, ClientCall] = {}
        self.is_draining = False
        # The revision agreed in `initialize`; None for a client that has not shaken hands.
        self.version: str | None = None
        self.capabilities = NO_CAPABILITIES
        self._link = link
        self._router = router
        self._welcome = welcome
        self._closed = closed
        self._questions = PendingRequests()
        self._methods: dict[str, Callable[[ClientCall, dict[str, Raw]], None]] = {
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
            "server/discover": self._discover,
            "ping": lambda call, params: call.finish_result(b"{}"),
        }

    # ── messages from the client ──

    def on_message(self, line: bytes) -> None:
        """One message from the client."""
        try:
            message = messages.read(line)
        except Malformed as error:
            if line.strip():
                self._link.send(messages.error_response(error.id, PARSE_ERROR, f"cannot be read: {error}"))
            return
        if isinstance(message.method, UnsetType):
            self._on_answer(message)
        elif isinstance(message.id, UnsetType):
            self._on_notification(message.method, message.params)
        else:
            self._on_request(bytes(message.id), message.method, message.params)

    def on_oversized(self, remains: Oversized) -> None:
        """The client sent a message beyond the limit."""
        id = messages.find_id(remains.head) or messages.find_id(remains.tail)
        text = f"message of {remains.size} bytes is larger than the limit; raise `maxMessageBytes`, or send less"
        self._link.send(messages.error_response(id, INVALID_REQUEST, text))

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        """A question of a server did not reach the client."""
        question = self._questions.take(id)
        if question is not None:
            question.on_failure(error)

    def on_closed(self, reason: str) -> None:
        """The client is gone."""
        self._closed(reason)

    def _on_request(self, id: bytes, method: str, raw_params: Raw | UnsetType) -> None:
        if not messages.is_valid_id(id):
            self._link.send(messages.error_response(None, INVALID_REQUEST, "`id` must be a string or a number"))
            return
        try:
            params = {} if isinstance(raw_params, UnsetType) else decode_object(raw_params)
        except (DecodeError, ValidationError):
            self._refuse(id, INVALID_PARAMS, "`params` must be an object")
            return
        if method == "initialize":
            self._initialize(id, raw_params)
            return
        meta = params.pop("_meta", None)
        call = self._admit(id, method, meta)
        if call is None:
            return
        handler = self._methods.get(method)
        if handler is None:
            call.finish_error(METHOD_NOT_FOUND, f"method `{method[:100]}` is not supported")
            return
        handler(call, params)

    def _admit(self, id: bytes, method: str, meta: Raw | None) -> ClientCall | None:
        """Take a request in, in its era; refuse it where that era's rules are broken."""
        if id in self.calls:
            self._refuse(id, INVALID_REQUEST, "a request with this id is still under way")
            return None
        if self.is_draining or len(self.calls) >= MOST_CALLS:
            reason = "the workbench is shutting down" if self.is_draining else f"more than {MOST_CALLS} calls under way"
            self._refuse(id, messages.INTERNAL_ERROR, reason)
            return None
        modern: RequestMeta | None = None
        if meta is not None:
            try:
                read = read_request_meta(meta)
            except (DecodeError, ValidationError) as error:
                self._refuse(id, INVALID_PARAMS, f"`_meta` cannot be used: {error}")
                return None
            modern = read if read.version is not UNSET else None
        else:
            read = None
        if modern is not None:
            if modern.version not in MODERN_VERSIONS:
                self._refuse_version(id, str(modern.version))
                return None
            if isinstance(modern.capabilities, UnsetType):
                self._refuse(id, INVALID_PARAMS, "`_meta` lacks `io.modelcontextprotocol/clientCapabilities`")
                return None
            call = ClientCall(self, id, NO_CAPABILITIES, True)
        elif self.version is None and method != "ping":
            self._refuse(
                id,
                INVALID_PARAMS,
                "`_meta` lacks `io.modelcontextprotocol/protocolVersion`; stamp each request (MCP 2026-07-28), "
                "or send `initialize` first (up to 2025-11-25)",
            )
            return None
        else:
            call = ClientCall(self, id, self.capabilities, False)
        if read is not None:
            call.meta = meta
            if not isinstance(read.progress_token, UnsetType):
                call.wants_progress = True
                call.progress_token = read.progress_token
        self.calls[id] = call
        return call

    def _initialize(self, id: bytes, raw_params: Raw | UnsetType) -> None:
        try:
            params = _decode_initialize(b"{}" if isinstance(raw_params, UnsetType) else raw_params)
        except (DecodeError, ValidationError) as error:
            self._refuse(id, INVALID_PARAMS, f"`initialize` cannot be used: {error}")
            return
        self.version = negotiate_legacy(params.protocolVersion)
        capabilities = bytes(params.capabilities)
        self.capabilities = capabilities if capabilities.startswith(b"{") else NO_CAPABILITIES
        result = self._welcome.initialize_result(self.version)
        self._link.send(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, result))

    def _discover(self, call: ClientCall, params: dict[str, Raw]) -> None:
        if call.from_modern:
            call.finish_result(self._welcome.discover_result())
        else:
            call.finish_error(METHOD_NOT_FOUND, "method `server/discover` is not supported after `initialize`")

    def _list_tools(self, call: ClientCall, params: dict[str, Raw]) -> None:
        if "cursor" in params and bytes(params["cursor"]) != b"null":
            call.finish_error(INVALID_PARAMS, "unknown cursor: the list has one page")
        else:
            call.finish_result(self._welcome.tools_result(call.from_modern))

    def _call_tool(self, call: ClientCall, params: dict[str, Raw]) -> None:
        try:
            name = _decode_string(params.pop("name", b""))
        except (DecodeError, ValidationError):
            call.finish_error(INVALID_PARAMS, "`name` must be a string")
            return
        arguments = params.pop("arguments", None)
        self._router.call_tool(call, name, arguments, params)

    def _on_notification(self, method: str, params: Raw | UnsetType) -> None:
        if method == "notifications/cancelled" and not isinstance(params, UnsetType):
            try:
                fields = decode_object(params)
                call = self.calls.pop(bytes(fields["requestId"]), None)
            except (DecodeError, ValidationError, KeyError):
                return
            if call is not None:
                call.cancel(fields)

    def _on_answer(self, message: Envelope) -> None:
        """The client answers a question of a server."""
        if isinstance(message.id, UnsetType):
            # An error without id is about a message of ours that the client could not read; anything else is no
            # message at all.
            if message.error is UNSET:
                text = "not a JSON-RPC message: neither method, result nor error"
                self._link.send(messages.error_response(None, INVALID_REQUEST, text))
            return
        question = self._questions.take(message.id)
        if question is None:
            return
        if not isinstance(message.error, UnsetType):
            question.on_error(message.error)
        elif not isinstance(message.result, UnsetType):
            question.on_result(message.result)

    # ── messages to the client ──

    def finish(self, call: ClientCall, kind: bytes, payload: bytes | Raw) -> None:
        """The one answer to a call: `kind` is `result` or `error`. A call that was cancelled gets none."""
        if self.calls.pop(call.id, None) is call:
            self._link.send(b'{"jsonrpc":"2.0","id":%b,"%b":' % (call.id, kind), payload, b"}")

    def notify(self, method: str, params: bytes | Raw | None = None) -> None:
        """A notification to the client."""
        self._link.send(messages.notification(method, params))

    def end(self, error: WorkbenchError) -> None:
        """Shutting down: every call that is still under way gets its answer now."""
        for call in list(self.calls.values()):
            if call.task is not None:
                call.task.cancel()
            call.on_failure(error)
        for question in self._questions.drain():
            question.on_failure(error)

    def _refuse(self, id: bytes, code: int, message: str) -> None:
        self._link.send(messages.error_response(id, code, message))

    def _refuse_version(self, id: bytes, requested: str) -> None:
        data = {"supported": list(MODERN_VERSIONS), "requested": requested}
        self._link.send(messages.error_response(id, UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data))

    # ── what servers ask of the client (`Caller`) ──

    def relay_request(self, traffic: Traffic, id: bytes, method: str, params: Raw | None) -> bool:
        """A server asks; the client answers. Only within the legacy era: modern clients are never asked."""
        if self.version is None or not self._can_answer(method):
            return False
        question = Question(traffic, id)
        wire_id = self._questions.add(question, 0.0, 0.0, 0.0)
        self._link.send(messages.request(wire_id, method, params))
        return True

    def relay_cancel(self, traffic: Traffic, id: bytes, params: Raw) -> None:
        """A server gave its question up."""
        for question in self._questions.values():
            if isinstance(question, Question) and question.traffic is traffic and question.id == id:
                self._questions.remove(question)
                fields = {**decode_object(params), "requestId": question.wire_id}
                self.notify("notifications/cancelled", messages.encode(fields))
                return

    def relay_notification(self, traffic: Traffic, method: str, params: Raw | None) -> None:
        """A server tells something that belongs to no single call."""
        if self.version is not None and method == "notifications/message":
            self.notify(method, params)

    def _can_answer(self, method: str) -> bool:
        needed = {"roots/list": "roots", "sampling/createMessage": "sampling", "elicitation/create": "elicitation"}
        capability = needed.get(method)
        return capability is None or capability in decode_object(self.capabilities)
