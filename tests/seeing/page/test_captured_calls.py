"""What is kept of calls is bounded, cut visibly, and without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from mcp_workbench.engine.config.page_settings import Capture
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.jsonrpc.messages import LargeBody
from mcp_workbench.engine.observe.ended_calls import EndedCall
from mcp_workbench.engine.observe.shown_calls import CallDescriber
from mcp_workbench.engine.steps import GuardedRequest, UncheckedPassage
from mcp_workbench.seeing.page import captured_calls
from mcp_workbench.seeing.page.captured_calls import MAX_CALLS, MAX_SIDE_BYTES, CapturedCalls

SECRET = "a-secret-of-the-configuration"


def ended_call(
    id: int,
    arguments: Any = None,
    result: bytes = b"{}",
    principal: str = "ada",
    *,
    method: str = "tools/call",
    item: str = "tool",
) -> EndedCall:
    body = json.dumps({"name": "tool", "arguments": arguments}).encode()[:-1]
    passage = running_call(id, principal, body, method=method, item=item)
    return passage, "result", "ok", (result[:3], result[3:]), len(result), 1.0


def running_call(
    id: int, principal: str = "ada", body: bytes = b"{", *, method: str = "tools/call", item: str = "tool"
) -> UncheckedPassage:
    origin = GuardedRequest(
        principal=principal,
        client=b"{}",
        session=1,
        body=b"",
        toolbox="box",
        server="one",
        method=method,
        item=item,
    )
    return UncheckedPassage(None, None, origin, body, None, 0.5, id=id)


def kept(capture: Capture, *calls: EndedCall) -> CapturedCalls:
    redact = Redactor([SECRET]).text
    found, describer = CapturedCalls(lambda: capture, redact), CallDescriber(redact)
    for each in calls:
        found.keep([each], [describer.ended(each)])
    return found


def records(calls: CapturedCalls) -> list[dict[str, Any]]:
    return [to_builtins(call) for _, call in calls.shown()]


def seen(calls: CapturedCalls, id: int) -> dict[str, Any]:
    found = calls.find(id, lambda principal: True)
    assert found is not None
    return found


def test_secrets_are_redacted_by_value_and_by_name() -> None:
    calls = kept(
        "redacted", ended_call(1), ended_call(2, {"url": f"x/{SECRET}", "apiKey": "abc", "n": 7}, SECRET.encode())
    )
    found = seen(calls, 2)
    assert SECRET not in json.dumps(found) and "abc" not in found["arguments"] and '"n": 7' in found["arguments"]
    assert SECRET in seen(kept("full", ended_call(2, {"url": SECRET})), 2)["arguments"]


def test_of_shapes_no_value_is_left() -> None:
    found = seen(kept("shape", ended_call(1), ended_call(2, {"text": "words", "list": [1, 2]})), 2)
    assert "words" not in found["arguments"] and "string of 5" in found["arguments"] and "2 items" in found["arguments"]


def test_with_none_there_is_no_content() -> None:
    found = seen(kept("none", ended_call(1), ended_call(2, {"text": "words"})), 2)
    assert found["arguments"] is None and found["result"] is None


def test_a_long_side_is_cut_visibly_and_a_secret_at_the_cut_is_not_halved() -> None:
    result = b"x" * (MAX_SIDE_BYTES - 10) + SECRET.encode() + b"y" * 100_000
    found = seen(kept("redacted", ended_call(1), ended_call(2, result=result)), 2)
    assert found["result"].endswith(f"(cut, {len(result):,} bytes)")
    assert SECRET[:10] not in found["result"] and len(found["result"]) < MAX_SIDE_BYTES + 100


def test_arguments_in_several_parts_are_kept_up_to_the_same_size() -> None:
    large = ended_call(1)
    passage = large[0]
    assert isinstance(passage, UncheckedPassage)
    passage.body = LargeBody((b'{"arguments":{"n":', b"7}"))
    assert '"n": 7' in seen(kept("redacted", large), 1)["arguments"]
    passage.body = LargeBody((b'{"arguments":"', memoryview(b"x" * 1_000_000), b'"'))
    calls = kept("redacted", large)
    assert calls._bytes < MAX_SIDE_BYTES + 5000 and "(cut, 1,000,0" in seen(calls, 1)["arguments"]


def test_arguments_that_a_call_has_not_are_not_shown() -> None:
    for body, whether in ((b"{", "none"), (b'{"name":"now"', "whole")):
        refused = ended_call(1)
        passage = refused[0]
        assert isinstance(passage, UncheckedPassage)
        passage.body = body
        found = seen(kept("redacted", refused), 1)
        assert (found["arguments"], found["kept"]) == (None, whether)


def test_secrets_are_redacted_by_name_in_cut_text() -> None:
    arguments = {"path": "/a", "password": 'two"words', "login": {"apiKey": "hunter2"}, "text": "x" * MAX_SIDE_BYTES}
    found = seen(kept("redacted", ended_call(1), ended_call(2, arguments)), 2)
    assert "(cut, " in found["arguments"] and '"path": "/a"' in found["arguments"]
    assert not [each for each in ("two", "words", "hunter2") if each in found["arguments"]]


def test_a_secret_in_a_uri_is_redacted() -> None:
    read = ended_call(2, method="resources/read", item=f"https://example.test/{'x' * 170}/{SECRET}")
    assert "a-secret" not in records(kept("redacted", ended_call(1), read))[1]["item"]


def test_the_oldest_go_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = kept("redacted", *(ended_call(id) for id in range(MAX_CALLS + 1)))
    assert [each["id"] for each in records(calls)] == list(range(1, MAX_CALLS + 1))
    monkeypatch.setattr(captured_calls, "MAX_CAPTURED_BYTES", 2500)
    calls = kept("redacted", *(ended_call(id, result=b"x" * 1000) for id in range(4)))
    assert [each["id"] for each in records(calls)] == [2, 3]


def test_calls_of_others_are_not_found() -> None:
    calls = kept("redacted", ended_call(1, principal="bob"), ended_call(2, principal="ada"))
    assert calls.find(1, lambda principal: principal == "ada") is None
    assert calls.find(2, lambda principal: principal == "ada") is not None
    assert [principal for principal, _ in calls.shown()] == ["bob", "ada"]


@pytest.mark.parametrize(
    ("capture", "arguments", "how"),
    [
        ("redacted", {"a": [1, "***"]}, "whole"),
        ("redacted", {"password": "x"}, "masked"),
        ("redacted", {"note": f"it is {SECRET}"}, "masked"),
        ("redacted", {"text": "x" * MAX_SIDE_BYTES}, "cut"),
        ("redacted", {"deep": json.loads("[" * 40 + "]" * 40)}, "cut"),
        ("full", {"password": "x"}, "whole"),
        ("full", {"text": "x" * MAX_SIDE_BYTES}, "cut"),
        ("shape", {"a": 1}, "shape"),
        ("none", {"a": 1}, "none"),
    ],
)
def test_size_of_arguments_is_shown_to_their_reader(capture: Capture, arguments: Any, how: str) -> None:
    call = ended_call(1, arguments)
    calls = kept(capture, call)
    found = seen(calls, 1)

    assert found["kept"] == how
    running = calls.running(call[0], CallDescriber(str).running(call[0])[1])
    assert (running["arguments"], running["kept"]) == (found["arguments"], how)
    assert running["result"] is None
