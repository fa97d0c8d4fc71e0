"""What models write as the arguments of the two tools is understood or refused, and nothing else happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from mcp_workbench.engine.face.identifier import BadIdentifier, ToolIdentifier, read_use_tool
from mcp_workbench.engine.face.open_request import MAX_SEARCH_HITS, BadRequest, OpenRequest, read_open_request


def read(**arguments: Any) -> OpenRequest:
    return read_open_request(Raw(json.dumps(arguments).encode()))


@pytest.mark.parametrize("raw", [None, Raw(b"null"), Raw(b"{}")])
def test_nothing_asks_for_the_index(raw: Raw | None) -> None:
    assert read_open_request(raw) == OpenRequest()


def test_a_budget_of_null_is_not_the_same_as_none_given() -> None:
    assert read().budget is UNSET
    assert read(budget=None).budget is None
    assert read(budget=500).budget == 500


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"toolbox": "dev"}, OpenRequest(toolbox_name="dev")),
        ({"toolbox": "dev", "toolbox_name": "ops"}, OpenRequest(toolbox_name="ops")),
        ({"query": "  read  "}, OpenRequest(query="read")),
        ({"query": "", "toolbox_name": "dev"}, OpenRequest(toolbox_name="dev")),
        ({"toolbox_name": "", "query": "read"}, OpenRequest(query="read")),
        ({"tools": "dev/read"}, OpenRequest(tools=("dev/read",))),
        ({"tools": None}, OpenRequest()),
        ({"tools": [{"server": "files", "name": "read"}]}, OpenRequest(tools=("files/read",))),
        ({"limit": 500}, OpenRequest(limit=MAX_SEARCH_HITS)),
        ({"max_tokens": 500}, OpenRequest(budget=500)),
    ],
)
def test_variants_of_a_selection_are_understood(given: dict[str, Any], meant: OpenRequest) -> None:
    assert read(**given) == meant


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [*OpenRequest.__struct_fields__, "toolbox", "server", "tool", "arguments", "max_tokens", "other"]
)


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=5))
def test_any_arguments_of_open_toolbox_are_understood_or_refused(given: Any) -> None:
    try:
        request = read_open_request(Raw(json.dumps(given).encode()))
    except BadRequest:
        return
    assert isinstance(request, OpenRequest)
    assert request.limit is None or 1 <= request.limit <= MAX_SEARCH_HITS


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=5))
def test_any_arguments_of_use_tool_are_understood_or_refused(given: Any) -> None:
    try:
        call = read_use_tool(Raw(json.dumps(given).encode()))
    except BadIdentifier:
        return
    assert isinstance(call.tool, str | ToolIdentifier)
    assert isinstance(json.loads(bytes(call.arguments)), dict)
    assert call.max_tokens >= 0
