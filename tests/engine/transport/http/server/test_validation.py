"""The headers of a modern request have to agree with its body, also if the same head has agreed with another body."""

from __future__ import annotations

import json

import pytest

from mcp_workbench.engine.transport.http.header_parameters import HeaderParameters, read_annotations
from mcp_workbench.engine.transport.http.message_summary import MessageSummary, summarise
from mcp_workbench.engine.transport.http.server.request_head import RequestHead
from mcp_workbench.engine.transport.http.server.validation import has_agreed, mismatch

VERSION = "2026-07-28"


def head() -> RequestHead:
    found = RequestHead("POST", "/mcp")
    found.headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "echo"}
    return found


def summary(method: str = "tools/call", name: str = '"echo"', version: str = VERSION) -> MessageSummary:
    stamp = json.dumps({"io.modelcontextprotocol/protocolVersion": version})
    return summarise(
        f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":{name},"_meta":{stamp}}}}}'.encode()
    )


@pytest.mark.parametrize(
    "other",
    [summary(name='"drop"'), summary(name='"echo "'), summary(version="2027-01-01"), summary(method="prompts/get")],
    ids=["another tool", "a longer name", "another revision", "another method"],
)
def test_a_head_that_has_agreed_is_compared_with_every_other_body(other: MessageSummary) -> None:
    same = head()
    for _ in range(2):
        assert mismatch(same, summary(), None) is None
        found = mismatch(same, other, None)
        assert found is not None and "does not match" in found


def test_another_spelling_of_the_same_name_agrees() -> None:
    same = head()
    for name in ('"echo"', '"\\u0065cho"', '"echo"'):
        assert mismatch(same, summary(name=name), None) is None


def test_parameters_are_compared_with_every_call_of_a_head_that_has_agreed() -> None:
    same, mirrored = head(), {"type": "object", "properties": {"place": {"type": "string", "x-mcp-header": "Place"}}}
    known: list[HeaderParameters | None] = [None]
    assert mismatch(same, summary(), lambda tool, principal: known[0]) is None
    known[0] = read_annotations(mirrored)
    same.parameters = {"mcp-param-place": ["elsewhere"]}
    assert mismatch(same, summary(), lambda tool, principal: known[0]) is not None


def test_a_call_agrees_for_certain_only_if_it_is_the_last_one_and_mirrors_nothing() -> None:
    same, call = head(), summary()
    assert call.params is not None
    assert not has_agreed(same, VERSION, call.params, None), "it was compared with nothing yet"
    assert not has_agreed(same, None, {}, None)
    assert mismatch(same, call, None) is None
    assert has_agreed(same, VERSION, call.params, None)
    assert has_agreed(same, VERSION, call.params, lambda tool, principal: None)
    mirrored = read_annotations({"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}})
    assert not has_agreed(same, VERSION, call.params, lambda tool, principal: mirrored)
    assert not has_agreed(same, "2027-01-01", call.params, None)
    assert not has_agreed(same, VERSION, summary(name='"drop"').params or {}, None)
