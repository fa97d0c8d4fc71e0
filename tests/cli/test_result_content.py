from __future__ import annotations

import json
from typing import Any

from mcp_workbench.cli.result_content import ResultContent, asks_the_user


def read(**result: Any) -> ResultContent:
    return ResultContent(json.dumps(result).encode())


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_content_is_taken_apart_by_its_type() -> None:
    reading = read(
        content=[
            text("one"),
            {"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png"},
            {"type": "audio", "data": "YXVkaW8="},
            {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "a:c", "blob": "AAE="}},
            {"type": "resource_link", "uri": "a:d", "name": "d"},
            {"type": "hologram"},
            "nonsense",
        ]
    )
    assert reading.texts == ["one", "inside"]
    assert reading.links == [("a:d", "d")]
    assert reading.as_text() == "one\ninside\na:d"
    assert [str(binary) for binary in reading.binaries] == [
        "image (image/png, 5 bytes)",
        "audio (unknown type, 5 bytes)",
        "a:c (unknown type, 2 bytes)",
    ]
    assert reading.binaries[2].data == b"\x00\x01"
    assert len(reading.remarks) == 2
    assert not reading.is_error


def test_structured_content_is_shown_where_there_is_no_text() -> None:
    assert read(content=[], structuredContent={"a": "ü"}).as_text() == '{\n  "a": "ü"\n}'
    assert read(structuredContent=[]).as_text() == "[]"


def test_text_that_repeats_the_structured_content_is_left_out_where_other_text_says_it() -> None:
    repeated = text('{"a": 1}')
    assert read(content=[text("It is 1."), repeated], structuredContent={"a": 1}).texts == ["It is 1."]
    assert read(content=[repeated], structuredContent={"a": 1}).texts == ['{"a": 1}']
    assert read(content=[text("{broken"), repeated], structuredContent={"a": 1}).texts == ["{broken"]
    assert read(content=[text("It is 1."), repeated]).texts == ["It is 1.", '{"a": 1}']


def test_an_error_is_one_only_when_it_says_so() -> None:
    assert read(content=[], isError=True).is_error
    assert not read(content=[], isError="yes").is_error


def test_questions_of_a_modern_tool_are_read() -> None:
    asked = {"q": {"method": "elicitation/create", "params": {"message": "Your name?"}}, "r": {"method": "roots/list"}}
    reading = read(resultType="input_required", inputRequests=asked)
    assert reading.questions == ["elicitation/create: Your name?", "roots/list"]
    assert read(resultType="input_required").questions == ["something that it does not say"]
    assert read(resultType="complete").questions == []


def test_results_that_are_hard_to_read_are_read() -> None:
    assert ResultContent(b'{"content":[{"type":"text","text":"\\ud800"}]}').texts == ["\ud800"]
    assert ResultContent(b"[]").texts == []
    broken = read(content=[{"type": "image", "data": "a", "mimeType": "image/png"}])
    assert broken.binaries == []
    assert broken.remarks == ["image: its data is not base64; --raw shows it"]


def test_an_error_about_a_question_is_recognised() -> None:
    assert asks_the_user("the client does not support `elicitation/create`")
    assert not asks_the_user("division by zero")


def test_numbers_of_any_length_are_read() -> None:
    long = "9" * 5_000
    reading = ResultContent(b'{"structuredContent": {"n": %b, "m": 7}}' % long.encode())
    assert reading.structured == {"n": long, "m": 7}
    same = ResultContent(json.dumps({"content": [text('{"m": 7}')], "structuredContent": {"m": 7}}).encode())
    assert same.structured == {"m": 7}
