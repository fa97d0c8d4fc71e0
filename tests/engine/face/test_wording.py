"""The words for what went wrong: where, what, and what to do next."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from msgspec import Raw

from mcp_workbench.engine.face.wording import (
    CHANGED_META,
    ERROR_META,
    MAX_LISTED_NAMES,
    error_result,
    failure_text,
    no_such,
    with_notice,
)
from mcp_workbench.engine.jsonrpc.messages import read_error
from mcp_workbench.errors import DownstreamError


def test_an_error_is_a_result_that_a_model_can_read() -> None:
    result = json.loads(error_result("something\nwent “wrong”"))
    assert result == {"content": [{"type": "text", "text": "something\nwent “wrong”"}], "isError": True}


def test_the_error_of_a_server_is_kept_whole() -> None:
    error = {"code": -32603, "message": "m", "data": {"a": [1, None], "n": 1.5}}
    result = json.loads(error_result("text", read_error(json.dumps(error).encode())))
    assert result["_meta"] == {ERROR_META: error}


def test_failure_names_its_place_and_remedy() -> None:
    assert failure_text(DownstreamError("it broke"), "box/server/tool") == "[box/server/tool] it broke"
    assert failure_text(DownstreamError("it broke", hint="mend it"), "box") == "[box] it broke\nhint: mend it"
    assert failure_text(DownstreamError("it broke", hint="mend it")) == "it broke\nhint: mend it"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("dve", ["dev", "docs"], "toolbox `dve` does not exist; did you mean `dev`?"),
        ("Dev", ["dev"], "toolbox `Dev` does not exist; did you mean `dev`?"),
        ("xyz", ["dev", "docs"], "toolbox `xyz` does not exist; available: `dev`, `docs`"),
        ("x", [], "toolbox `x` does not exist; none are available"),
        ("", ["dev"], "toolbox `` does not exist; available: `dev`"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(name: str, known: list[str], expected: str) -> None:
    assert no_such("toolbox", name, known) == expected


def test_many_names_and_long_names_are_cut() -> None:
    known = [f"{number:04}" for number in range(1000)]
    text = no_such("tool", "zzz" * 1000, known, " on server `s`")
    assert f"and {1000 - MAX_LISTED_NAMES} more" in text
    assert len(text) < 600


@pytest.mark.parametrize("content", ["[]", "[ \n]", '[{"type":"text","text":"a"}, {"type":"text","text":"b"}]'])
def test_a_notice_is_a_line_after_the_servers_own(content: str) -> None:
    written = f'{{"content": {content}, "x": 1.50, "_meta": {{"a": 1}}}}'.encode()
    result = json.loads(bytes(with_notice(Raw(written), {"desk": "changed"})))
    *own, note = result["content"]
    assert own == json.loads(content) and "tools of desk have changed" in note["text"]
    assert result["_meta"] == {"a": 1, CHANGED_META: ["desk"]} and result["x"] == 1.5


@pytest.mark.parametrize("content", ["5", "null", '"text"', '{"a": []}'])
def test_content_that_is_no_list_stays_as_it_is(content: str) -> None:
    result = json.loads(bytes(with_notice(Raw(f'{{"content": {content}}}'.encode()), {"desk": "changed"})))
    assert result == {"content": json.loads(content), "_meta": {CHANGED_META: ["desk"]}}


def test_a_notice_copies_a_large_result_once() -> None:
    result = Raw(b'{"content": [{"type": "text", "text": "%b"}]}' % (b"x" * (1 << 22)))
    tracemalloc.start()
    try:
        with_notice(result, {"desk": "changed"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * (1 << 22)
