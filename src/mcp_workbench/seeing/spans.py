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

SCOPE: Final = "mcp-workbench"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"
# Of the value of an attribute: names come from clients.
MAX_VALUE: Final = 1024
# Descriptions of calls that are kept in JSON. Most clients use the same few tools.
MAX_REMEMBERED: Final = 1024
_SERVER, _CLIENT, _ERROR = 2, 3, 2
# *Span flags* of OTLP: whether the parent is in another process is known, and it is.
_KNOWN_WHERE, _ELSEWHERE = 0x100, 0x200
# Codes that say that the server failed, and not that it was asked for something wrong.
_SERVER_ERRORS: Final = range(-32099, -31999)
_TOOL: Final = "tools/call"
_PROMPT: Final = "prompts/get"


class CallOutcome(NamedTuple):
    """How one side of a call ended. Both empty: well."""

    # By the conventions: `tool_error`, the code of a JSON-RPC error, or another word.
    error_type: str = ""
    code: int | None = None


class TracedCall(Struct, gc=False):
    """A finished call. Times are nanoseconds since 1970."""

    trace_id: int
    # The client's span, if it sent one.
    parent_id: int | None
    state: str
    flags: int
    span_id: int
    # The one of our request to the server.
    client_span_id: int
    # The call in the audit, on the page and in logs.
    id: int
    method: str
    toolbox: str
    server: str
    item: str
    rule: str
    # The client's address, `stdio`, or `process 123`.
    peer: str
    request_id: bytes
    # The revisions that the client speaks, and the server.
    version: str
    server_version: str | None
    # Where the server is; None for a process.
    url: str | None
    wire_id: int
    arrived: int
    # None if no server was sent it.
    sent: int | None
    ended: int
    outcome: CallOutcome
    server_outcome: CallOutcome
    # When it was held, began to wait, was sent, needed input, got it.
    events: tuple[tuple[int, str], ...]
    # The span of the HTTP request that it came in, if that names one.
    linked: TraceContext | None = None


def encode_spans(calls: Iterable[TracedCall], resource: Mapping[str, str], version: str) -> bytes:
    """The body of one request to the collector. Written by hand, because most of it is the same for all calls of a
    tool: the encoder is asked once for that."""
    return (
        b'{"resourceSpans":[{"resource":{"attributes":[%b]},"scopeSpans":[{"scope":%b,"schemaUrl":%b,"spans":[%b]}]}]}'
        % (
            _attributes(resource),
            encode({"name": SCOPE, "version": version}),
            encode(SCHEMA_URL),
            b",".join(span for call in calls for span in spans_of(call)),
        )
    )


def spans_of(call: TracedCall) -> list[bytes]:
    """Each of them in JSON."""
    about = (call.method, call.item, call.toolbox, call.server)
    served = _served(*about, call.outcome, call.version, call.peer, call.rule)
    where = _KNOWN_WHERE if call.parent_id is None else _KNOWN_WHERE | _ELSEWHERE
    more = b"" if call.parent_id is None else b',"parentSpanId":"%016x"' % call.parent_id
    if call.events:
        more += b',"events":[%b]' % b",".join(
            b'{"timeUnixNano":"%d","name":"%b"}' % (at, name.encode()) for at, name in call.events
        )
    if call.linked is not None:
        trace_id, span_id, flags, _ = call.linked
        more += b',"links":[{"traceId":"%032x","spanId":"%016x","flags":%d}]' % (
            trace_id,
            span_id,
            flags | _KNOWN_WHERE | _ELSEWHERE,
        )
    spans = [_span(call, call.span_id, call.arrived, where, _request_id(call.request_id), served, more)]
    if call.sent is not None:
        sent = _sent(*about, call.server_outcome, call.server_version, call.url)
        more = b',"parentSpanId":"%016x"' % call.span_id
        spans.append(_span(call, call.client_span_id, call.sent, _KNOWN_WHERE, b'"%d"' % call.wire_id, sent, more))
    return spans


def _span(call: TracedCall, id: int, started: int, where: int, request_id: bytes, alike: bytes, more: bytes) -> bytes:
    """`alike`: the members that are the same for many calls, up to the attributes that are not. `more`: further
    members."""
    if call.state:
        more += b',"traceState":' + _text(call.state)
    return (
        b'{"traceId":"%032x","spanId":"%016x","startTimeUnixNano":"%d","endTimeUnixNano":"%d","flags":%d%b%b,'
        b'{"key":"jsonrpc.request.id","value":{"stringValue":%b}},'
        b'{"key":"workbench.call.id","value":{"intValue":"%d"}}]}'
    ) % (
        call.trace_id,
        id,
        started,
        # Clocks are read at different times.
        max(started, call.ended),
        call.flags | where,
        more,
        alike,
        request_id,
        call.id,
    )


@lru_cache(MAX_REMEMBERED)
def _served(
    method: str, item: str, toolbox: str, server: str, outcome: CallOutcome, version: str, peer: str, rule: str
) -> bytes:
    own = {"mcp.protocol.version": version, **_peer(peer), "workbench.rule": rule}
    return _alike(_SERVER, method, item, outcome, {**_common(method, item, toolbox, server, outcome), **own})


@lru_cache(MAX_REMEMBERED)
def _sent(
    method: str, item: str, toolbox: str, server: str, outcome: CallOutcome, version: str | None, url: str | None
) -> bytes:
    own = {"mcp.protocol.version": version, **_destination(url)}
    return _alike(_CLIENT, method, item, outcome, {**_common(method, item, toolbox, server, outcome), **own})


def _alike(
    kind: int, method: str, item: str, outcome: CallOutcome, attributes: Mapping[str, str | int | None]
) -> bytes:
    name = f"{method} {item}" if method in (_TOOL, _PROMPT) and item else method
    status = b',"status":{"code":%d}' % _ERROR if is_error(outcome, is_server=kind == _SERVER) else b""
    return b',"name":%b,"kind":%d%b,"attributes":[%b' % (_text(name), kind, status, _attributes(attributes))


def is_error(outcome: CallOutcome, *, is_server: bool) -> bool:
    """Whether a span has the status of an error. Whoever serves a request has not failed if the request was wrong, or
    was withdrawn."""
    if not is_server or not outcome.error_type:
        return bool(outcome.error_type)
    if outcome.code is not None:
        return outcome.code == INTERNAL_ERROR or outcome.code in _SERVER_ERRORS
    return outcome.error_type not in ("cancelled", "refused")


def _common(method: str, item: str, toolbox: str, server: str, outcome: CallOutcome) -> dict[str, str | int | None]:
    return {
        "mcp.method.name": method,
        "error.type": outcome.error_type,
        "rpc.response.status_code": None if outcome.code is None else str(outcome.code),
        "gen_ai.operation.name": "execute_tool" if method == _TOOL else None,
        "gen_ai.tool.name": item if method == _TOOL else None,
        "gen_ai.prompt.name": item if method == _PROMPT else None,
        "mcp.resource.uri": item if method.startswith("resources/") else None,
        "workbench.toolbox": toolbox,
        "workbench.server": server,
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
