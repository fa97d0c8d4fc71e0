"""Questions of servers, at the terminal and without one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.cli.elicitation import (
    CANCEL_ANSWER,
    DECLINE_ANSWER,
    TerminalAsker,
    WrongAnswer,
    choices,
    expected,
    field_value,
)
from mcp_workbench.engine.jsonrpc.messages import encode
from mcp_workbench.team.policy.approval_question import question


@pytest.mark.parametrize(
    ("typed", "about", "value"),
    [
        ("Ada", {"type": "string"}, "Ada"),
        (" spaced ", {"type": "string"}, " spaced "),
        ("7", {"type": "integer"}, 7),
        ("7.5", {"type": "number"}, 7.5),
        ("Y", {"type": "boolean"}, True),
        ("no", {"type": "boolean"}, False),
        ("red", {"type": "string", "enum": ["red", "green"]}, "red"),
        ("b", {"oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}, "b"),
        ("bee", {"enum": ["a", "b"], "enumNames": ["Ay", "Bee"]}, "b"),
        ("a, b", {"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a", "b"]),
        ("a@b", {"type": "string", "format": "email"}, "a@b"),
        ("urn:x", {"type": "string", "format": "uri"}, "urn:x"),
        ("2026-01-31", {"type": "string", "format": "date"}, "2026-01-31"),
        ("2026-01-31T09:30:00Z", {"type": "string", "format": "date-time"}, "2026-01-31T09:30:00Z"),
        ("anything", {"type": "string", "format": "hostname"}, "anything"),
        ("", {"type": "string", "default": "x"}, "x"),
        ("", {"type": "boolean", "default": False}, False),
        ("", {"type": "string"}, None),
    ],
)
def test_typed_text_becomes_the_type_of_the_field(typed: str, about: dict[str, Any], value: object) -> None:
    assert field_value(typed, about, is_required=False) == value


@pytest.mark.parametrize(
    ("typed", "about"),
    [
        ("", {"type": "string"}),
        ("x", {"type": "integer"}),
        ("1.5", {"type": "integer"}),
        ("x", {"type": "number"}),
        ("0", {"type": "integer", "minimum": 1, "maximum": 9}),
        ("maybe", {"type": "boolean"}),
        ("blue", {"enum": ["red"]}),
        ("a, z", {"type": "array", "items": {"enum": ["a"]}}),
        ("ab", {"type": "string", "minLength": 3}),
        ("abcd", {"type": "string", "maxLength": 3}),
        ("notmail", {"type": "string", "format": "email"}),
        ("a@b.co", {"type": "string", "format": "uri"}),
        ("tomorrow", {"type": "string", "format": "date"}),
        ("09:30", {"type": "string", "format": "date-time"}),
    ],
)
def test_an_invalid_form_value_is_refused(typed: str, about: dict[str, Any]) -> None:
    with pytest.raises(WrongAnswer):
        field_value(typed, about, is_required=True)


def test_accepted_values_of_a_field_are_named() -> None:
    assert expected({"type": "string"}) == " [string]"
    assert expected({"type": "string", "format": "email"}) == " [email]"
    assert expected({"enum": ["a", "b"], "default": "a"}) == " [a/b, default a]"
    assert expected({"type": "boolean"}) == " [y/n]"
    assert expected({"type": "array", "items": {"enum": ["a"]}}) == " [several of a, with commas]"
    assert expected({"type": "array"}) == " [several, with commas]"
    assert expected({}) == ""
    assert expected({"default": "x"}) == " [default x]"
    guitar = {"type": "array", "items": {"enum": ["Guitar", "Drums"]}, "default": ["Guitar"]}
    assert expected(guitar) == " [several of Guitar/Drums, with commas, default Guitar]"
    assert expected({"type": "boolean", "default": True}) == " [y/n, default y]"
    assert expected({"enum": ["a", "b"], "enumNames": ["Apple", "B"]}) == " [a (Apple)/b]"
    assert expected({"oneOf": [{"const": "a", "title": "Apple"}, {"const": "b"}]}) == " [a (Apple)/b]"
    assert expected({"enum": ["a", "b"], "enumNames": ["too few"]}) == " [a/b]"
    assert choices({"anyOf": [{"const": 1}]}) == ["1"]


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    yield


async def ask(params: dict[str, Any], method: str = "elicitation/create") -> object:
    return await TerminalAsker("box/server/tool", _paused).answer(method, Raw(encode(params)))


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
async def test_other_questions_cannot_be_asked_here(method: str) -> None:
    assert await ask({}, method) is None


@contextlib.contextmanager
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal in place of stdin and stderr; what is written to it is typed. Within the test: pytest has its own
    streams in place before."""
    controller, terminal = pty.openpty()
    with (
        open(terminal, closefd=False) as typed,
        open(terminal, "w", closefd=False) as shown,
        monkeypatch.context() as m,
    ):
        m.setattr("sys.stdin", typed)
        m.setattr("sys.stderr", shown)
        yield controller
    os.close(controller)
    os.close(terminal)


FORM = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "As on the door"},
            "age": {"type": "integer", "title": "Your age"},
            "nick": {"type": "string"},
        },
        "required": ["name", "age"],
    },
}


