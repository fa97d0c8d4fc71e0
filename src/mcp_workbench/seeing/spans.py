"""Spans of finished calls, by OpenTelemetry's conventions for MCP (of 1.41, in development), encoded as OTLP in JSON.

Functions of values, run in the thread that sends them. One call gives two spans: that of the client's request to us
(`SERVER`), and its child, our request to the server (`CLIENT`), if it was sent. Names of spans never contain a URI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.json import encode

from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR
from mcp_workbench.seeing.trace_context import TraceContext

SPAN_SCOPE: Final = "mcp-workbench"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"
# Of the ids of requests, which clients may make longer.
_MAX_DIGITS: Final = 20
# Of the value of an attribute: names come from clients.
MAX_VALUE: Final = 1024
# Descriptions of calls that are kept in JSON. Most clients use the same few tools.
MAX_REMEMBERED: Final = 1024
_SERVER_KIND, _CLIENT_KIND, _ERROR_STATUS = 2, 3, 2
# *Span flags* of OTLP: whether the parent is in another process is known, and it is.
_KNOWN_WHERE, _REMOTE_PARENT_FLAGS = 0x100, 0x200
# Codes that say that the server failed, and not that it was asked for something wrong.
_SERVER_ERRORS: Final = range(-32099, -31999)
_TOOL_METHOD: Final = "tools/call"
_PROMPT_METHOD: Final = "prompts/get"


class CallOutcome(NamedTuple):
    """How one side of a call ended. Both empty: well."""

    # By the conventions: `tool_error`, the code of a JSON-RPC error, or another word.
    error_type: str = ""
    code: int | None = None


# How nearly all end.
WELL: Final = CallOutcome()


class CallSubject(Struct, eq=False, gc=False):
    """What similar calls have in common: one object for all of them, so that it is written once."""

    method: str
    item: str
    toolbox: str
    server: str
    # The client's address, `stdio`, or `process 123`.
    peer: str
    # The revisions that the client speaks, and the server.
    version: str
    server_version: str | None
    # Where the server is; None for a process.
    url: str | None
    # What the two spans of a call that ended well say of it, once it was written.
    served_well: bytes = b""
    sent_well: bytes = b""


class TracedCall(Struct, gc=False):
    """A finished call. Ids are hexadecimal."""

    trace_id: bytes
    span_id: bytes
    # The one of our request to the server.
    client_span_id: bytes
    flags: int
    # The client's span, if it sent one.
    parent: TraceContext | None
    # The call in the audit, on the page and in logs.
    id: int
    subject: CallSubject
    request_id: bytes
    wire_id: int
    # When `time.monotonic` began, in nanoseconds since 1970. All other times are in its seconds.
    epoch: int
    arrived: float
    # None if no server was sent it.
    sent: float | None
    ended: float
    outcome: CallOutcome = WELL
    server_outcome: CallOutcome = WELL
    rule: str = ""
    # When it was held, began to wait, was sent, needed input, got it.
    events: tuple[tuple[float, str], ...] = ()
    # The span of the HTTP request that it came in, if that names one.
    linked: TraceContext | None = None


def encode_spans(calls: Iterable[TracedCall], resource: Mapping[str, str], version: str) -> bytes:
    """The body of one request to the collector. Written by hand, because most of it is the same for all calls of a
    tool: the encoder is asked once for that."""
    head = b'{"resourceSpans":[{"resource":{"attributes":[%b]},"scopeSpans":[{"scope":%b,"schemaUrl":%b,"spans":[' % (
        _attributes(resource),
        encode({"name": SPAN_SCOPE, "version": version}),
        encode(SCHEMA_URL),
    )
    pieces = [head]
    for call in calls:
        _write_spans(call, pieces)
    # Each span begins with a comma.
    pieces[1:2] = [each[1:] for each in pieces[1:2]]
    pieces.append(b"]}]}]}")
    return b"".join(pieces)


def _write_spans(call: TracedCall, pieces: list[bytes]) -> None:
    """Append its spans, in pieces: to join them all at once takes less than to format each."""
    subject, parent, trace_id, epoch, id = call.subject, call.parent, call.trace_id, call.epoch, b"%d" % call.id
    arrived, ended = b"%d" % (epoch + int(call.arrived * 1e9)), b"%d" % (epoch + int(call.ended * 1e9))
    more = state = b""
    if parent is not None or call.events or call.linked is not None:
        more = _about_request(call)
        state = b',"traceState":' + _text(parent.state) if parent is not None and parent.state else b""
    flags, request_id = call.flags & 0xFF | _KNOWN_WHERE, call.request_id
    # Nearly all: a number, and a call that ended well.
    is_number = len(request_id) < _MAX_DIGITS and request_id.isdigit()
    if call.outcome is WELL and call.server_outcome is WELL and not call.rule:
        if not subject.served_well:
            subject.served_well, subject.sent_well = _served(subject, WELL, ""), _sent(subject, WELL)
        served, sent_on = subject.served_well, subject.sent_well
    else:
        served, sent_on = _served(subject, call.outcome, call.rule), _sent(subject, call.server_outcome)
    pieces += (
        _TRACE_ID, trace_id, _SPAN_ID, call.span_id, _START_TIME, arrived, _END_TIME, ended,
        _FLAGS_MEMBERS[flags if parent is None else flags | _REMOTE_PARENT_FLAGS], state, more,
        served, b'"%b"' % request_id if is_number else _request_id(request_id), _CALL_ID, id, _SPAN_END,
    )  # fmt: skip
    if call.sent is not None:
        sent = arrived if call.sent == call.arrived else b"%d" % (epoch + int(call.sent * 1e9))
        pieces += (
            _TRACE_ID, trace_id, _SPAN_ID, call.client_span_id, _START_TIME, sent, _END_TIME, ended,
            _FLAGS_MEMBERS[flags], state, _PARENT_ID, call.span_id,
            sent_on, b'"%d"' % call.wire_id, _CALL_ID, id, _SPAN_END,
        )  # fmt: skip


_TRACE_ID: Final = b',{"traceId":"'
_SPAN_ID: Final = b'","spanId":"'
_START_TIME: Final = b'","startTimeUnixNano":"'
_END_TIME: Final = b'","endTimeUnixNano":"'
_FLAGS_MEMBERS: Final = tuple(b'","flags":%d' % flags for flags in range(2 * _REMOTE_PARENT_FLAGS))
_PARENT_ID: Final = b',"parentSpanId":"'
_REQUEST_ID: Final = b',{"key":"jsonrpc.request.id","value":{"stringValue":'
_CALL_ID: Final = b'}},{"key":"workbench.call.id","value":{"intValue":"'
_SPAN_END: Final = b'"}}]}'


def _about_request(call: TracedCall) -> bytes:
    """What few spans of a client's request have, each with a comma before it."""
    more = b"" if call.parent is None else b',"parentSpanId":"%016x"' % call.parent.span_id
    if call.events:
        more += b',"events":[%b]' % b",".join(
            b'{"timeUnixNano":"%d","name":"%b"}' % (call.epoch + int(at * 1e9), name.encode())
            for at, name in call.events
        )
    if call.linked is not None:
        trace_id, span_id, flags, _ = call.linked
        more += b',"links":[{"traceId":"%032x","spanId":"%016x","flags":%d}]' % (
            trace_id,
            span_id,
            flags | _KNOWN_WHERE | _REMOTE_PARENT_FLAGS,
        )
    return more


