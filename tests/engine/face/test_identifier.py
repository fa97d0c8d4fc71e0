"""What `use_tool` is asked to call: right in its canonical form, understood in its usual mistakes, else explained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcp_workbench.engine.face.identifier import BadIdentifier, ToolIdentifier, UseTool, read_use_tool

IDENTITY = {"toolbox": "box", "server": "srv", "tool": "run"}
PARTS = ToolIdentifier("box", "srv", "run")

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


def read(given: Any) -> UseTool:
    return read_use_tool(Raw(json.dumps(given).encode()))


def refused(given: Any) -> str:
    with pytest.raises(BadIdentifier) as caught:
        read(given)
    return str(caught.value)


@pytest.mark.requirement("proxy.identity")
def test_the_canonical_form_is_read_without_touching_the_arguments() -> None:
    written = b'{"tool":{"toolbox":"box","server":"srv","tool":"run"},"arguments":{ "a":1.10,"a":1e400,"b":"\\u00e9"}}'
    call = read_use_tool(Raw(written))
    assert call.tool == PARTS
    assert bytes(call.arguments) == b'{ "a":1.10,"a":1e400,"b":"\\u00e9"}'


@pytest.mark.parametrize(
    "given",
    [
        {"tool": IDENTITY, "arguments": {"n": 1}},
        {"arguments": {"n": 1}, "tool": {**IDENTITY, "extra": True}, "more": [1]},
        {**IDENTITY, "arguments": {"n": 1}},
        {"tool": IDENTITY, "arguments": '{"n": 1}'},
        {**IDENTITY, "arguments": '{"n": 1}'},
    ],
)
def test_the_usual_mistakes_are_understood(given: Any) -> None:
    call = read(given)
    assert call.tool == PARTS
    assert json.loads(bytes(call.arguments)) == {"n": 1}


@pytest.mark.parametrize(
    "arguments", [{}, {"arguments": None}, {"arguments": {}}, {"arguments": "{}"}, {"arguments": "null"}]
)
def test_no_arguments_are_an_empty_object(arguments: dict[str, Any]) -> None:
    for identity in ({"tool": IDENTITY}, IDENTITY):
        assert bytes(read({**identity, **arguments}).arguments) == b"{}"


def test_paths_are_kept_whole_for_the_catalogue() -> None:
    assert read({"tool": "box/srv/run", "arguments": {"n": 1}}).tool == "box/srv/run"
    assert read({"tool": "with/many/slashes/in/it"}).tool == "with/many/slashes/in/it"
    assert read({"tool": "run"}).tool == "run"


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({}, ("", "", "")),
        ({"tool": {}}, ("", "", "")),
        ({"tool": ""}, ("", "", "")),
        ({"tool": 5}, ("", "", "")),
        ({"tool": {"toolbox": "box"}}, ("box", "", "")),
        ({"tool": {"toolbox": "box", "tool": "run"}}, ("box", "", "run")),
        ({"tool": {"server": "srv", "tool": "run"}}, ("", "srv", "run")),
        ({"tool": {**IDENTITY, "toolbox": 5}}, ("", "srv", "run")),
        ({"tool": {**IDENTITY, "tool": None}}, ("box", "srv", "")),
        ({"tool": {**IDENTITY, "server": ""}}, ("box", "", "run")),
        ({**IDENTITY, "tool": ""}, ("box", "srv", "")),
        ({"toolbox": "box", "tool": "srv/run"}, ("box", "", "srv/run")),
        ({"server": "srv", "tool": "box/srv/run"}, ("", "srv", "box/srv/run")),
    ],
)
def test_a_part_that_is_missing_is_never_made_up(given: Any, parts: tuple[str, str, str]) -> None:
    assert read(given).tool == ToolIdentifier(*parts)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_arguments_mean_the_same_in_every_form(arguments: dict[str, Any]) -> None:
    for form in (
        {"tool": IDENTITY, "arguments": arguments},
        {**IDENTITY, "arguments": arguments},
        {"tool": IDENTITY, "arguments": json.dumps(arguments)},
    ):
        call = read(form)
        assert call.tool == PARTS
        assert json.loads(bytes(call.arguments)) == arguments


@pytest.mark.requirement("proxy.identity")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "object"),
        ("box", "object"),
        (5, "object"),
        ({"tool": IDENTITY, "arguments": []}, "`arguments`"),
        ({"tool": IDENTITY, "arguments": 5}, "`arguments`"),
        ({"tool": IDENTITY, "arguments": "not JSON"}, "`arguments`"),
        ({"tool": IDENTITY, "arguments": "[1]"}, "`arguments`"),
        ({"tool": IDENTITY, "max_tokens": -1}, "`max_tokens`"),
    ],
)
def test_invalid_identifier_is_refused_with_the_expected_form(given: Any, named: str) -> None:
    text = refused(given)
    assert named in text
    assert '"toolbox"' in text or "max_tokens" in text


def test_missing_arguments_are_refused_with_the_expected_form() -> None:
    with pytest.raises(BadIdentifier):
        read_use_tool(None)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_bad_identifier(data: bytes) -> None:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        read_use_tool(Raw(data))
    except BadIdentifier:
        pass


@given(
    st.dictionaries(
        st.sampled_from(["tool", "toolbox", "server", "arguments", "max_tokens", "other"]),
        values | st.just(IDENTITY) | st.just("a/b/c"),
    )
)
def test_no_object_raises_anything_but_a_bad_identifier(given_object: dict[str, Any]) -> None:
    try:
        call = read(given_object)
    except BadIdentifier:
        return
    assert bytes(call.arguments).startswith(b"{")


@pytest.mark.parametrize("arguments", [b"1e400", b"-1e999"])
def test_a_number_beyond_all_measure_is_no_object(arguments: bytes) -> None:
    with pytest.raises(BadIdentifier, match="`arguments` must be an object"):
        read_use_tool(Raw(b'{"tool":"box/srv/run","arguments":%b}' % arguments))


@pytest.mark.parametrize(
    "given",
    [
        {"tool": "box/srv/run", "n": 1, "deep": {"a": [1]}},
        {"tool": IDENTITY, "n": 1, "arguments": {}, "deep": {"a": [1]}, "max_tokens": 300, "_meta": {}},
        {**IDENTITY, "n": 1, "deep": {"a": [1]}, "arguments": None},
    ],
)
def test_arguments_beside_the_identifier_are_accepted(given: Any) -> None:
    assert json.loads(bytes(read(given).arguments)) == {"n": 1, "deep": {"a": [1]}}


def test_arguments_beside_are_passed_on_as_they_were_written() -> None:
    call = read_use_tool(Raw(b'{"tool":"box/srv/run","a": 1.10,"b":1e400}'))
    assert bytes(call.arguments) == b'{"a":1.10,"b":1e400}'
