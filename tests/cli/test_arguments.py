from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cli.arguments import read_arguments, read_json, unexpected
from mcp_workbench.cli.flags import UsageError

SCHEMA: dict[str, Any] = {
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "number"}},
        "filter": {"type": "object"},
        "level": {"enum": ["low", "high", 3, None]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "anything": {},
        "node": {"$ref": "#/$defs/size"},
    },
    "$defs": {"size": {"type": "integer"}},
}


def read(*words: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_arguments(words, {**SCHEMA, **more}))
    return found


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=hello", "hello"),
        ("text=5", "5"),
        ("text=true", "true"),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("text= spaces ", " spaces "),
        ("count=5", 5),
        ("count=-5", -5),
        ("ratio=2", 2),
        ("ratio=-1.5e3", -1500.0),
        ("deep=true", True),
        ("deep=No", False),
        ("deep=1", True),
        ("tags=one", ["one"]),
        ('tags=["one", "two"]', ["one", "two"]),
        ("numbers=1.5", [1.5]),
        ('filter={"a": [1]}', {"a": [1]}),
        ("level=high", "high"),
        ("level=3", 3),
        ("level=null", None),
        ("maybe=4", 4),
        ("maybe=null", None),
        ("either=7", 7),
        ("either=seven", "seven"),
        ("anything=7", "7"),
        ("unknown=7", "7"),
        ("node=9", 9),
        ("text:=7", 7),
        ('anything:={"a": null}', {"a": None}),
        ("tags:=[]", []),
    ],
)
def test_a_value_gets_the_type_that_the_schema_says(word: str, value: object) -> None:
    key = word.partition("=")[0].rstrip(":")
    assert read(word) == {key: value}


def test_a_key_that_is_repeated_makes_a_list() -> None:
    assert read("tags=a", "text=x", "tags=b") == {"tags": ["a", "b"], "text": "x"}
    assert read("numbers=1", "numbers:=2.5") == {"numbers": [1, 2.5]}


def test_numbers_keep_the_digits_that_were_typed() -> None:
    written = read_arguments(["count=123456789012345678901234567890", "ratio=0.10000000000000000001"], SCHEMA)
    assert written == b'{"count":123456789012345678901234567890,"ratio":0.10000000000000000001}'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["count=five"], "`count` must be of type integer, found `five`"),
        (["count=1.5"], "`count` must be of type integer, found `1.5`"),
        (["count=007"], "`count` must be of type integer, found `007`"),
        (["ratio=nan"], "`ratio` must be of type number, found `nan`"),
        (["deep=maybe"], "`deep` must be of type boolean, found `maybe`"),
        (["numbers=x"], "`numbers` must be of type number, found `x`"),
        (["numbers=[1"], "`numbers` must be of type number[], found `[1`"),
        (["filter=[]"], "`filter` must be of type object, found `[]`"),
        (["level=middle"], "`level` takes one of `low`, `high`, `3`, `null`, found `middle`"),
        (["text=a", "text=b"], "`text` is given 2 times and takes one value"),
        (["text"], "`text` is not key=value"),
        (["=value"], "`=value` is not key=value"),
        ([":=1"], "`:=1` is not key=value"),
    ],
)
def test_unsuitable_value_is_refused_with_the_accepted_ones(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(*words)
    assert str(raised.value) == message


def test_json_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="text:= is not JSON: "):
        read("text:={")


def test_missing_arguments_are_named_with_their_types() -> None:
    with pytest.raises(UsageError) as raised:
        read("text=x", required=["text", "count", "level"])
    assert str(raised.value) == 'missing: `count` (integer), `level` ("low"|"high"|3|null)'


def test_an_unknown_argument_is_refused_where_the_schema_forbids_it_and_pointed_out_where_not() -> None:
    with pytest.raises(UsageError, match="the tool has no argument `txet`; did you mean `text`"):
        read("txet=x", additionalProperties=False)
    assert read("txet=x") == {"txet": "x"}
    assert unexpected(["txet=x", "text=y"], SCHEMA) == ["the tool has no argument `txet`; did you mean `text`?"]
    assert unexpected(["qqqq=x"], {"properties": {"a": {}}}) == ["the tool has no argument `qqqq`; it takes `a`."]
    assert unexpected(["any=x"], {}) == []


def test_all_arguments_as_json_go_out_as_they_were_written() -> None:
    written = '{"count": 12345678901234567890123,\n "ratio": 1.0}'
    assert read_json(written) == written.encode()
    with pytest.raises(UsageError, match="--json takes an object, found array"):
        read_json("[1]")
    with pytest.raises(UsageError, match="--json is not JSON"):
        read_json("{a: 1}")


@given(st.text(), st.sampled_from(["text", "anything", "unknown"]))
def test_text_arrives_letter_by_letter(value: str, key: str) -> None:
    if value.isprintable():
        assert read(f"{key}={value}") == {key: value}


@given(st.integers())
def test_every_integer_arrives(value: int) -> None:
    assert read(f"count={value}") == {"count": value}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_arrives(value: float) -> None:
    assert read(f"ratio={value}") == {"ratio": value}


@given(st.text(max_size=20), st.sampled_from(sorted(SCHEMA["properties"])))
def test_any_value_for_any_type_is_taken_or_refused_in_words(value: str, key: str) -> None:
    for word in (f"{key}={value}", f"{key}:={value}"):
        with suppress(UsageError):
            assert list(read(word)) == [key]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="is not UTF-8"):
        read("text=\udcff")
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_json('{"a": "\udcff"}')
