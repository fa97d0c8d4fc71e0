"""Spans as OpenTelemetry's own definitions read them, also with names that clients make up."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mcp_workbench.seeing.spans import MAX_VALUE, CallOutcome, encode_spans, is_error
from mcp_workbench.seeing.trace_context import TraceContext
from tests.seeing.collector import attributes_of, decoded
from tests.seeing.test_span_sender import SUBJECT, finished

PARENT = TraceContext(5, 6, 1, "a=1")
HOSTILE = 'a"b\\c\n\u2028\x00{%b}'


def spans(**changed: Any) -> list[Any]:
    about = {name: changed.pop(name) for name in SUBJECT.__struct_fields__ if name in changed}
    call = replace(finished(), subject=replace(SUBJECT, served_well=b"", sent_well=b"", **about), **changed)
    (resource,) = decoded(encode_spans([finished(), call], {}, "1")).resource_spans
    (scope,) = resource.scope_spans
    found: list[Any] = list(scope.spans)[2:]
    return found


def test_hostile_names_stay_names() -> None:
    ours, sent = spans(item=HOSTILE, toolbox=HOSTILE, server=HOSTILE, peer=HOSTILE, rule=HOSTILE, parent=PARENT)
    for span in (ours, sent):
        found = attributes_of(span)
        assert found["gen_ai.tool.name"] == found["workbench.toolbox"] == found["workbench.server"] == HOSTILE
        assert span.name == f"tools/call {HOSTILE}"


@pytest.mark.parametrize(
    ("written", "read"),
    [(b"7", "7"), (b'"a\\"b"', 'a"b'), ('"ü"'.encode(), "ü"), (b'"\xff"', "\ufffd"), (b'"' + b"x" * 2000 + b'"', "")],
)
def test_id_of_a_request_is_the_clients(written: bytes, read: str) -> None:
    assert attributes_of(spans(request_id=written)[0])["jsonrpc.request.id"] == read


def test_text_that_utf8_cannot_hold_is_replaced_and_long_text_is_cut() -> None:
    ours, _ = spans(item="\ud800" + "x" * 5000)
    assert attributes_of(ours)["gen_ai.tool.name"] == "?" + "x" * (MAX_VALUE - 1) and len(ours.name) == MAX_VALUE


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("stdio", {"network.transport": "pipe"}),
        ("process 12", {"network.transport": "unix"}),
        ("uid:1000", {"network.transport": "unix"}),
        ("10.0.0.7", {"network.transport": "tcp", "network.protocol.name": "http", "client.address": "10.0.0.7"}),
        ("::1", {"network.transport": "tcp", "network.protocol.name": "http", "client.address": "::1"}),
        ("page", {}),
        ("", {}),
    ],
)
def test_span_of_a_request_says_where_it_comes_from(peer: str, expected: dict[str, str]) -> None:
    found = attributes_of(spans(peer=peer)[0])
    assert {key: value for key, value in found.items() if key.startswith(("network.", "client."))} == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (None, {"network.transport": "pipe"}),
        ("https://me:pass@mcp.example.com/mcp?key=secret", {"server.address": "mcp.example.com", "server.port": 443}),
        ("http://[::1]:8420/mcp", {"server.address": "::1", "server.port": 8420}),
    ],
)
def test_span_to_a_server_says_where_that_is(url: str | None, expected: dict[str, Any]) -> None:
    found = attributes_of(spans(url=url)[1])
    assert found | expected == found and "secret" not in str(found) and "pass" not in str(found)
    assert found["network.transport"] == ("pipe" if url is None else "tcp")


@pytest.mark.parametrize(
    ("outcome", "of_server", "of_client"),
    [
        (CallOutcome(), False, False),
        (CallOutcome("tool_error"), True, True),
        (CallOutcome("timeout"), True, True),
        (CallOutcome("cancelled"), False, True),
        (CallOutcome("refused"), False, True),
        (CallOutcome("-32601", -32601), False, True),
        (CallOutcome("-32603", -32603), True, True),
        (CallOutcome("-31999", -31999), False, True),
        (CallOutcome("-32000", -32000), True, True),
        (CallOutcome("-32099", -32099), True, True),
        (CallOutcome("-32100", -32100), False, True),
    ],
)
def test_server_fails_by_its_own_fault_and_client_by_any(
    outcome: CallOutcome, of_server: bool, of_client: bool
) -> None:
    assert (is_error(outcome, is_server=True), is_error(outcome, is_server=False)) == (of_server, of_client)


def test_parent_of_another_process_is_marked_as_such() -> None:
    ours, sent = spans(parent=TraceContext(5, 9, 1))
    assert (ours.flags, sent.flags) == (0x301, 0x101) and ours.parent_span_id.hex() == "0000000000000009"
    ours, _ = spans(parent=None)
    assert (ours.flags, ours.parent_span_id) == (0x101, b"")