@lru_cache(MAX_REMEMBERED)
def _served(subject: CallSubject, outcome: CallOutcome, rule: str) -> bytes:
    """The members that are the same for many calls, up to the id of the request."""
    own = {"mcp.protocol.version": subject.version, **_peer(subject.peer), "workbench.rule": rule}
    return _alike(_SERVER_KIND, subject, outcome, own)


@lru_cache(MAX_REMEMBERED)
def _sent(subject: CallSubject, outcome: CallOutcome) -> bytes:
    own = {"mcp.protocol.version": subject.server_version, **_destination(subject.url)}
    # After the id of the parent.
    return b'"' + _alike(_CLIENT_KIND, subject, outcome, own)


def _alike(kind: int, subject: CallSubject, outcome: CallOutcome, own: Mapping[str, str | int | None]) -> bytes:
    method, item = subject.method, subject.item
    name = f"{method} {item}" if method in (_TOOL_METHOD, _PROMPT_METHOD) and item else method
    status = b',"status":{"code":%d}' % _ERROR_STATUS if is_error(outcome, is_server=kind == _SERVER_KIND) else b""
    attributes = _attributes({**_common(subject, outcome), **own})
    return b',"name":%b,"kind":%d%b,"attributes":[%b%b' % (_text(name), kind, status, attributes, _REQUEST_ID)


def is_error(outcome: CallOutcome, *, is_server: bool) -> bool:
    """Whether a span has the status of an error. Whoever serves a request has not failed if the request was wrong, or
    was withdrawn."""
    if not is_server or not outcome.error_type:
        return bool(outcome.error_type)
    if outcome.code is not None:
        return outcome.code == INTERNAL_ERROR or outcome.code in _SERVER_ERRORS
    return outcome.error_type not in ("cancelled", "refused")


def _common(subject: CallSubject, outcome: CallOutcome) -> dict[str, str | int | None]:
    method, item = subject.method, subject.item
    return {
        "mcp.method.name": method,
        "error.type": outcome.error_type,
        "rpc.response.status_code": None if outcome.code is None else str(outcome.code),
        "gen_ai.operation.name": "execute_tool" if method == _TOOL_METHOD else None,
        "gen_ai.tool.name": item if method == _TOOL_METHOD else None,
        "gen_ai.prompt.name": item if method == _PROMPT_METHOD else None,
        "mcp.resource.uri": item if method.startswith("resources/") else None,
        "workbench.toolbox": subject.toolbox,
        "workbench.server": subject.server,
    }


def _request_id(id: bytes) -> bytes:
    """A string in JSON: as the client wrote it, or its number."""
    if len(id) > MAX_VALUE:
        return b'""'
    text = id if id.isascii() else id.decode(errors="replace").encode()
    return text if text.startswith(b'"') else b'"%b"' % text


def _peer(peer: str) -> dict[str, str | int | None]:
    if peer == "stdio":
        return {"network.transport": "pipe"}
    try:
        ip_address(peer)
    except ValueError:
        # Another process of this machine; or the page, which is in this one.
        return {"network.transport": "unix"} if peer.startswith(("process ", "uid:")) else {}
    return {"network.transport": "tcp", "network.protocol.name": "http", "client.address": peer}


def _destination(url: str | None) -> dict[str, str | int | None]:
    if url is None:
        return {"network.transport": "pipe"}
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = {"server.address": parts.hostname, "server.port": port}
    return {"network.transport": "tcp", "network.protocol.name": "http", **address}


def _attributes(values: Mapping[str, str | int | None]) -> bytes:
    """Those that have a value, in JSON, separated by commas."""
    return b",".join(
        b'{"key":"%b","value":%b}'
        % (
            key.encode(),
            b'{"intValue":"%d"}' % value if isinstance(value, int) else b'{"stringValue":%b}' % _text(value),
        )
        for key, value in values.items()
        if value is not None and value != ""
    )


def _text(value: str) -> bytes:
    """In JSON. Names may hold what UTF-8 cannot."""
    return encode(value[:MAX_VALUE].encode(errors="replace").decode())
