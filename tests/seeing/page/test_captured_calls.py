"""What is kept of calls is bounded, cut visibly, and without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.engine.config.page_settings import Capture
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.observe.call_record import CallRecord
from mcp_workbench.seeing.page import captured_calls
from mcp_workbench.seeing.page.captured_calls import MAX_CALLS, MAX_SIDE_BYTES, CapturedCalls

SECRET = "a-secret-of-the-configuration"


def record(id: int, arguments: Any = None, result: bytes = b"{}", principal: str = "ada") -> CallRecord:
    return CallRecord(
        id=id,
        at=0.0,
        arrived=0.0,
        principal=principal,
        client="",
        session=1,
        peer="",
        toolbox="box",
        server="one",
        method="tools/call",
        item="tool",
        params=json.dumps({"name": "tool", "arguments": arguments}).encode(),
        payload=(result[:3], result[3:]),
    )


def kept(capture: Capture, *records: CallRecord) -> CapturedCalls:
    calls = CapturedCalls(lambda: capture, Redactor([SECRET]).text)
    for each in records:
        calls.keep(each)
    return calls


def seen(calls: CapturedCalls, id: int) -> dict[str, Any]:
    found = calls.find(id, lambda principal: True)
    assert found is not None
    return found


def test_secrets_are_redacted_by_value_and_by_name() -> None:
    calls = kept("redacted", record(1), record(2, {"url": f"x/{SECRET}", "apiKey": "abc", "n": 7}, SECRET.encode()))
    found = seen(calls, 2)
    assert SECRET not in json.dumps(found) and "abc" not in found["arguments"] and '"n": 7' in found["arguments"]
    assert SECRET in seen(kept("full", record(2, {"url": SECRET})), 2)["arguments"]


def test_of_shapes_no_value_is_left() -> None:
    found = seen(kept("shape", record(1), record(2, {"text": "words", "list": [1, 2]})), 2)
    assert "words" not in found["arguments"] and "string of 5" in found["arguments"] and "2 items" in found["arguments"]


def test_with_none_there_is_no_content() -> None:
    found = seen(kept("none", record(1), record(2, {"text": "words"})), 2)
    assert found["arguments"] is None and found["result"] is None


def test_a_long_side_is_cut_visibly_and_a_secret_at_the_cut_is_not_halved() -> None:
    result = b"x" * (MAX_SIDE_BYTES - 10) + SECRET.encode() + b"y" * 100_000
    found = seen(kept("redacted", record(1), record(2, result=result)), 2)
    assert found["result"].endswith(f"(cut, {len(result):,} bytes)")
    assert SECRET[:10] not in found["result"] and len(found["result"]) < MAX_SIDE_BYTES + 100


def test_secrets_are_redacted_by_name_in_what_is_cut() -> None:
    arguments = {"path": "/a", "password": 'two"words', "login": {"apiKey": "hunter2"}, "text": "x" * MAX_SIDE_BYTES}
    found = seen(kept("redacted", record(1), record(2, arguments)), 2)
    assert "(cut, " in found["arguments"] and '"path": "/a"' in found["arguments"]
    assert not [each for each in ("two", "words", "hunter2") if each in found["arguments"]]


def test_a_secret_in_a_uri_is_redacted() -> None:
    read = record(2)
    read.method, read.item = "resources/read", f"https://example.test/{'x' * 170}/{SECRET}"
    assert "a-secret" not in kept("redacted", record(1), read).records(lambda principal: True)[1]["item"]


def test_the_oldest_go_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = kept("redacted", *(record(id) for id in range(MAX_CALLS + 1)))
    assert [each["id"] for each in calls.records(lambda principal: True)] == list(range(1, MAX_CALLS + 1))
    monkeypatch.setattr(captured_calls, "MAX_BYTES", 2500)
    calls = kept("redacted", *(record(id, result=b"x" * 1000) for id in range(4)))
    assert [each["id"] for each in calls.records(lambda principal: True)] == [2, 3]


def test_calls_of_others_are_not_found() -> None:
    calls = kept("redacted", record(1, principal="bob"), record(2, principal="ada"))
    assert calls.find(1, lambda principal: principal == "ada") is None
    assert [each["id"] for each in calls.records(lambda principal: principal == "ada")] == [2]
