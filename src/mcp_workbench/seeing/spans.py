"""Spans of finished calls, by OpenTelemetry's conventions for MCP (of 1.41, in development), encoded as OTLP in JSON.

Functions of values, run in the thread that sends them. One call gives two spans: that of the client's request to us
(`SERVER`), and its child, our request to the server (`CLIENT`), if it was sent. Names of spans never contain a URI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR

SCOPE: Final = "mcp-workbench"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"
# Of the value of an attribute: names come from clients.
MAX_VALUE: Final = 1024
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
    # When it was held, began to wait, was sent.
    events: tuple[tuple[int, str], ...]


def encode_spans(calls: Iterable[TracedCall], resource: Mapping[str, str], version: str) -> bytes:
    """The body of one request to the collector."""
    spans = [span for call in calls for span in spans_of(call)]
    scope = {"scope": {"name": SCOPE, "version": version}, "schemaUrl": SCHEMA_URL, "spans": spans}
    return encode({"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]})


def spans_of(call: TracedCall) -> list[dict[str, Any]]:
    served = {
        **_common(call, call.outcome),
        "jsonrpc.request.id": _request_id(call.request_id),
        "mcp.protocol.version": call.version,
        **_peer(call.peer),
        "workbench.rule": call.rule,
    }
    remote = _KNOWN_WHERE | (0 if call.parent_id is None else _ELSEWHERE)
    spans = [_span(call, call.span_id, call.parent_id, remote, _SERVER, call.arrived, served, call.outcome)]
    if call.events:
        spans[0]["events"] = [{"timeUnixNano": str(at), "name": name} for at, name in call.events]
    if call.sent is not None:
        sent = {
            **_common(call, call.server_outcome),
            "jsonrpc.request.id": str(call.wire_id) if call.wire_id else "",
            "mcp.protocol.version": call.server_version,
            **_destination(call.url),
        }
        spans.append(
            _span(call, call.client_span_id, call.span_id, _KNOWN_WHERE, _CLIENT, call.sent, sent, call.server_outcome)
        )
    return spans


def _span(
    call: TracedCall,
    id: int,
    parent: int | None,
    where: int,
    kind: int,
    started: int,
    attributes: Mapping[str, str | int | None],
    outcome: CallOutcome,
) -> dict[str, Any]:
    name = f"{call.method} {call.item}" if call.method in (_TOOL, _PROMPT) and call.item else call.method
    span: dict[str, Any] = {
        "traceId": f"{call.trace_id:032x}",
        "spanId": f"{id:016x}",
        "name": name[:MAX_VALUE],
        "kind": kind,
        "startTimeUnixNano": str(started),
        # Clocks are read at different times.
        "endTimeUnixNano": str(max(started, call.ended)),
        "flags": call.flags | where,
        "attributes": _attributes(attributes),
    }
    if parent is not None:
        span["parentSpanId"] = f"{parent:016x}"
    if call.state:
        span["traceState"] = call.state
    if is_error(outcome, kind == _SERVER):
        span["status"] = {"code": _ERROR}
    return span


def is_error(outcome: CallOutcome, is_server: bool) -> bool:
    """Whether a span has the status of an error. Whoever serves a request has not failed if the request was wrong, or
    was withdrawn."""
    if not is_server or not outcome.error_type:
        return bool(outcome.error_type)
    if outcome.code is not None:
        return outcome.code == INTERNAL_ERROR or outcome.code in _SERVER_ERRORS
    return outcome.error_type not in ("cancelled", "refused")


def _common(call: TracedCall, outcome: CallOutcome) -> dict[str, str | int | None]:
    method = call.method
    return {
        "mcp.method.name": method,
        "error.type": outcome.error_type,
        "rpc.response.status_code": None if outcome.code is None else str(outcome.code),
        "gen_ai.operation.name": "execute_tool" if method == _TOOL else None,
        "gen_ai.tool.name": call.item if method == _TOOL else None,
        "gen_ai.prompt.name": call.item if method == _PROMPT else None,
        "mcp.resource.uri": call.item if method.startswith("resources/") else None,
        "workbench.call.id": call.id,
        "workbench.toolbox": call.toolbox,
        "workbench.server": call.server,
    }


def _request_id(id: bytes) -> str:
    try:
        return str(decode(id))
    except DecodeError:
        return ""


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


def _attributes(values: Mapping[str, str | int | None]) -> Sequence[dict[str, Any]]:
    """Those that have a value."""
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value[:MAX_VALUE]},
        }
        for key, value in values.items()
        if value is not None and value != ""
    ]