async def typing(monkeypatch: pytest.MonkeyPatch, lines: list[bytes], params: dict[str, Any]) -> tuple[object, str]:
    """The answer, and what was shown."""
    with keyboard(monkeypatch) as controller:
        answer = asyncio.ensure_future(ask(params))
        for line in lines:
            # A terminal keeps what is typed ahead and gives it line by line.
            os.write(controller, line)
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            found = await answer
        # The terminal hands on what is shown piece by piece.
        print("<end>", end="", file=sys.stderr, flush=True)
        shown = ""
        # What was typed ahead may be echoed after it.
        while "<end>" not in shown:
            shown += os.read(controller, 65_536).decode()
        return found, re.sub(r"\x1b\[[0-9;]*m", "", shown)


async def test_a_form_is_answered_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, shown = await typing(monkeypatch, [b"Ada\n", b"many\n", b"36\n", b"\n"], FORM)
    assert answer == {"action": "accept", "content": {"name": "Ada", "age": 36}}
    assert "Who are you?" in shown and "As on the door" in shown and "Your age [integer]: " in shown
    assert "a whole number" in shown


async def test_a_question_stays_on_its_line_and_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;T\x07\x1b[2J\x1b[H\npassword for root"
    field = {"title": evil, "enum": [evil], "default": evil, "format": evil}
    form = {"message": f"Hello\n{evil}", "requestedSchema": {"properties": {"x": field, "y": {"title": "z" * 5_000}}}}
    _, shown = await typing(monkeypatch, [b"\x04"], form)
    assert "\x1b" not in shown and "\x07" not in shown and "\npassword" not in shown
    assert "\n[box/server/tool] \\x1b]0;T" in shown
    _, shown = await typing(monkeypatch, [b"\n", b"\x04"], form)
    assert "[box/server/tool] zzz" in shown and "z" * 100 not in shown
    page = {"mode": "url", "message": "m", "url": "https://x/\nerror: forged"}
    _, shown = await typing(monkeypatch, [b"n\n"], page)
    assert "forged" in shown and "\nerror" not in shown and "\n  error" not in shown


async def test_limits_that_are_no_numbers_limit_nothing() -> None:
    assert field_value("7", {"type": "integer", "minimum": "x", "maximum": []}, is_required=True) == 7


def approval() -> dict[str, Any]:
    return question("box/server/tool", b'{"name":"tool"}', None, has_session=True)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (b"y\n", {"action": "accept", "content": {"allow": "once"}}),
        (b"hour\n", {"action": "accept", "content": {"allow": "hour"}}),
        (b"n\n", DECLINE_ANSWER),
    ],
)
async def test_an_approval_is_answered_with_yes_or_no_too(
    monkeypatch: pytest.MonkeyPatch, typed: bytes, answer: object
) -> None:
    found, shown = await typing(monkeypatch, [typed], approval())
    assert found == answer
    assert "y allows it once, session or hour for longer; n or Ctrl-D declines." in shown and "Enter" not in shown
    assert "[y/n/session/hour]" in shown


async def test_help_describes_the_keys_of_the_current_form(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Press Enter to skip a field marked ?, Ctrl-D to decline." in (await typing(monkeypatch, [b"\x04"], FORM))[1]
    fields = {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}
    form = {"message": "?", "requestedSchema": {"properties": fields, "required": ["a", "b"]}}
    assert "Press Enter to accept the default, Ctrl-D to decline." in (await typing(monkeypatch, [b"\x04"], form))[1]


async def test_the_place_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    form = {**FORM, "message": "[box/server] Who are you?"}
    shown = (await typing(monkeypatch, [b"\x04"], form))[1]
    assert "[box/server/tool] Who are you?" in shown
    other = {**FORM, "message": "[box/other] Who are you?"}
    assert "[box/server/tool] [box/other] Who" in (await typing(monkeypatch, [b"\x04"], other))[1]


async def test_ctrl_d_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await typing(monkeypatch, [b"\x04"], FORM))[0] == DECLINE_ANSWER


async def test_too_many_wrong_answers_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await typing(monkeypatch, [b"\n"] * 6, FORM))[0] == DECLINE_ANSWER


async def test_a_form_without_fields_is_a_question_of_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"message": "Really?", "requestedSchema": {"type": "object", "properties": {}}}
    assert (await typing(monkeypatch, [b"y\n"], asked))[0] == {"action": "accept", "content": {}}
    assert (await typing(monkeypatch, [b"n\n"], asked))[0] == DECLINE_ANSWER


async def test_a_page_is_opened_only_where_the_user_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    asked = {"mode": "url", "message": "Sign in.", "url": "https://example.test/x", "elicitationId": "1"}
    assert (await typing(monkeypatch, [b"n\n"], asked))[0] == DECLINE_ANSWER
    assert (await typing(monkeypatch, [b"\x04"], asked))[0] == CANCEL_ANSWER
    assert opened == []
    assert (await typing(monkeypatch, [b"yes\n"], asked))[0] == {"action": "accept"}
    assert opened == ["https://example.test/x"]


async def test_nonsense_is_no_question() -> None:
    asker = TerminalAsker("x", _paused)
    assert await asker.answer("elicitation/create", Raw(b"[]")) is None
    assert await asker.answer("elicitation/create", Raw(b"{")) is None
